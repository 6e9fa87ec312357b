"""Ctrl-C during `train`: what is saved, the text of the interrupt, and what stays as it was."""

import signal
import threading

import numpy as np
import pytest

pytest.importorskip("torch")

from reverie import runners
from reverie.runners import Progress, Saved, Started, checkpoints, train

SHORT = {
    "hidden": [8],
    "batch_size": 8,
    "learning_starts": 50,
    "evaluate_every": 100,
    "screening_episodes": 1,
    "confirmation_episodes": 1,
    "max_env_steps": 150,
}


def interrupting(times, seen):
    def on_event(event):
        seen.append(event)
        if isinstance(event, Progress) and event.env_steps:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    return on_event


def test_ctrl_c_saves_a_checkpoint_that_the_interrupt_names(tmp_path):
    events = []
    with pytest.raises(KeyboardInterrupt) as caught:
        train(
            "dqn", "CartPole-v1", **{**SHORT, "max_env_steps": 10**6}, folder=tmp_path, on_event=interrupting(1, events)
        )
    newest = checkpoints.find(tmp_path)
    (note,) = caught.value.__notes__
    assert f"saved as {newest}" in note
    assert events[-1] == Saved(checkpoints.env_steps_of(newest), newest)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again = train("dqn", "CartPole-v1", max_env_steps=events[-1].env_steps + 20, folder=tmp_path, resume=True)
    assert again.env_steps >= events[-1].env_steps + 20


def test_ctrl_c_without_a_folder_ends_the_run_with_its_policy_and_a_note_of_it(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    events = []
    with pytest.raises(KeyboardInterrupt) as caught:
        train("dqn", "CartPole-v1", **{**SHORT, "max_env_steps": 10**6}, on_event=interrupting(1, events))
    policy = caught.value.policy
    assert caught.value.__cause__.env_steps >= 1
    assert caught.value.result is None
    assert policy(np.zeros(4, np.float32)) in (0, 1)
    (note,) = caught.value.__notes__
    assert note.endswith("; nothing was saved; `.policy` of this interrupt has the last weights")
    assert "ending with the policy so far" in caplog.text
    assert not any(tmp_path.iterdir())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_after_the_last_step_of_a_run_without_a_folder_has_the_result():
    with pytest.raises(KeyboardInterrupt) as caught:
        train("dqn", "CartPole-v1", **SHORT, on_event=after(runners.Finished))
    assert caught.value.result.env_steps >= 150
    assert caught.value.policy is caught.value.result.policy is not None
    assert caught.value.__notes__[0].endswith("`.result` of this interrupt")


def test_a_run_without_a_folder_leaves_sigterm_to_the_program():
    seen = []
    train("dqn", "CartPole-v1", **SHORT, on_event=lambda event: seen.append(signal.getsignal(signal.SIGTERM)))
    assert set(seen) == {signal.SIG_DFL}


def test_a_second_ctrl_c_ends_the_run_at_once(tmp_path):
    for folder in (tmp_path / "run", None):
        events = []
        with pytest.raises(KeyboardInterrupt) as caught:
            train("dqn", "CartPole-v1", **SHORT, folder=folder, on_event=interrupting(2, events))
        assert not hasattr(caught.value, "__notes__")
        assert caught.value.result is caught.value.policy is None
        assert not any(isinstance(event, Saved) for event in events)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def after(kind, error=None):
    """Presses Ctrl-C at an event of this kind, and then raises an error."""

    def on_event(event):
        if isinstance(event, kind):
            signal.raise_signal(signal.SIGINT)
            if error is not None:
                raise error

    return on_event


def test_a_ctrl_c_after_the_last_step_has_the_result(tmp_path):
    with pytest.raises(KeyboardInterrupt) as caught:
        train("dqn", "CartPole-v1", **SHORT, folder=tmp_path, on_event=after(runners.Finished))
    assert caught.value.result.env_steps >= 150
    (note,) = caught.value.__notes__
    assert note.endswith("`.result` of this interrupt, and train(resume=True) with this folder returns it")
    again = train("dqn", "CartPole-v1", folder=tmp_path, resume=True)
    assert again.evaluation == caught.value.result.evaluation


def test_the_note_of_a_ctrl_c_promises_no_checkpoint_that_was_not_written(tmp_path, full_disk):
    with pytest.raises(KeyboardInterrupt) as caught:
        train("dqn", "CartPole-v1", **SHORT, folder=tmp_path, on_event=after(runners.Finished))
    assert caught.value.result.env_steps >= 150
    assert caught.value.__notes__[0].endswith("of this interrupt; no checkpoint has it")
    with pytest.raises(KeyboardInterrupt) as caught:
        train("dqn", "CartPole-v1", **SHORT, folder=tmp_path, overwrite=True, on_event=after(Started))
    assert caught.value.__notes__[0].endswith("nothing was saved")


def test_the_note_of_a_ctrl_c_that_could_not_save_names_the_checkpoint_before(tmp_path, monkeypatch):
    def on_event(event):
        if isinstance(event, runners.Saved):
            monkeypatch.setattr("reverie.runners.checkpoints.checkpoint_files._write", full)
            signal.raise_signal(signal.SIGINT)

    def full(path, data):
        raise OSError(28, "No space left on device")

    with pytest.raises(KeyboardInterrupt) as caught:
        train("dqn", "CartPole-v1", **{**SHORT, "checkpoint_every": 100}, folder=tmp_path, on_event=on_event)
    before = checkpoints.find(tmp_path)
    words = f"; nothing was saved; the newest checkpoint is {before}, which train(resume=...) continues; `.policy`"
    assert words in caught.value.__notes__[0]


def test_an_error_after_a_ctrl_c_does_not_hide_it(tmp_path):
    lost = RuntimeError("no connection")
    with pytest.raises(KeyboardInterrupt) as caught:
        train("dqn", "CartPole-v1", **SHORT, folder=tmp_path, on_event=after(Started, lost))
    assert caught.value.__cause__ is lost
    assert caught.value.policy is None
    assert caught.value.__notes__ == ["the run ended with RuntimeError: no connection"]
    with pytest.raises(ZeroDivisionError):
        train("dqn", "CartPole-v1", **SHORT, folder=tmp_path, overwrite=True, on_event=lambda event: 1 / 0)


def test_a_programs_own_handler_and_other_threads_are_left_alone(tmp_path):
    pressed, own = [], lambda number, frame: pressed.append(number)
    before = signal.signal(signal.SIGINT, own)
    try:
        train("dqn", "CartPole-v1", **SHORT, folder=tmp_path / "a", on_event=lambda event: signal.raise_signal(2))
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)
    assert pressed
    results = []
    thread = threading.Thread(
        target=lambda: results.append(train("dqn", "CartPole-v1", **SHORT, folder=tmp_path / "b"))
    )
    thread.start()
    thread.join()
    assert results[0].env_steps >= 150
