"""A run that is resumed after its end."""

import dataclasses

import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.agents.core import RunSettings
from reverie.runners import Finished, train
from reverie.runners.checkpoints import ChangedSettingsError, checkpoint_files
from reverie.runners.checkpoints.setting_changes import MUST_STAY

DQN = agents.find("dqn")
SMALL = {"hidden": (16,), "batch_size": 16, "samples_per_insert": 2.0, "learning_starts": 100}
CONFIG = dataclasses.replace(DQN.load_preset("CartPole-v1").config, **SMALL)
MISSED = RunSettings(
    target_return=475.0,
    max_env_steps=600,
    evaluate_every=200,
    checkpoint_every=200,
    screening_episodes=2,
    confirmation_episodes=3,
)
REACHED = dataclasses.replace(MISSED, target_return=1.0)


def trained(folder, run, **options):
    events = []
    options = {"config": CONFIG, "folder": folder, "on_event": events.append, **options}
    return train(DQN, "CartPole-v1", run=run, **options), events


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def same(one, other):
    """Whether two results differ only in the seconds of their ends, which come after the last checkpoint."""
    assert (one.weights.flat == other.weights.flat).all()
    assert one.weights.version == other.weights.version
    names = ("env_steps", "confirmed", "evaluation", "curve", "replay", "learner")
    return all(getattr(one, name) == getattr(other, name) for name in names)


@pytest.mark.parametrize("run", [MISSED, REACHED])
def test_a_finished_run_returns_its_result_again_and_starts_nothing(tmp_path, run):
    first, _ = trained(tmp_path, run)
    before = files(tmp_path)
    again, events = trained(tmp_path, run, resume=True)
    assert same(first, again)
    assert (events, files(tmp_path)) == ([], before)
    assert 0 < again.seconds <= first.seconds


@pytest.mark.long
def test_runs_in_processes_return_their_result_again_too(tmp_path):
    first, _ = trained(tmp_path, REACHED, runner="process")
    for runner in ("process", "local"):
        again, events = trained(tmp_path, REACHED, runner=runner, resume="must")
        assert again.env_steps == first.env_steps
        assert again.evaluation == first.evaluation
        assert (again.weights.flat == first.weights.flat).all()
        assert (again.confirmed, events) == (True, [])


def test_a_confirmed_run_trains_on_to_its_last_step_or_to_a_higher_target(tmp_path):
    reached, _ = trained(tmp_path, REACHED)
    assert reached.env_steps < MISSED.max_env_steps
    longer, _ = trained(tmp_path, dataclasses.replace(REACHED, max_env_steps=900), resume=True)
    assert same(reached, longer), "more steps are nothing to do for a run that stops at its target"
    until = dataclasses.replace(REACHED, max_env_steps=reached.env_steps + 100)
    further, events = trained(tmp_path, until, resume=True, stop_when_confirmed=False)
    assert further.env_steps >= until.max_env_steps
    assert isinstance(events[-1], Finished)
    missed, events = trained(tmp_path, MISSED, resume=True)
    assert missed.env_steps >= MISSED.max_env_steps
    assert isinstance(events[-1], Finished)
    further, _ = trained(tmp_path, dataclasses.replace(MISSED, max_env_steps=800), resume=True)
    assert further.env_steps >= 800
    again, events = trained(
        tmp_path, dataclasses.replace(REACHED, max_env_steps=800), resume=True, stop_when_confirmed=False
    )
    assert again.env_steps == further.env_steps
    assert (again.confirmed, events) == (True, []), "the present target decides"


def test_a_run_killed_between_its_last_step_and_its_result_only_evaluates(tmp_path):
    first, _ = trained(tmp_path, REACHED, stop_when_confirmed=False)
    path = checkpoint_files.find(tmp_path)
    state = checkpoint_files.load(path)
    state["result"] = None
    checkpoint_files.save(path.parent, state["env_steps"], state, (path / "preset.toml").read_text())
    again, events = trained(tmp_path, REACHED, resume=True)
    assert isinstance(events[-1], Finished)
    assert first.confirmed
    assert (again.confirmed, again.evaluation, again.curve) == (True, first.evaluation, first.curve)
    assert (again.weights.flat == first.weights.flat).all()
    state["curve"] = state["curve"][:-1]
    checkpoint_files.save(path.parent, state["env_steps"], state, (path / "preset.toml").read_text())
    again, _ = trained(tmp_path, REACHED, resume=True)
    assert [point.mean_return for point in again.curve] == [point.mean_return for point in first.curve]


IGNORED = {
    "learning_rate": 0.5,
    "hidden": (32,),
    "screening_episodes": 3,
    "confirmation_episodes": 4,
    "evaluate_every": 50,
}


@pytest.mark.parametrize("run", [MISSED, REACHED])
@pytest.mark.parametrize("name", IGNORED)
def test_a_finished_run_is_not_returned_as_one_with_other_settings(tmp_path, run, name):
    trained(tmp_path, run)
    before = files(tmp_path)
    with pytest.raises(ChangedSettingsError, match=name) as caught:
        trained(tmp_path, run, resume=True, **{name: IGNORED[name]})
    assert files(tmp_path) == before
    assert [(one.name, one.now) for one in caught.value.changes] == [(name, IGNORED[name])]
    if name not in MUST_STAY:
        more = "a higher max_env_steps" if run is MISSED else "stop_when_confirmed=False or a higher target_return"
        assert f"give {more} to train on with them" in str(caught.value)


def test_a_finished_run_trains_on_with_another_learning_rate_where_it_has_more_to_do(tmp_path):
    trained(tmp_path, MISSED)
    longer = dataclasses.replace(MISSED, max_env_steps=700)
    further, _ = trained(tmp_path, longer, resume=True, learning_rate=1e-5)
    assert (further.topology.config.learning_rate, further.env_steps >= 700) == (1e-5, True)


def test_the_result_of_a_finished_run_has_the_settings_that_it_was_trained_with(tmp_path):
    trained(tmp_path, MISSED)
    other = dataclasses.replace(MISSED, target_return=2.0, max_env_steps=300, checkpoint_every=7, threads=2)
    again, events = trained(tmp_path, other, resume=True)
    assert (events, again.topology.run) == ([], dataclasses.replace(MISSED, target_return=2.0))
    assert again.confirmed
