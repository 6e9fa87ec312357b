import contextlib
import dataclasses
import errno
import os
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie import Server, Table, agents  # noqa: E402
from reverie.agents import named_parameters, presets  # noqa: E402
from reverie.agents.core import RunSettings  # noqa: E402
from reverie.errors import DamagedError  # noqa: E402
from reverie.runners import CheckpointError, Evaluated, NotSaved, Saved, Started, StoppedError, checkpoints, plan, train  # noqa: E402
from reverie.runners.checkpoints import checkpoint_files, run_checkpoints, setting_changes  # noqa: E402

NEST = {
    "none": None,
    "numbers": [1, -2.5, True, 2**100, float("inf")],
    "pair": (1, "two"),
    3: {"array": np.arange(6, dtype=np.int16).reshape(2, 3), "scalar": np.float32(0.1)},
    "tensor": torch.arange(5, dtype=torch.float64),
    "empty": np.zeros((0, 4), np.float32),
}


def same(a, b):
    if isinstance(a, np.ndarray | torch.Tensor):
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


def test_a_saved_state_is_loaded_unchanged(tmp_path):
    path = checkpoints.save(tmp_path, 7, NEST, "[agent]\n")
    loaded = checkpoints.load(path)
    assert loaded[3].pop("scalar") == pytest.approx(np.float32(0.1))
    expected = {**NEST, 3: {"array": NEST[3]["array"]}}
    assert same(expected, loaded)
    assert (path / "preset.toml").read_text() == "[agent]\n"


def test_unsupported_values_are_refused_and_leave_no_files(tmp_path):
    with pytest.raises(TypeError, match="a checkpoint cannot hold a set"):
        checkpoints.save(tmp_path, 7, {"a": {1, 2}}, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["state.json", "arrays.npz", "preset.toml"])
