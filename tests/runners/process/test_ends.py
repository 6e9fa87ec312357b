"""The end of a run whose roles are processes: by a request, a signal, or the supervisor's own end."""

import dataclasses
import errno
import multiprocessing
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

pytest.importorskip("torch")

from process_runs import ENDLESS, left_by, of_kind, small, train

from reverie import agents
from reverie.runners import (
    Evaluated,
    NotSaved,
    Progress,
    RoleAwaited,
    RoleRestarted,
    Saved,
    StoppedError,
    checkpoints,
    process,
)
from reverie.runners import train as train_run
from reverie.runners.supervision import absences

# In one worker: the fork server, which imports PyTorch, is one for all of them.
pytestmark = pytest.mark.xdist_group("processes")


def test_a_request_to_stop_saves_and_leaves_nothing_running(tmp_path):
    seen = []
    with pytest.raises(StoppedError, match="saved as") as caught:
        train(
            "apex-dqn",
            config=small(),
            run=ENDLESS,
            folder=tmp_path,
            on_event=seen.append,
            should_stop=lambda: any(event.env_steps > 300 for event in of_kind(seen, Progress)),
        )
    state = checkpoints.load(caught.value.checkpoint)
    assert state["env_steps"] == caught.value.env_steps > 300


def test_a_run_that_cannot_save_at_its_end_reports_it_and_names_the_checkpoint_before(tmp_path, monkeypatch):
    """Tests of checkpoints and of Ctrl-C cover the same for a run in one process."""

    def on_event(event):
        seen.append(event)
        if isinstance(event, Saved):
            monkeypatch.setattr("reverie.runners.checkpoints.checkpoint_files._write", full)

    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    seen = []
    run = dataclasses.replace(ENDLESS, checkpoint_every=200)
    with pytest.raises(StoppedError, match="nothing was saved; the newest checkpoint is ") as caught:
        train(
            "apex-dqn",
            config=small(),
            run=run,
            folder=tmp_path,
            on_event=on_event,
            should_stop=lambda: len(of_kind(seen, NotSaved)) == 1,
        )
    assert (caught.value.checkpoint, caught.value.earlier) == (None, checkpoints.find(tmp_path))
    assert [event.is_last for event in of_kind(seen, NotSaved)] == [False, True]


def test_an_exception_in_a_callback_ends_every_process():
    def interrupt(event):
        if isinstance(event, Evaluated):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("dqn", config=small("dqn"), on_event=interrupt)


def test_signals_to_the_process_group_or_terminal_end_no_role_and_lose_no_update(tmp_path):
    """Roles receive the signal with their supervisor, which must save their state."""
    seen, reported = [], []

    def on_event(event):
        seen.append(event)
        if isinstance(event, Saved) and not reported:
            reported.append(event)
            for child in multiprocessing.active_children():
                for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                    os.kill(child.pid, number)

    def stop():
        return bool(reported) and seen[-1].env_steps > reported[0].env_steps + 200

    run = dataclasses.replace(ENDLESS, evaluate_every=10**9, checkpoint_every=300)
    with pytest.raises(StoppedError, match="saved as"):
        train("dqn", config=small("dqn"), run=run, on_event=on_event, folder=tmp_path, should_stop=stop)
    assert reported
    assert of_kind(seen, RoleRestarted) == []


def test_a_run_reports_and_can_be_stopped_while_the_fork_server_starts(monkeypatch):
    """The fork server's imports take seconds, and on a busy machine minutes."""
    go, seen = threading.Event(), []
    begin = process.Processes._start_fork_server
    monkeypatch.setattr(process.Processes, "_start_fork_server", lambda processes: (go.wait(), begin(processes)))
    monkeypatch.setattr(absences, "SLOW_SECONDS", 0.0)
    try:
        with pytest.raises(StoppedError, match="nothing was saved"):
            train(on_event=seen.append, should_stop=lambda: bool(of_kind(seen, RoleAwaited)))
    finally:
        go.set()
    assert {event.role for event in of_kind(seen, RoleAwaited)} == {"shard 0"}


def test_an_error_of_the_fork_server_ends_the_run(monkeypatch):
    def fails(process):
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(multiprocessing.context.ForkServerProcess, "start", fails)
    with pytest.raises(OSError, match="temporarily unavailable"):
        train()


def test_an_agent_that_others_cannot_import_is_refused_before_anything_starts():
    agent = dataclasses.replace(agents.find("dqn"), make_policy=lambda spec, config: None)
    with pytest.raises(TypeError, match=r"agent dqn cannot be sent to other processes .*: define its functions"):
        train_run(agent, "CartPole-v1", runner="process")


@pytest.mark.long
def test_killing_the_supervisor_ends_every_process(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent("""
        import multiprocessing
        from reverie.agents.dqn import agent as dqn
        from reverie.runners import Evaluated, train

        def on_event(event):
            if isinstance(event, Evaluated):
                pids = [one.pid for one in multiprocessing.active_children()]
                print(*pids, flush=True)
                multiprocessing.connection.wait([], 1000)

        if __name__ == "__main__":
            run = dqn.load_preset("CartPole-v1").run
            train(dqn, "CartPole-v1", runner="process", run=type(run)(10_000.0, 10**9, 50), on_event=on_event)
        """).replace("multiprocessing.connection.wait([], 1000)", "__import__('threading').Event().wait()")
    )
    child = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in child.stdout.readline().split()]
    assert len(pids) == 5 - 1  # DQN has one actor: with learner, evaluator and shard
    living = {os.pidfd_open(pid) for pid in pids}
    child.kill()
    child.wait()
    while living:
        ended = multiprocessing.connection.wait(living, 200)
        assert ended, f"{len(living)} of {pids} outlive their supervisor"
        for one in ended:
            living.discard(one)
            os.close(one)
    assert left_by(child.pid) == []
