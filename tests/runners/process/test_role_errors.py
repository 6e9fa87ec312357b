"""Roles of a run that fail or stall."""

import copy
import inspect
import pickle
import re
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path

import pytest

pytest.importorskip("torch")

from process_runs import ENDLESS, SHORT, of_kind

from reverie.runners import (
    RoleAwaited,
    RoleError,
    RoleRestarted,
    StoppedError,
)
from reverie.runners import train as train_run
from reverie.runners.reports import logs
from reverie.runners.supervision import role_group

# In one worker: the fork server, which imports PyTorch, is one for all of them.
pytestmark = pytest.mark.xdist_group("processes")


AGENT = """
import dataclasses
import os
from reverie.agents.dqn import agent as dqn

def make_actor(spec, config, client, weights, *, index, seed, watch):
    actor = dqn.make_actor(spec, config, client, weights, index=index, seed=seed, watch=watch)
    def broken():
        {body}
    actor.act = broken
    return actor

agent = dataclasses.replace(dqn, make_actor=make_actor)
"""


@pytest.fixture
def broken_agent(tmp_path, monkeypatch):
    """A function that makes an agent of DQN whose actors do something else than to act."""

    def make(name, body):
        (tmp_path / f"{name}.py").write_text(AGENT.format(body=body))
        monkeypatch.syspath_prepend(tmp_path)
        return __import__(name).agent

    return make


def test_a_role_that_keeps_failing_ends_the_run_with_its_error(broken_agent, monkeypatch):
    monkeypatch.setattr(role_group, "SHORT_LIFE_SECONDS", 3000.0)  # of which a slow start is a part
    agent = broken_agent("agent_that_exits", "os._exit(3)")
    with pytest.raises(RoleError, match=r"actor 0: it ended 5 times within 3000 s .*: it ended with exit code 3"):
        train_run(agent, "CartPole-v1", runner="process", run=SHORT)


def test_the_end_of_a_role_is_reported_even_if_a_child_holds_its_pipe(broken_agent, monkeypatch, tmp_path):
    """Such a child, as of environments in separate processes, is a copy with every file open."""
    monkeypatch.setattr(role_group, "SHORT_LIVES", 1)
    gone = tmp_path / "gone"
    outlives = f"while not os.path.exists({str(gone)!r}): __import__('time').sleep(0.01)"
    body = f"""if os.fork():
            os._exit(3)
        {outlives}
        os._exit(0)"""
    agent = broken_agent("agent_with_a_child", body)
    try:
        with pytest.raises(RoleError, match=r"actor 0: .*: it ended with exit code 3"):
            train_run(agent, "CartPole-v1", runner="process", run=ENDLESS)
    finally:
        gone.touch()


def test_an_error_in_a_role_ends_the_run_at_once_with_its_traceback(broken_agent):
    agent = broken_agent("agent_with_a_defect", "raise ValueError('no such thing')")
    events = []
    with pytest.raises(RoleError, match=r"actor 0: ValueError: no such thing") as caught:
        train_run(agent, "CartPole-v1", runner="process", run=SHORT, on_event=events.append)
    assert (caught.value.role, caught.value.error) == ("actor 0", "ValueError")
    assert inspect.getfile(agent.make_actor) in caught.value.traceback
    assert caught.value.traceback.strip() in "".join(traceback.format_exception(caught.value))
    assert of_kind(events, RoleRestarted) == []


