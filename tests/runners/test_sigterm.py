"""SIGTERM in a run that was started from Python: it saves, and the process ends by the signal."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

pytest.importorskip("torch")

if sys.platform == "win32":
    pytest.skip("signals of POSIX", allow_module_level=True)

from reverie.runners import Finished, Started, checkpoints, train
from reverie.runners.checkpoints.earlier_runs import LOCK

SHORT = {
    "hidden": [8],
    "batch_size": 8,
    "learning_starts": 50,
    "max_env_steps": 150,
    "evaluate_every": 100,
    "screening_episodes": 1,
    "confirmation_episodes": 1,
}
PROGRAM = """
import json, os, signal, sys
import reverie
from reverie.runners import Finished, Progress

given = json.loads(sys.argv[1])


def on_event(event):
    if type(event).__name__ == given["at"] and (given["at"] != "Progress" or event.env_steps):
        for _ in range(given["times"]):
            os.kill(os.getpid(), signal.SIGTERM)
        if given["error"]:
            raise RuntimeError("no connection")


if __name__ == "__main__":
    reverie.train("dqn", "CartPole-v1", on_event=on_event, **given["options"])
    print("returned")
"""


def ended(tmp_path, at="Progress", times=1, error=False, **options):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    given = {"at": at, "times": times, "error": error, "options": {**SHORT, **options}}
    return subprocess.run(
        [sys.executable, str(script), json.dumps(given)], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.long
@pytest.mark.parametrize(("runner", "times"), [("local", 1), ("local", 2), ("process", 1)])
def test_sigterm_saves_a_checkpoint_and_ends_the_process_as_it_does_by_default(tmp_path, runner, times):
    folder = tmp_path / "run"
    program = ended(tmp_path, times=times, max_env_steps=10**6, runner=runner, folder=str(folder))
    assert program.returncode == -signal.SIGTERM, program.stderr
    newest = checkpoints.find(folder)
    assert f"ended by SIGTERM: stopped after {checkpoints.env_steps_of(newest):,} environment steps" in program.stderr
    assert "train(resume=True) with this folder continues" in program.stderr
    assert program.stdout == ""
    assert not (folder / LOCK).exists(), "all was closed before"
    further = checkpoints.env_steps_of(newest) + 20
    assert train("dqn", "CartPole-v1", max_env_steps=further, folder=folder, resume="must").env_steps >= further


@pytest.mark.long
def test_sigterm_after_the_last_step_and_before_an_error_is_not_lost(tmp_path):
    program = ended(tmp_path, at="Finished", folder=str(tmp_path / "run"))
    assert program.returncode == -signal.SIGTERM
    assert "the run had reached its end, and train(resume=True) with this folder returns it" in program.stderr
    program = ended(tmp_path, at="Started", error=True, folder=str(tmp_path / "other"))
    assert program.returncode == -signal.SIGTERM
    assert "ended by SIGTERM: the run ended with RuntimeError: no connection" in program.stderr


@pytest.mark.long
def test_sigterm_ends_a_run_without_a_folder_at_once(tmp_path):
    program = ended(tmp_path)
    assert program.returncode == -signal.SIGTERM
    assert "SIGTERM" not in program.stderr


def test_a_programs_own_handler_of_sigterm_and_other_threads_are_left_alone(tmp_path):
    received, own = [], lambda number, frame: received.append(number)
    before = signal.signal(signal.SIGTERM, own)

    def on_event(event):
        if isinstance(event, Started | Finished):
            signal.raise_signal(signal.SIGTERM)

    try:
        train("dqn", "CartPole-v1", **SHORT, folder=tmp_path / "a", on_event=on_event)
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM] * 2
    seen = []

    def look(event):
        seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(
        target=train, args=("dqn", "CartPole-v1"), kwargs={**SHORT, "folder": tmp_path / "b", "on_event": look}
    )
    thread.start()
    thread.join()
    assert set(seen) == {before}


def test_a_handler_of_sigterm_that_ray_has_set_ends_the_process_once_the_run_has_saved(tmp_path):
    """`ray.init` sets it without a request of the program, which by it would end unsaved."""
    ended_by = []

    def rays(number, frame):
        ended_by.append((checkpoints.find(tmp_path) is not None, (tmp_path / LOCK).exists()))
        sys.exit(number)

    def on_event(event):
        if isinstance(event, Started):
            signal.raise_signal(signal.SIGTERM)

    rays.__module__ = "ray._private.worker"
    before = signal.signal(signal.SIGTERM, rays)
    try:
        with pytest.raises(SystemExit) as caught:
            train("dqn", "CartPole-v1", **SHORT, folder=tmp_path, on_event=on_event)
        assert signal.getsignal(signal.SIGTERM) is rays
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught.value.code == signal.SIGTERM
    assert ended_by == [(True, False)], "once, when all was saved and closed"


def test_a_child_that_an_environment_forked_ends_by_sigterm_as_without_a_run(tmp_path):
    codes = []

    def on_event(event):
        if isinstance(event, Started):
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # it ends in any case
                os.write(writing, b"1")
                while True:
                    pass  # a wait in C would miss a signal from just before it
            os.read(reading, 1)
            os.kill(child, signal.SIGTERM)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            os.close(reading)
            os.close(writing)

    result = train("dqn", "CartPole-v1", **SHORT, folder=tmp_path, on_event=on_event)
    assert (codes, result.env_steps >= 150) == ([-signal.SIGTERM], True)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
