"""Runs that are resumed from their checkpoints."""

import dataclasses
import errno
import shutil
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie import Server, Table, agents  # noqa: E402
from reverie.agents import named_parameters  # noqa: E402
from reverie.agents.core import RunSettings  # noqa: E402
from reverie.errors import DamagedError  # noqa: E402
from reverie.runners import CheckpointError, Evaluated, NotSaved, Saved, Started, StoppedError, checkpoints, plan, train  # noqa: E402
from reverie.runners.checkpoints import checkpoint_files, run_checkpoints, setting_changes  # noqa: E402
from reverie.runners.reports.problems import problem_of  # noqa: E402

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
    options = {"run": run, "config": config_of(name), "folder": folder, "on_event": events.append, **options}
    return train(agents.find(name), "CartPole-v1", **options), events


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
def test_a_resumed_run_continues_the_same_curve_counters_and_learner(tmp_path, same, name):
    learners = []
    agent = agents.find(name)
    first, events = run(name, tmp_path, run=HALF)
    saved = [event for event in events if isinstance(event, Saved)]
    assert [round(event.env_steps, -2) for event in saved] == [800, 1_200, 1_200]  # the last two around the evaluation
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
    # A checkpoint whose tables are damaged is not intact.
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
    assert [round(event.env_steps, -2) for event in lost] == [
        800,
        1_600,
        2_400,
        2_400,
    ]  # before and after the last evaluation
    assert lost[0].reason == "No space left on device"
    assert [problem_of(event).partition("; ")[2] for event in lost] == [
        *["the run continues"] * 3,
        "the run ends without it, and older ones are unchanged",
    ]
    assert result.env_steps >= 2_400


def test_checkpoints_that_cannot_be_written_leave_those_before_their_tables(tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    def on_event(event):
        seen.append(event)
        if len([one for one in seen if isinstance(one, Saved)]) == 2:
            monkeypatch.setattr(checkpoint_files, "_write", full)

    seen = []
    often = dataclasses.replace(SHORT, checkpoint_every=100, max_env_steps=10**6)
    with pytest.raises(StoppedError, match="the newest checkpoint is ") as caught:
        run(
            "dqn",
            tmp_path,
            run=often,
            on_event=on_event,
            should_stop=lambda: len([one for one in seen if isinstance(one, NotSaved)]) >= 5,
        )
    monkeypatch.undo()
    first, second = [one.path for one in seen if isinstance(one, Saved)]
    assert caught.value.earlier == second == checkpoints.find(tmp_path)
    servers = sorted((tmp_path / "checkpoints" / "replay-1").glob("*.checkpoint"))
    assert [path.parent / one for path in (first, second) for one in checkpoint_files.tables_of(path)] == servers[:2]
    assert len(servers) == 3, "a server that is restarted has its newest tables"
    result, _ = run("dqn", tmp_path, run=dataclasses.replace(often, max_env_steps=800), resume=True)
    assert result.env_steps >= 800


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
    assert [bool(one.not_removed) for one in saved] == [False, False, True, True]
    assert "Permission denied" in saved[-1].not_removed


def test_folders_may_be_text_a_runs_folder_is_its_newest_checkpoint_and_its_end_is_saved_twice(tmp_path):
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
    assert [len(saved), len(set(saved)), saved[-2]] == [3, 2, saved[-1]], "before the last evaluation, and with it"
    longer = dataclasses.replace(short, max_env_steps=900)
    train(agents.find("dqn"), "CartPole-v1", run=longer, on_event=reported.append, resume=str(tmp_path))
    started = [event.env_steps for event in reported if isinstance(event, Started)]
    assert started == [0, saved[-1]]


def resumed(monkeypatch, tmp_path, **changes):
    """The result of `load_run` for a checkpoint of DQN with these entries of its state, and settings left out."""
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


def test_a_checkpoint_of_another_number_of_shards_is_refused_with_the_number_to_ask_for(monkeypatch, tmp_path):
    words = r"is of a run with 2 shards, and this one has 1 shard: ask for as many \(num_shards, --num-shards\)"
    with pytest.raises(CheckpointError, match=words):
        resumed(monkeypatch, tmp_path, **{checkpoints.REPLAY: ["replay-1/1", "replay-1/2"]})


def test_a_checkpoint_from_before_there_was_a_setting_is_one_of_its_default(monkeypatch, tmp_path):
    config = agents.find("dqn").load_preset("CartPole-v1").config
    field = next(one for one in dataclasses.fields(config) if one.name == "precision")
    assert config.precision == field.default
    monkeypatch.setattr(setting_changes, "MAY_CHANGE", setting_changes.MAY_CHANGE - {"precision"})
    assert resumed(monkeypatch, tmp_path, left_out=("precision",))
    other = dataclasses.replace(config, precision="bfloat16")
    with pytest.raises(CheckpointError, match=r"precision is 'bfloat16', and was 'float32', which cannot change"):
        resumed(monkeypatch, tmp_path, left_out=("precision",), config=other)


def test_tables_of_both_checkpoints_and_of_one_not_written_stay_while_those_of_the_next_are(tmp_path):
    topology = plan(agents.find("dqn"), "CartPole-v1")
    (storage,) = checkpoints.place_replays(tmp_path, None, topology, None).storages
    with Server([Table.queue("t", 10)], **storage.server_options(), listen=False) as server:
        client, written = server.client(), []
        for number in range(5):
            client.insert({"n": number}, {"t": 1.0})
            written.append(Path(client.checkpoint()))
    assert [path.exists() for path in written] == [False, True, True, True, True]
