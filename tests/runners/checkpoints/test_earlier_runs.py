"""An earlier run in the folder: continued, replaced, or the new run is refused."""

import dataclasses
import itertools
import json
import logging
import pickle
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents.core import RunSettings  # noqa: E402
from reverie.runners import CheckpointError, Saved, Started, StoppedError, checkpoints, train  # noqa: E402
from reverie.runners.checkpoints import checkpoint_files, earlier_runs  # noqa: E402
from reverie.runners.checkpoints.earlier_runs import RunExistsError  # noqa: E402

SHORT = RunSettings(
    target_return=475.0,
    max_env_steps=300,
    evaluate_every=300,
    checkpoint_every=300,
    screening_episodes=1,
    confirmation_episodes=1,
)
EVERY = 30
EPISODES = {"screening_episodes": 1, "confirmation_episodes": 1}


def run(folder, steps=300, **options):
    """The step that a run began at, after it has ended."""
    began = []

    def note(event):
        if isinstance(event, Started):
            began.append(event.env_steps)

    settings = dataclasses.replace(SHORT, max_env_steps=steps)
    train(agents.find("dqn"), "CartPole-v1", run=settings, folder=folder, on_event=note, **options)
    return began[0]


def test_the_same_call_begins_a_run_and_continues_it(tmp_path):
    assert run(tmp_path / "a", resume=True) == 0
    assert run(tmp_path / "a", 600, resume=True) >= 300
    assert run(tmp_path / "a", 900, resume="must") >= 600


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again_with_a_warning(tmp_path, caplog):
    run(tmp_path / "a", seed=1)
    shutil.rmtree(tmp_path / "a/checkpoints")
    policy, kept = (tmp_path / "a/best.safetensors").read_bytes(), []

    def see(event):
        if isinstance(event, Started):
            kept.append((tmp_path / "a/best.safetensors").read_bytes())

    with caplog.at_level(logging.WARNING, "reverie"):
        train("dqn", "CartPole-v1", seed=1, run=SHORT, folder=tmp_path / "a", resume=True, on_event=see)
    assert kept == [policy]
    warning = f"{tmp_path / 'a'} has no checkpoint yet: the run starts from the beginning, and its log with it"
    assert warning in caplog.messages
    caplog.clear()
    run(tmp_path / "b", resume=True)
    assert not [text for text in caplog.messages if "has no" in text], "there is nothing to lose"


def test_must_insists_on_an_earlier_run(tmp_path):
    with pytest.raises(CheckpointError, match='is missing, and resume is "must": resume=True begins a new run then'):
        run(tmp_path / "a", resume="must")
    assert not (tmp_path / "a").exists()


def test_an_existing_run_is_refused_with_the_three_ways_on_and_stays(tmp_path):
    run(tmp_path)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    for options in ({}, {"resume": False}, {"init_from": tmp_path}):
        with pytest.raises(RunExistsError) as caught:
            run(tmp_path, **options)
        text = "holds a run: continue it with resume=True, replace it with overwrite=True, or set another"
        assert text in str(caught.value)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.long
def test_a_checkpoint_of_elsewhere_is_not_continued_among_those_of_another_run(tmp_path):
    run(tmp_path / "a")
    run(tmp_path / "b")
    with pytest.raises(RunExistsError, match="b holds a run"):
        run(tmp_path / "b", 600, resume=tmp_path / "a")
    assert run(tmp_path / "c", 600, resume=tmp_path / "a") >= 300
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert run(tmp_path / "link", 600, resume=checkpoints.find(tmp_path / "a")) >= 300


@pytest.fixture
def branched(tmp_path):
    """The folder of a run with two checkpoints, the older of which another run resumes for a moment; its events."""
    folder, events = tmp_path / "run", []
    small = {"seed": 1, "checkpoint_every": EVERY, "learning_starts": 30, "evaluate_every": 10**6, **EPISODES}
    train("dqn", "CartPole-v1", max_env_steps=90, folder=folder, **small)
    older, newer = checkpoint_files.all_in(folder / "checkpoints")

    def resume(which=older, **changes):
        events.clear()
        done = lambda: any(isinstance(one, Saved) for one in events)  # noqa: E731
        options = {"max_env_steps": 10**6, "on_event": events.append, "should_stop": done, **changes}
        with pytest.raises(StoppedError) as stopped:
            train("dqn", "CartPole-v1", seed=1, folder=folder, resume=which, **options)
        return stopped.value.checkpoint

    return folder, older, newer, events, resume


