"""One run at a time trains in a folder."""

import errno
import os
import shutil
import signal
import sys
from multiprocessing import get_context

import pytest

pytest.importorskip("torch")

import reverie
from reverie import _file_locks
from reverie.runners import Saved, checkpoints, train
from reverie.runners.checkpoints import RunExistsError, RunInUseError, locked, run_lock
from reverie.runners.checkpoints.earlier_runs import LOCK
from reverie.runners.reports import logs

SHORT = {
    "hidden": [8],
    "batch_size": 8,
    "learning_starts": 50,
    "max_env_steps": 300,
    "evaluate_every": 100,
    "checkpoint_every": 100,
    "screening_episodes": 1,
    "confirmation_episodes": 1,
}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(run_lock, "WAIT_SECONDS", 0.0)


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("runner", ["local", pytest.param("process", marks=pytest.mark.long)])
def test_a_second_run_in_the_folder_of_one_that_trains_is_refused_and_changes_nothing(tmp_path, runner):
    folder, refused = tmp_path / "run", []

    def second(event):
        if not isinstance(event, Saved) or refused:
            return
        before = files(folder)
        for options in ({"resume": True}, {"resume": "must"}, {"overwrite": True}, {}):
            with pytest.raises(RunInUseError, match="has a run that still trains") as caught:
                train("dqn", "CartPole-v1", folder=folder, **SHORT, **options)
            refused.append(caught.value)
        assert files(folder) == before
        assert reverie.load_policy(folder).run.env_steps == event.env_steps, "readers are not refused"
        assert logs.read(folder).finished is None

    train("dqn", "CartPole-v1", folder=folder, runner=runner, on_event=second, **SHORT)
    assert all(isinstance(one, RunExistsError) and one.path == folder for one in refused)
    assert f"(process {os.getpid()} on " in str(refused[0])
    assert not (folder / LOCK).exists()
    train("dqn", "CartPole-v1", folder=folder, resume="must", **SHORT)


def killed_with_a_child(folder, ready):
    """Holds the lock, forks a child that lives until `ready` is closed by the test, and is killed."""
    with locked(folder):
        if os.fork() == 0:
            ready.send(os.getpid())
            ready.recv()
            os._exit(0)
        signal.pause()


@pytest.mark.skipif(sys.platform == "win32", reason="has no fork")
def test_the_lock_of_a_killed_run_is_free_at_once_though_a_child_that_it_forked_lives_on(tmp_path):
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=killed_with_a_child, args=(tmp_path, there))
    process.start()
    child = here.recv()
    with pytest.raises(RunInUseError), locked(tmp_path):
        pass
    process.kill()
    process.join()
    os.kill(child, 0)  # it lives
    assert (tmp_path / LOCK).exists()
    assert checkpoints.is_replaceable(tmp_path), "the lock file of a killed run is not a user's file"
    with locked(tmp_path):
        pass
    here.send("end")


def test_a_run_that_does_not_start_leaves_no_folder(tmp_path):
    folder = tmp_path / "a" / "b"
    with pytest.raises(ValueError, match="no setting"):
        train("dqn", "CartPole-v1", folder=folder, learning_rat=1)
    assert [*tmp_path.iterdir()] == []


def test_a_run_that_ended_between_the_opening_and_the_locking_of_its_file_does_not_leave_two_locks(
    tmp_path, monkeypatch
):
    there, lock = [], _file_locks.try_lock

    def slow(handle):
        if not there:  # as if the run that had the lock ended now, and another one began
            there.append(handle)
            (tmp_path / LOCK).unlink()
            (tmp_path / LOCK).touch()
        return lock(handle)

    monkeypatch.setattr("reverie.runners.checkpoints.run_lock.try_lock", slow)
    with locked(tmp_path), pytest.raises(RunInUseError), locked(tmp_path):
        pass
    assert there


def test_a_file_system_without_locks_is_reported_and_the_run_trains(tmp_path, monkeypatch, caplog):
    def none(handle):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("reverie.runners.checkpoints.run_lock.try_lock", none)
    with locked(tmp_path):
        pass
    assert "cannot be locked (No locks available): start no second run in this folder" in caplog.text


def test_a_run_waits_for_one_that_holds_the_lock_for_a_moment(tmp_path, monkeypatch):
    monkeypatch.setattr(run_lock, "WAIT_SECONDS", 100.0)
    first = locked(tmp_path)
    first.__enter__()
    ends = iter([None, lambda: first.__exit__(None, None, None)])

    def sleep(seconds):
        if end := next(ends):
            end()

    monkeypatch.setattr(run_lock.time, "sleep", sleep)
    with locked(tmp_path):
        assert next(ends, "it has ended") == "it has ended"


def test_the_end_of_a_run_leaves_the_lock_of_another_one_in_a_folder_that_was_made_again(tmp_path):
    folder = tmp_path / "run"
    first, second = locked(folder), locked(folder)
    first.__enter__()
    shutil.rmtree(folder)
    second.__enter__()
    first.__exit__(None, None, None)
    with pytest.raises(RunInUseError), locked(folder):
        pass
    second.__exit__(None, None, None)
    with locked(folder):
        pass


def test_a_folder_that_cannot_be_written_is_reported_as_that(tmp_path, monkeypatch):
    opened = os.open

    def refusing(path, flags, *mode):
        if flags & os.O_CREAT:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(PermissionError, match="cannot be written: permission denied"), locked(tmp_path):
        pass