def test_python_prints_the_traceback_of_a_role_once_below_its_error_and_so_does_its_copy():
    of_role = 'Traceback (most recent call last):\n  File "mine.py", line 3, in learn\nIndexError: a\n'
    error = RoleError("learner", "IndexError", "a", of_role)
    for one in (error, pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        printed = "".join(traceback.format_exception(one))
        assert printed.count('File "mine.py", line 3') == 1
        assert printed.index("RoleError: learner: IndexError: a\n") < printed.index('File "mine.py", line 3')
        assert one.traceback == of_role
    assert not hasattr(RoleError("learner", "", "it ended", ""), "__notes__")


def test_a_role_that_exits_ends_the_run_with_the_place_of_its_exit(broken_agent, monkeypatch):
    monkeypatch.setattr(role_group, "SHORT_LIFE_SECONDS", 3000.0)  # of which a slow start is a part
    monkeypatch.setattr(role_group, "SHORT_LIVES", 2)
    agent = broken_agent("agent_that_leaves", "raise SystemExit('no licence is free')")
    with pytest.raises(RoleError, match=r"it ended 2 times .*: SystemExit: no licence is free") as caught:
        train_run(agent, "CartPole-v1", runner="process", run=SHORT)
    assert str(caught.value).endswith("SystemExit: no licence is free")
    assert caught.value.error == "SystemExit"
    assert inspect.getfile(agent.make_actor) in caught.value.traceback


def test_a_role_that_interrupts_itself_ends_the_run_once_and_prints_nothing(broken_agent, capfd):
    agent = broken_agent("agent_that_interrupts", "raise KeyboardInterrupt")
    path, events = re.escape(inspect.getfile(agent.make_actor)), []
    words = rf"actor 0: KeyboardInterrupt: raised by the role's own code, not by Ctrl-C \({path}, line \d+\)"
    with pytest.raises(RoleError, match=words) as caught:
        train_run(agent, "CartPole-v1", runner="process", run=SHORT, on_event=events.append)
    assert re.fullmatch(words, str(caught.value))
    assert caught.value.error == "KeyboardInterrupt"
    assert of_kind(events, RoleRestarted) == []
    assert "Traceback" not in capfd.readouterr().err


def test_a_later_process_that_ends_with_1_before_it_reports_is_restarted(broken_agent, tmp_path):
    began = str(tmp_path / "began")
    agent = broken_agent("agent_that_ends_later", f"open({began!r}, 'w').close(); os._exit(3)")
    text = Path(inspect.getfile(agent.make_actor)).read_text()
    first, rest = text.split("    actor = ", 1)
    (tmp_path / "agent_that_ends_at_once.py").write_text(
        f"{first}    if os.path.exists({began!r}):\n        os._exit(1)\n    actor = {rest}"
    )
    seen = []
    with pytest.raises(StoppedError):
        train_run(
            __import__("agent_that_ends_at_once").agent,
            "CartPole-v1",
            runner="process",
            run=ENDLESS,
            on_event=seen.append,
            should_stop=lambda: len(of_kind(seen, RoleRestarted)) >= 2,
        )
    reasons = [event.reason for event in of_kind(seen, RoleRestarted)[:2]]
    assert reasons == ["it ended with exit code 3", "it ended with exit code 1"]


def test_a_role_that_stalls_within_a_message_is_named_and_blocks_no_other(broken_agent, tmp_path):
    body = """from reverie.runners.links import message_sockets
        import signal
        def half(end, message):
            end._socket.sendall(message_sockets._LENGTH.pack(100) + b"half")
            os.kill(os.getpid(), signal.SIGSTOP)
        message_sockets.RoleSocket.send = half
        return 0"""
    agent = broken_agent("agent_that_stands_still", body)
    log = logs.JsonLines(tmp_path / logs.LOG)
    seen = []

    def on_event(event):
        log(event)
        seen.append(event)

    with pytest.raises(StoppedError, match="after 0 environment steps; nothing was saved"):
        train_run(
            agent,
            "CartPole-v1",
            runner="process",
            run=ENDLESS,
            on_event=on_event,
            folder=tmp_path / "run",
            should_stop=lambda: bool(of_kind(seen, RoleAwaited)),
        )
    log.close()
    awaited = of_kind(seen, RoleAwaited)[-1]
    assert (awaited.role, awaited.begun) == ("actor 0", True)
    assert re.fullmatch(r"is stopped \(kill -CONT \d+ resumes it\)", awaited.reason)
    (line,) = [line for line in logs._lines(tmp_path / logs.LOG) if line["event"] == "role awaited"]
    assert (line["role"], line["reason"], line["begun"]) == ("actor 0", awaited.reason, True)


def program(tmp_path, text):
    """Runs a program; returns its stderr."""
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(text))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 1, done.stderr
    return done.stderr


@pytest.mark.long
def test_a_program_without_a_main_guard_ends_with_what_it_lacks(tmp_path):
    printed = program(
        tmp_path,
        """
        import sys

        from reverie.agents.dqn import agent as dqn
        from reverie.runners import train

        train(dqn, "CartPole-v1", max_env_steps=20)
        print("trained here", file=sys.stderr)
        train(dqn, "CartPole-v1", runner="process")
        """,
    )
    assert printed.count("trained here") == 1, "a role repeats the runs before its own"
    assert "RuntimeError: train was called while a new process imports the program" in printed
    last = printed.splitlines()[-1]
    assert "RoleError: " in last
    assert "its process ended with exit code 1 before it began; its error is on stderr; a likely cause: " in last
    assert 'if __name__ == "__main__":' in last


@pytest.mark.long
def test_an_environment_that_only_the_program_registers_ends_the_run_with_what_to_do(tmp_path):
    printed = program(
        tmp_path,
        """
        import gymnasium
        from reverie.agents.dqn import agent as dqn
        from reverie.runners import train

        if __name__ == "__main__":
            entry_point = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
            gymnasium.register("Mine-v0", entry_point=entry_point, max_episode_steps=50)
            train(dqn, "Mine-v0", runner="process")
        """,
    )
    last = printed.splitlines()[-1]
    assert "UnknownEnvironmentError: no environment 'Mine-v0': the name is not registered in this process" in last
    assert last.endswith("name it as module:Mine-v0")


@pytest.mark.long
def test_a_class_of_the_main_script_is_an_environment_of_its_processes(tmp_path):
    printed = program(
        tmp_path,
        """
        from gymnasium.envs.classic_control import CartPoleEnv
        from reverie.runners import train

        class Mine(CartPoleEnv):
            pass

        if __name__ == "__main__":
            short = {"max_env_steps": 200, "learning_starts": 100, "evaluate_every": 200}
            result = train("dqn", Mine, runner="process", time_limit=20, target_return=None, **short)
            raise SystemExit(f"{result.topology.env.env_id} {result.env_steps >= 200}")
        """,
    )
    assert "__main__:Mine True" in printed