def test_a_run_that_resumes_an_older_checkpoint_is_the_one_that_is_resumed_next(branched, caplog):
    folder, _, newer, events, resume = branched
    own = resume(checkpoint_every=7, learning_rate=3e-5)
    assert checkpoints.env_steps_of(own) < checkpoints.env_steps_of(newer), "by steps the other one is newer"
    assert not newer.exists()
    first = next(one for one in events if isinstance(one, Saved))
    assert (first.path.exists(), first.abandoned) == (True, (newer.name,))
    (text,) = [one.getMessage() for one in caplog.records if newer.name in one.getMessage()]
    own_one = f"the run resumed an older checkpoint, and has one of its own ({first.env_steps} steps)"
    assert text == f"{newer.name} removed: {own_one}"
    assert reverie.load_policy(folder).run.env_steps == checkpoints.env_steps_of(own)
    resume(True, checkpoint_every=7)
    (started,) = [one for one in events if isinstance(one, Started)]
    assert (started.env_steps, started.topology.config.learning_rate) == (checkpoints.env_steps_of(own), 3e-5)
    assert all(one.abandoned == () for one in events if isinstance(one, Saved))


def test_checkpoints_of_more_steps_stay_until_the_run_has_one_of_its_own(branched):
    folder, older, newer, _, resume = branched
    stop = iter([False] * 3).__next__
    with pytest.raises(StopIteration):
        resume(should_stop=stop)
    assert checkpoint_files.all_in(folder / "checkpoints") == [older, newer]
    assert checkpoints.load(newer)["env_steps"] == checkpoints.env_steps_of(newer)


def test_checkpoints_of_more_steps_are_removed_also_by_one_of_yet_more(branched):
    folder, older, newer, events, resume = branched
    own = resume(checkpoint_every=300)
    (first, *_) = [one for one in events if isinstance(one, Saved)]
    assert (first.path, first.abandoned) == (own, (newer.name,))
    assert checkpoint_files.all_in(folder / "checkpoints") == [older, own], "to which the run may go back"


def test_a_checkpoint_of_the_same_step_replaces_the_other_runs_and_is_kept_by_the_next(tmp_path):
    def save(steps):
        path = checkpoints.save(tmp_path, steps, {"replay": ["replay-1/1"], "number": next(numbers)}, "")
        return checkpoints.replace_older(path, [tmp_path / "replay-1/1"], replays).abandoned

    numbers, names = itertools.count(), [f"{steps:012d}" for steps in (5, 60, 90)]
    replays = checkpoints.ReplayFolders((), abandoned=set(names[1:]))
    for steps in (5, 60, 90):
        checkpoints.save(tmp_path, steps, {"replay": ["replay-1/1"], "number": -1}, "")
    assert save(60) == (names[2],)
    assert save(90) == save(120) == ()
    assert [checkpoints.load(one)["number"] for one in checkpoint_files.all_in(tmp_path)] == [1, 2]


@pytest.mark.long
def test_overwrite_replaces_checkpoints_and_tables_and_leaves_other_files(tmp_path):
    run(tmp_path, 900)
    (tmp_path / "notes.txt").write_text("mine")
    assert run(tmp_path, 300, overwrite=True) == 0
    (only,) = checkpoint_files.all_in(tmp_path / "checkpoints")
    assert int(only.name) < 600
    assert [path.name for path in checkpoint_files.replays_in(tmp_path / "checkpoints")] == ["replay-2"]
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not list(tmp_path.rglob(".removed-*"))
    assert run(tmp_path, 600, resume=True) == int(only.name)


def test_overwrite_begins_where_there_is_nothing_to_replace(tmp_path):
    assert run(tmp_path / "new", overwrite=True) == 0


def test_a_run_that_does_not_start_replaces_nothing(tmp_path, monkeypatch):
    run(tmp_path)
    kept = checkpoints.find(tmp_path)
    with pytest.raises(MemoryError):
        run(tmp_path, overwrite=True, config=dataclasses.replace(preset().config, capacity=10**11))
    assert checkpoints.load(kept)["env_steps"] >= 300
    with pytest.raises(StoppedError):
        run(tmp_path, overwrite=True, should_stop=lambda: True)
    assert checkpoint_files.all_in(tmp_path / "checkpoints") == [tmp_path / "checkpoints/000000000000"], (
        "this one had started"
    )


def preset():
    return agents.find("dqn").load_preset("CartPole-v1")


@pytest.mark.parametrize("content", [None, "", "[1]", "{}", json.dumps({"format": 3})])
def test_a_folder_that_is_only_named_like_a_checkpoint_is_never_removed(tmp_path, content):
    data = tmp_path / "checkpoints" / "20261123065802"
    data.mkdir(parents=True)
    (data / "photos").write_text("mine")
    if content is not None:
        (data / "state.json").write_text(content)
    with pytest.raises(CheckpointError, match="is not a checkpoint of a run, so that nothing here is overwritten"):
        run(tmp_path, overwrite=True)
    assert (data / "photos").exists()


