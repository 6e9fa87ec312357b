"""Shared by tests of the command line: `reverie` in this process and as one of its own, and a trained run."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest


class Command:
    """A process that was asked for; the part of `subprocess.Popen` that the tests need."""

    def __init__(self, reported, stdout, stderr):
        self._reported, self.stdout, self.stderr = reported, stdout, stderr
        self.pid = int(reported.readline())
        self.returncode = None

    def wait(self, timeout):
        """The exit code, negative where a signal ended it."""
        if self.returncode is None:
            if not select.select([self._reported], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("reverie", timeout)
            self.returncode = int(self._reported.readline())
        return self.returncode

    def poll(self):
        """The exit code, `None` while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number):
        """Sends a signal to a process that has not ended."""
        os.kill(self.pid, number)

    def close(self):
        if self.poll() is None:
            self.send_signal(signal.SIGKILL)
            self.wait(200)
        for file in (self._reported, self.stdout, self.stderr):
            if file is not None:
                file.close()


class Warm:
    """A process that forks commands, once it has imported what they import."""

    def __init__(self):
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = Path(__file__).with_name("warm.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(theirs.fileno())], pass_fds=[theirs.fileno()], start_new_session=True
        )
        theirs.close()

    def start(self, arguments, folder, *, stdout, stderr, terminal, session):
        """Descriptors, `PIPE`, `DEVNULL`, or for `stderr` `STDOUT`; a terminal is all three."""
        ours, theirs = {}, {}

        def place(name, wanted):
            if wanted == subprocess.PIPE:
                reading, theirs[name] = os.pipe()
                ours[name] = open(reading, encoding="utf-8")  # noqa: SIM115
            elif wanted == subprocess.STDOUT:
                theirs[name] = os.dup(theirs["stdout"])
            else:
                theirs[name] = os.open(os.devnull, os.O_RDWR) if wanted == subprocess.DEVNULL else os.dup(wanted)

        for name, wanted in (("stdin", subprocess.DEVNULL), ("stdout", stdout), ("stderr", stderr)):
            place(name, wanted if terminal is None else terminal)
        place("reported", subprocess.PIPE)
        command = {"arguments": [str(one) for one in arguments], "folder": str(folder), "session": session}
        message = json.dumps({**command, "terminal": terminal is not None}).encode()
        socket.send_fds(self.line, [message], [theirs[name] for name in ("stdin", "stdout", "stderr", "reported")])
        for one in theirs.values():
            os.close(one)
        return Command(ours["reported"], ours.get("stdout"), ours.get("stderr"))

    def close(self):
        self.line.close()
        self.process.wait()


@pytest.fixture(scope="session")
def warm():
    warm = Warm()
    yield warm
    warm.close()


@pytest.fixture
def start(warm, tmp_path):
    """Starts `reverie` in the test's folder: `start("train", ..., stderr=subprocess.PIPE)`; ended with the test."""
    started = []

    def start(*arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, terminal=None, session=False):
        options = {"stdout": stdout, "stderr": stderr, "terminal": terminal, "session": session}
        started.append(warm.start(arguments, tmp_path, **options))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def reverie(tmp_path, monkeypatch):
    """Runs `reverie` in this process, in an empty folder."""
    from typer.testing import CliRunner

    from reverie.cli.app import app

    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, [str(one) for one in arguments])


SMALL = ("screening_episodes=2", "confirmation_episodes=3", "hidden=[16]", "batch_size=32", "samples_per_insert=8")
LENGTH = ("max_env_steps=1300", "evaluate_every=500", "checkpoint_every=600")


def flags(settings):
    return [part for setting in settings for part in ("--set", setting)]


@pytest.fixture(scope="session")
def small():
    """Flags of `reverie train dqn` for a network and evaluations that cost little."""
    return flags(SMALL)


@pytest.fixture(scope="session")
def short():
    """The same for a run of 1,300 steps with two evaluations, which ends with exit code 1: target not reached."""
    return flags(SMALL + LENGTH)


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory, short):
    """The folder of such a run, trained once for the tests that go on from one or read one."""
    from typer.testing import CliRunner

    from reverie.cli.app import app

    folder = tmp_path_factory.mktemp("short") / "run"
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", str(folder), *short]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1, result.stderr
    return folder


@pytest.fixture
def here(trained_run, tmp_path):
    """A copy of that folder, as the test's own `here`."""
    return shutil.copytree(trained_run, tmp_path / "here")