def test_any_changed_byte_is_found_and_the_file_is_named(tmp_path, name):
    path = checkpoints.save(tmp_path, 7, {"w": np.arange(3.0), "n": 12345}, "[agent]\nn_step = 3\n")
    whole = (path / name).read_bytes()
    for position in range(0, len(whole), max(1, len(whole) // 97)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        (path / name).write_bytes(bytes(damaged))
        with pytest.raises(CheckpointError) as caught:
            checkpoints.load(path)
        # A changed checksum in the first line of state.json accuses the file that it is of.
        assert caught.value.path == path / name or name == "state.json"
    (path / name).write_bytes(whole[:-3])
    with pytest.raises(CheckpointError, match=r"is damaged") as caught:
        checkpoints.load(path)
    assert caught.value.path == path / name
    (path / name).unlink()
    with pytest.raises(CheckpointError, match=r"cannot be read: No such file") as caught:
        checkpoints.load(checkpoint_files.all_in(tmp_path)[-1])
    assert caught.value.path == path / name


def test_the_newest_two_stay_and_are_found_by_the_runs_folder_or_their_own(tmp_path):
    saved = [checkpoints.save(tmp_path / "checkpoints", step, {"step": step}, "") for step in (5, 90, 1_000_000)]
    checkpoint_files.remove_outdated(tmp_path / "checkpoints")
    assert [path.exists() for path in saved] == [False, True, True]
    assert checkpoints.find(tmp_path) == saved[2]
    assert checkpoints.find(saved[1]) == saved[1]
    with pytest.raises(
        CheckpointError, match=f"this folder has checkpoints, and is in that of their run, {tmp_path}; "
    ):
        checkpoints.find(tmp_path / "checkpoints")
    with pytest.raises(CheckpointError, match="is missing: there is no such folder; name a run's folder"):
        checkpoints.find(tmp_path / "nowhere")


def test_a_folder_without_a_checkpoint_is_reported_with_what_it_is(tmp_path):
    def reason(folder):
        with pytest.raises(CheckpointError) as caught:
            checkpoints.find(folder)
        return caught.value.reason.partition(": ")[2].partition("; ")[0]

    (tmp_path / "empty").mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "text/notes.txt").write_text("lr")
    for name in ("empty", "text"):
        assert reason(tmp_path / name) == "this folder is no run: it has neither log.jsonl nor checkpoints/"
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/log.jsonl").write_text("{}")
    (tmp_path / "early/checkpoints").mkdir(parents=True)
    for name in ("begun", "early"):
        assert reason(tmp_path / name) == "the run in this folder has not written one yet"
    for seed in range(2):
        checkpoints.save(tmp_path / f"sweep/seed-{seed}/checkpoints", 5, {"step": 5}, "")
    assert reason(tmp_path / "sweep") == "this folder is no run, and has those of seed-0, seed-1"


def test_a_half_written_checkpoint_is_never_found_and_is_removed_by_the_next(tmp_path):
    whole = checkpoints.save(tmp_path, 5, {"step": 5}, "")
    for word in ("draft", "removed"):
        (tmp_path / f".{word}-000000000006").mkdir()
        (tmp_path / f".{word}-000000000006" / "state.json").write_text("half")
    assert checkpoint_files.all_in(tmp_path)[-1] == whole
    checkpoints.save(tmp_path, 7, {"step": 7}, "")
    checkpoint_files.remove_outdated(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000000005", "000000000007"]


@pytest.mark.parametrize("failing", range(3))
def test_a_full_disk_loses_nothing_already_saved(tmp_path, monkeypatch, failing):
    first = checkpoints.save(tmp_path, 5, {"step": 5}, "old")
    write, calls = checkpoint_files._write, []

    def full(path, data):
        calls.append(path)
        if len(calls) == failing + 1:
            path.write_bytes(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data)

    monkeypatch.setattr(checkpoint_files, "_write", full)
    for step in (5, 6):
        calls.clear()
        with pytest.raises(OSError, match="No space left"):
            checkpoints.save(tmp_path, step, {"step": step}, "new")
        assert checkpoint_files.all_in(tmp_path)[-1] == first
        assert checkpoints.load(first) == {"step": 5}
        assert [path.name for path in tmp_path.iterdir()] == [first.name]


@pytest.mark.parametrize("failing", range(2))
def test_a_checkpoint_that_cannot_be_replaced_stays(tmp_path, monkeypatch, failing):
    first = checkpoints.save(tmp_path, 5, {"step": 5}, "old")
    rename, calls = Path.rename, []

    def broken(path, target):
        calls.append(path)
        if len(calls) == failing + 1:
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", broken)
    with pytest.raises(OSError, match="Input/output"):
        checkpoints.save(tmp_path, 5, {"step": 5}, "new")
    assert [path.name for path in tmp_path.iterdir()] == [first.name]
    assert (first / "preset.toml").read_text() == "old"


@pytest.mark.parametrize("earlier", [True, False])
def test_a_checkpoint_that_is_not_flushed_is_not_saved(tmp_path, monkeypatch, earlier):
    if earlier:
        checkpoints.save(tmp_path, 5, {"step": 5}, "old")

    def broken(folder):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(checkpoint_files, "_flush_folder", broken)
    with pytest.raises(OSError, match="Input/output"):
        checkpoints.save(tmp_path, 5, {"step": 5}, "new")
    found = checkpoint_files.all_in(tmp_path)
    assert [(path / "preset.toml").read_text() for path in found] == ["old"] * earlier
    assert list(tmp_path.iterdir()) == found


@pytest.mark.parametrize(("code", "saved"), [(errno.EINVAL, True), (errno.ENOTSUP, True), (errno.EIO, False)])
def test_a_file_system_that_flushes_no_folder_has_checkpoints(tmp_path, monkeypatch, code, saved):
    fsync = os.fsync

    def refusing(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(code, os.strerror(code))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", refusing)
    with contextlib.nullcontext() if saved else pytest.raises(OSError, match="Input/output"):
        checkpoints.save(tmp_path, 5, {"step": 5}, "new")
    assert len(checkpoint_files.all_in(tmp_path)) == saved


def test_a_checkpoint_that_a_kill_left_set_aside_is_found_and_restored(tmp_path, monkeypatch):
    for step in (5, 90):
        checkpoints.save(tmp_path, step, {"step": step, checkpoints.REPLAY: []}, f"old {step}")

    class Kill(BaseException):
        pass

    rename = Path.rename

    def killed(path, target):
        if path.name.startswith(".draft-"):
            raise Kill
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with pytest.raises(Kill):
            checkpoints.save(tmp_path, 90, {"step": 90}, "new")
    newest = checkpoint_files.all_in(tmp_path)[-1]
    assert checkpoints.load(newest)["step"] == 90
    assert [checkpoints.env_steps_of(one) for one in checkpoint_files.all_in(tmp_path)] == [5, 90]
    assert "the earlier checkpoint 000000000005 is intact" in checkpoints.fallback_hint(newest)
    checkpoint_files.remove_outdated(tmp_path)
    assert checkpoint_files.all_in(tmp_path)[-1] == newest
    checkpoints.save(tmp_path, 1_000, {"step": 1_000}, "")
    checkpoint_files.remove_outdated(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000000090", "000000001000"]
    assert (tmp_path / "000000000090" / "preset.toml").read_text() == "old 90"


def test_one_folder_that_cannot_be_removed_keeps_no_other_one(tmp_path, monkeypatch):
    paths = [checkpoints.save(tmp_path, step, {"step": step}, "") for step in (1, 2, 3, 4)]
    rmtree = shutil.rmtree

    def refusing(path, **options):
        if path.name.endswith("1") and not options:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        rmtree(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refusing)
        with pytest.raises(PermissionError):
            checkpoint_files.remove_outdated(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".removed-000000000001",
        *(one.name for one in paths[2:]),
    ]
    assert checkpoint_files.all_in(tmp_path) == paths[2:]
    checkpoint_files.remove_outdated(tmp_path)
    assert sorted(tmp_path.iterdir()) == paths[2:]


def test_of_a_folder_that_was_moved_elsewhere_and_linked_the_link_is_removed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "table").write_text("items")
    link = tmp_path / "run" / "replay-1"
    link.parent.mkdir()
    link.symlink_to(elsewhere)
    checkpoint_files.remove([link])
    assert not list(link.parent.iterdir())
    assert (elsewhere / "table").read_text() == "items"


def test_a_preset_that_was_written_reads_as_it_was(tmp_path):
    for name in agents.BUILT_IN:
        agent = agents.find(name)
        for path in agent.presets.glob("*.toml"):
            preset = agent.load_preset(presets.environment_of(path))
            (tmp_path / "again.toml").write_text(presets.dump(preset))
            again = agent.load_preset(presets.environment_of(path), tmp_path / "again.toml")
            assert (again.config, again.run) == (preset.config, preset.run)


SHORT = RunSettings(
    target_return=475.0,
    max_env_steps=2_400,
    evaluate_every=500,
    checkpoint_every=800,
    screening_episodes=1,
    confirmation_episodes=1,
)
HALF = dataclasses.replace(SHORT, max_env_steps=1_200)
NAMES = agents.names("discrete")


SMALL = {"hidden": (16,), "batch_size": 16, "samples_per_insert": 2.0, "epochs": 2}
"""An update for every eight environment steps: half as many as in the presets."""


def config_of(name, **changes):
    config = agents.find(name).load_preset("CartPole-v1").config
    small = SMALL if hasattr(config, "samples_per_insert") else {"epochs": 2}
    return dataclasses.replace(config, **{k: v for k, v in small.items() if hasattr(config, k)}, **changes)


def run(name, folder, *, run=SHORT, **options):
    events = []
    options = {"run": run, "config": config_of(name), "folder": folder, **options}
    return train(agents.find(name), "CartPole-v1", on_event=events.append, **options), events


@pytest.fixture(scope="module")
def trained_runs(tmp_path_factory):
    """Folders of DQN's checkpoints, each trained when it is first asked for; tests read them: `trained_runs(SHORT)`."""
    known = {}

    def folder(settings):
        if settings.max_env_steps not in known:
            known[settings.max_env_steps] = tmp_path_factory.mktemp("dqn")
            run("dqn", known[settings.max_env_steps], run=settings)
        return known[settings.max_env_steps]

    return folder


@pytest.fixture
def half_trained(trained_runs, tmp_path):
    """A copy of the folder of a run that has made half of its steps."""
    return shutil.copytree(trained_runs(HALF), tmp_path / "half")


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_continues_the_same_curve_counters_and_learner(tmp_path, name):
    learners = []
    agent = agents.find(name)
    first, events = run(name, tmp_path, run=HALF)
    saved = [event for event in events if isinstance(event, Saved)]
    assert [round(event.env_steps, -2) for event in saved] == [800, 1_200]
    state = checkpoints.load(saved[-1].path)
    assert state["weights"]["version"] == first.weights.version
    named = state["weights"]["parameters"]
    assert (np.concatenate([one.ravel() for one in named.values()]) == first.weights.flat).all()

    def make_learner(*args, **options):
        learners.append(agent.make_learner(*args, **options))
        return learners[-1]

    events.clear()
    changed = dataclasses.replace(agent, make_learner=make_learner)

    def note(event):
        if isinstance(event, Started):
            assert same(learners[0].state_dict(), state["learner"])
        events.append(event)

    second = train(changed, "CartPole-v1", run=SHORT, config=config_of(name), resume=saved[-1].path, on_event=note)
    assert events[0].env_steps == first.env_steps
    assert events[0].curve == first.curve
    assert second.curve[: len(first.curve)] == first.curve
    steps = [point.env_steps for point in second.curve]
    assert steps == sorted(set(steps))
    assert [round(step, -2) for step in steps] == [500, 1_000, 1_200, 1_500, 2_000, 2_400]
    assert second.learner["updates"] > first.learner["updates"]
    assert second.seconds > first.seconds
    # The table is the same one: it counts on from where it was, and its limiter holds the ratio over both parts.
    assert second.replay["inserts"] > 1.5 * first.replay["inserts"]
    replay, config = second.replay, second.topology.config
    if hasattr(config, "error_buffer"):
        ahead = (replay["inserts"] - config.learning_starts) * config.samples_per_insert - replay["samples"]
        assert abs(ahead) <= config.error_buffer


@pytest.mark.long
def test_resuming_twice_gives_the_same_run(trained_runs):
    path, _ = checkpoint_files.all_in(trained_runs(HALF) / "checkpoints")
    one, two = (run("dqn", None, run=HALF, resume=path)[0] for _ in range(2))
    assert one.learner["updates"] > 0
    assert (one.weights.flat == two.weights.flat).all()
    assert [p.mean_return for p in one.curve] == [p.mean_return for p in two.curve]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": 1}, "seed is 1, and was 0, which cannot change: the random states"),
        ({"agent": "apex-dqn"}, "agent is 'apex-dqn', and was 'dqn', which cannot change: the checkpoint has"),
        ({"env_id": "Acrobot-v1"}, "env_id is 'Acrobot-v1', and was 'CartPole-v1', which cannot change: its networks"),
        ({"config": {"n_step": 2}}, "n_step is 2, and was 1, which cannot change: the items in its table"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_with_what_differs(trained_runs, options, words):
    preset = agents.find("dqn").load_preset("CartPole-v1")
    given = {"agent": "dqn", "env_id": "CartPole-v1", "run": preset.run, **options}
    given["config"] = config_of("dqn", **options.get("config", {}))
    if given["agent"] != "dqn":
        given["config"] = None
    with pytest.raises(CheckpointError, match=words):
        train(
            agents.find(given.pop("agent")),
            given.pop("env_id"),
            preset=preset.path if given["config"] else None,
            resume=checkpoints.find(trained_runs(SHORT)),
            **given,
        )


def test_a_run_that_is_asked_to_stop_saves_between_two_turns_and_names_the_checkpoint(tmp_path):
    seen = []

    def note(event):
        if isinstance(event, Evaluated):
            seen.append(event.point.env_steps)

    with pytest.raises(StoppedError, match=r"stopped after 5\d\d environment steps; saved as ") as caught:
        train(
            agents.find("dqn"),
            "CartPole-v1",
            run=SHORT,
            folder=tmp_path,
            on_event=note,
            should_stop=lambda: bool(seen),
        )
    assert caught.value.checkpoint == checkpoints.find(tmp_path)
    assert checkpoints.load(caught.value.checkpoint)["env_steps"] == caught.value.env_steps == seen[0]
    with pytest.raises(StoppedError, match="after 0 environment steps; nothing was saved"):
        train(agents.find("dqn"), "CartPole-v1", run=SHORT, should_stop=lambda: True)


@pytest.mark.long
def test_learning_continues_at_once_from_the_items_of_the_checkpoint(half_trained):
    before = checkpoints.load(checkpoints.find(half_trained))
    turns = iter(range(200))
    with pytest.raises(StoppedError):
        run("dqn", half_trained, resume=checkpoints.find(half_trained), should_stop=lambda: next(turns, None) is None)
    state = checkpoints.load(checkpoints.find(half_trained))
    steps, updates = (state[name] - before[name] for name in ("env_steps", "updates"))
    assert steps > 100
    assert updates == pytest.approx(steps / 8, abs=3)  # one for every eight environment steps, from the first on


@pytest.mark.long
def test_unreferenced_tables_are_removed_and_missing_tables_are_an_error(half_trained):
    folder = half_trained
    run("dqn", folder, run=dataclasses.replace(SHORT, max_env_steps=1_400), resume=checkpoints.find(folder))
    assert sorted(path.name for path in folder.glob("checkpoints/replay-*")) == ["replay-1", "replay-2"]
    run("dqn", folder, run=SHORT, resume=checkpoints.find(folder))
    assert sorted(path.name for path in folder.glob("checkpoints/replay-*")) == ["replay-3"]
    for segment in folder.glob("checkpoints/replay-3/*"):
        segment.unlink()
    with pytest.raises(CheckpointError, match=r"has its tables in .*replay-3.*, which is missing"):
        run("dqn", folder, run=dataclasses.replace(SHORT, max_env_steps=9_000), resume=checkpoints.find(folder))


def test_damaged_tables_are_refused_with_the_file(half_trained):
    for segment in half_trained.glob("checkpoints/replay-1/*.segment"):
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 1
        segment.write_bytes(bytes(data))
    with pytest.raises(DamagedError, match="segment"):
        run("dqn", None, resume=checkpoints.find(half_trained))


@pytest.mark.parametrize("name", ["state.json", "arrays.npz", "preset.toml"])
def test_the_error_of_a_damaged_checkpoint_names_an_intact_earlier_one(half_trained, tmp_path, name):
    older, newest = checkpoint_files.all_in(half_trained / "checkpoints")
    (newest / name).write_bytes(b"")
    with pytest.raises(
        CheckpointError, match=f"the earlier checkpoint {older.name} is intact: remove {newest} to continue"
    ):
        run("dqn", half_trained, resume=half_trained)
    # That very one is gone on with, once the other is away.
    damaged = (newest / name).read_bytes()
    newest.rename(tmp_path / "away")
    result, events = run("dqn", None, run=dataclasses.replace(SHORT, max_env_steps=1_300), resume=half_trained)
    assert events[0].env_steps == int(older.name)
    assert result.env_steps > int(newest.name)
    (tmp_path / "away").rename(newest)
    assert (newest / name).read_bytes() == damaged
    # Where its tables are damaged it is not whole.
    tables = half_trained / "checkpoints" / checkpoints.load(older)[checkpoints.REPLAY][0]
    tables.write_bytes(tables.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="no earlier checkpoint is intact: start again in another folder"):
        run("dqn", half_trained, resume=half_trained)


@pytest.mark.long
def test_training_continues_when_a_checkpoint_cannot_be_written(tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint_files, "_write", full)
    result, events = run("dqn", tmp_path)
    lost = [event for event in events if isinstance(event, NotSaved)]
    assert [round(event.env_steps, -2) for event in lost] == [800, 1_600, 2_400]
    assert lost[0].reason == "No space left on device"
    assert result.env_steps >= 2_400


def test_a_checkpoint_is_saved_even_if_what_it_replaces_cannot_be_removed(tmp_path, monkeypatch):
    def refusing(path, *, ignore_errors=False):
        if not ignore_errors:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_files.shutil, "rmtree", refusing)
        _, events = run("dqn", tmp_path)
    saved = [event for event in events if isinstance(event, Saved)]
    assert not any(isinstance(event, NotSaved) for event in events)
    assert saved[-1].path == checkpoints.find(tmp_path)
    assert [bool(one.not_removed) for one in saved] == [False, False, True]
    assert "Permission denied" in saved[-1].not_removed


def test_folders_may_be_text_a_runs_folder_is_its_newest_checkpoint_and_nothing_is_saved_twice(tmp_path):
    reported = []
    short = dataclasses.replace(SHORT, max_env_steps=600, evaluate_every=300, checkpoint_every=300)
    train(
        agents.find("dqn"),
        "CartPole-v1",
        run=short,
        on_event=reported.append,
        folder=str(tmp_path),
    )
    saved = [event.env_steps for event in reported if isinstance(event, Saved)]
    assert len(saved) == len(set(saved)) == 2, "one that was due at the end is that of the end"
    longer = dataclasses.replace(short, max_env_steps=900)
    train(agents.find("dqn"), "CartPole-v1", run=longer, on_event=reported.append, resume=str(tmp_path))
    started = [event.env_steps for event in reported if isinstance(event, Started)]
    assert started == [0, saved[-1]]


def resumed(monkeypatch, tmp_path, **changes):
    """What `load_run` makes of a checkpoint of DQN with these entries of its state, and settings left out."""
    left_out = changes.pop("left_out", ())
    topology = plan(agents.find("dqn"), "CartPole-v1", run=SHORT, config=changes.pop("config", None))
    known = {name: value for name, value in topology.identity.items() if name not in left_out}
    policy = agents.find("dqn").make_policy(topology.env, topology.config)
    weights = {"version": 0, "parameters": named_parameters.copied(policy.module)}
    state = {"identity": known, "env_steps": 10, "weights": weights, checkpoints.REPLAY: ["replay-1/1"], **changes}
    monkeypatch.setattr(run_checkpoints, "load", lambda path: state)
    return checkpoints.load_run(tmp_path, agents.find("dqn"), topology)


def test_a_checkpoint_of_an_earlier_version_with_all_steps_is_refused_and_others_are_not(monkeypatch, tmp_path):
    assert resumed(monkeypatch, tmp_path, env_steps=SHORT.max_env_steps - 1)
    with pytest.raises(CheckpointError, match=r"ended after 2,400 environment steps; raise max_env_steps \(2,400\)"):
        resumed(monkeypatch, tmp_path, env_steps=SHORT.max_env_steps)
    assert resumed(monkeypatch, tmp_path, env_steps=SHORT.max_env_steps, result=None), "its evaluation is missing"


def test_a_checkpoint_from_before_there_was_a_setting_is_one_of_its_default(monkeypatch, tmp_path):
    config = agents.find("dqn").load_preset("CartPole-v1").config
    field = next(one for one in dataclasses.fields(config) if one.name == "precision")
    assert config.precision == field.default
    monkeypatch.setattr(setting_changes, "MAY_CHANGE", setting_changes.MAY_CHANGE - {"precision"})
    assert resumed(monkeypatch, tmp_path, left_out=("precision",))
    other = dataclasses.replace(config, precision="bfloat16")
    with pytest.raises(CheckpointError, match=r"precision is 'bfloat16', and was 'float32', which cannot change"):
        resumed(monkeypatch, tmp_path, left_out=("precision",), config=other)


def test_tables_of_both_checkpoints_stay_while_those_of_the_next_one_are_written(tmp_path):
    topology = plan(agents.find("dqn"), "CartPole-v1")
    (storage,) = checkpoints.place_replays(tmp_path, None, topology, None).storages
    with Server([Table.queue("t", 10)], **storage.server_options(), listen=False) as server:
        client, written = server.client(), []
        for number in range(4):
            client.insert({"n": number}, {"t": 1.0})
            written.append(Path(client.checkpoint()))
    assert [path.exists() for path in written] == [False, True, True, True]