def test_a_checkpoint_of_another_version_or_with_damage_is_replaced_and_a_link_is_not(tmp_path):
    run(tmp_path / "a")
    (newest,) = checkpoint_files.all_in(tmp_path / "a/checkpoints")
    state = newest / "state.json"
    state.write_bytes(state.read_bytes().replace(b'"format": 4', b'"format": 3', 1))
    with pytest.raises(CheckpointError, match=r"has format 3, and this version of Reverie reads 4: use the version"):
        run(tmp_path / "a", 600, resume=True)
    (newest / "arrays.npz").unlink()
    (tmp_path / "b/checkpoints").mkdir(parents=True)
    (tmp_path / "b/checkpoints" / newest.name).symlink_to(newest)
    with pytest.raises(CheckpointError, match="is not a checkpoint of a run"):
        run(tmp_path / "b", overwrite=True)
    assert run(tmp_path / "a", overwrite=True) == 0
    assert newest.exists() is (newest == checkpoints.find(tmp_path / "a"))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"resume": True, "overwrite": True}, ValueError, "overwrite replaces an earlier run and resume continues it"),
        (
            {"resume": "must", "overwrite": True},
            ValueError,
            "overwrite replaces an earlier run and resume continues it",
        ),
        ({"resume": True, "folder": None}, ValueError, "resume is True, and there is no folder in which"),
        ({"resume": "must", "folder": None}, ValueError, "resume is 'must', and there is no folder in which"),
        ({"overwrite": True, "folder": None}, ValueError, "overwrite is True, and there is no folder in which"),
        (
            {"checkpoint_every": 500, "folder": None},
            ValueError,
            "checkpoint_every is 500, and there is no folder for check",
        ),
        ({"resume": 5}, TypeError, "resume must be a path, got 5"),
        ({"resume": "must", "init_from": "a"}, ValueError, "init_from begins a run and resume continues one"),
        ({"resume": Path("nowhere")}, CheckpointError, "nowhere is missing"),
    ],
)
def test_arguments_that_exclude_each_other_are_refused(tmp_path, options, error, words):
    given = {"folder": tmp_path / "a", **options}
    if "init_from" in options:
        run(tmp_path / "a")
    with pytest.raises(error, match=words):
        run(given.pop("folder"), **given)


@pytest.mark.long
def test_weights_to_begin_with_are_for_the_beginning_only(tmp_path, monkeypatch):
    pytest.importorskip("safetensors")
    run(tmp_path / "source", seed=7)
    assert run(tmp_path / "a", resume=True, init_from=tmp_path / "source") == 0
    monkeypatch.setattr(agents.find("dqn").make_learner, "warm_start", lambda *_: pytest.fail("it began again"))
    assert run(tmp_path / "a", 600, resume=True, init_from=tmp_path / "source") >= 300


def test_a_crash_while_a_run_is_replaced_leaves_none_to_continue(tmp_path, monkeypatch):
    run(tmp_path, 900)
    earlier = earlier_runs.to_replace(tmp_path)
    assert len(earlier) == 3

    def crash(path, **options):
        if not options:
            raise OSError("the power is off")

    monkeypatch.setattr(checkpoint_files.shutil, "rmtree", crash)
    with pytest.raises(OSError, match="power"):
        checkpoint_files.remove(earlier)
    monkeypatch.undo()
    assert checkpoint_files.all_in(tmp_path / "checkpoints") == []
    assert run(tmp_path, resume=True) == 0
    assert not list(tmp_path.rglob(".removed-*"))


def test_files_that_a_crash_left_of_a_checkpoint_are_replaced_with_it(tmp_path):
    run(tmp_path)
    newest = checkpoints.find(tmp_path)
    shutil.copytree(newest, newest.with_name(f".aside-{newest.name}"))
    assert run(tmp_path, overwrite=True) == 0
    shutil.rmtree(checkpoints.find(tmp_path))
    assert checkpoint_files.all_in(tmp_path / "checkpoints") == []


def refuse(*arguments, **options):
    raise RuntimeError("no such layer")


@pytest.mark.parametrize("settings", [{}, {"replay_journal": "run"}])
def test_a_run_that_ends_before_it_starts_leaves_a_folder_that_is_begun_or_replaced(tmp_path, monkeypatch, settings):
    before = dataclasses.replace(agents.find("dqn"), make_learner=refuse)
    given = {"run": dataclasses.replace(SHORT, **settings), "folder": tmp_path / "a" / "b"}
    with pytest.raises(RuntimeError, match="no such layer"):
        train(before, "CartPole-v1", **given)
    assert (tmp_path / "a").exists() is bool(settings), "only a journal has begun"
    with pytest.raises(RuntimeError, match="no such layer"):
        train(before, "CartPole-v1", **given, overwrite=True)
    assert train(agents.find("dqn"), "CartPole-v1", **given, overwrite=True).env_steps >= 300


def test_a_finished_run_of_elsewhere_leaves_nothing_in_another_folder(tmp_path):
    run(tmp_path / "a")
    assert train("dqn", "CartPole-v1", folder=tmp_path / "b", resume=tmp_path / "a").env_steps >= 300
    assert not (tmp_path / "b").exists()
    assert run(tmp_path / "b") == 0
