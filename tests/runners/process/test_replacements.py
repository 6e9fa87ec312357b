"""The process that replaces one which was killed."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from reverie.runners import process
from reverie.runners.links.messages import RoleName


class Held:
    """A process that ends when the test lets it, although it was killed."""

    def __init__(self, processes, name):
        self._child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        pipe = SimpleNamespace(close=lambda: None)
        fake = SimpleNamespace(join=self._child.wait)
        processes._running[name] = process._Process(fake, pipe, os.pidfd_open(self._child.pid))

    def ended(self):
        return self._child.poll() is not None

    def end(self):
        if not self.ended():
            self._child.communicate(b"\n")


def test_a_role_is_started_again_once_its_killed_process_has_ended_and_released_its_locks(monkeypatch):
    monkeypatch.setattr(process.Processes, "_start_fork_server", lambda self: self._fork_server_ready.set())
    monkeypatch.setattr(process.signal, "pidfd_send_signal", lambda pidfd, number: None)
    processes = process.Processes()
    assert processes._fork_server_ready.wait(60)
    names = [RoleName("bundle", index) for index in (0, 1)]
    held, other = (Held(processes, name) for name in names)
    for name in names:
        processes.kill(name)
    waited, started, wait = [], [], process.wait

    def ending(pidfds, timeout):
        waited.append(pidfds)
        held.end()
        return wait(pidfds, timeout)

    class Started(Exception):
        pass

    def start(**options):
        started.append((held.ended(), other.ended()))
        raise Started

    monkeypatch.setattr(process, "wait", ending)
    monkeypatch.setattr(processes, "_context", SimpleNamespace(Process=start))
    with pytest.raises(Started):
        processes.start(
            SimpleNamespace(name=names[0], agent=SimpleNamespace(name="a"), env=SimpleNamespace(env_id="e"))
        )
    assert started == [(True, False)], "its own has ended; others are not waited for"
    other.end()
    processes.close()
    assert len(waited) == 2
