"""Settings that a resumed run may change take effect, and the others are refused with the reason."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie import agents  # noqa: E402
from reverie.agents.core import RunSettings, Stopwatch  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.runners import Evaluated, Saved, checkpoints, plan, train  # noqa: E402
from reverie.runners.checkpoints import setting_changes  # noqa: E402
from reverie.runners.checkpoints.setting_changes import MAY_CHANGE, MUST_STAY, ChangedSettingsError  # noqa: E402
from reverie.runners.planning.devices import networks_on  # noqa: E402

ENVIRONMENTS = {"discrete": "CartPole-v1", "continuous": "Pendulum-v1", "any": "CartPole-v1"}
SMALL = {
    "num_actors": 1,
    "num_learners": 1,
    "envs_per_actor": 2,
    "learning_starts": 32,
    "batch_size": 8,
    "samples_per_insert": 2.0,
    "epochs": 2,
    "hidden": (8,),
    "policy_hidden": (8,),
    "critic_hidden": (8,),
    "unroll_length": 8,
    "sequence_length": 4,
    "sequence_period": 1,
    "burn_in": 2,
    "queue_capacity": 16,
    "head": "quantile",  # Rainbow's preset has the one that refuses Munchausen
}
NO_SETTING = {"agent", "env_id", "seed"}
RATES = ("learning_rate", "policy_learning_rate", "critic_learning_rate", "temperature_learning_rate")


def names_of(*classes):
    return {field.name for one in classes for field in dataclasses.fields(one)}


def undecided(classes):
    """Settings in neither table, and those in both."""
    return {name for name in names_of(*classes) if (name in MAY_CHANGE) == (name in MUST_STAY)}


def all_settings():
    return [RunSettings, EnvSettings, *(agents.find(name).config for name in agents.BUILT_IN)]


def test_every_setting_of_every_agent_is_either_changeable_or_has_a_reason_why_not():
    assert undecided(all_settings()) == set(), "add them to setting_changes.MAY_CHANGE or MUST_STAY"
    assert names_of(*all_settings()) >= (MAY_CHANGE | MUST_STAY.keys()) - NO_SETTING
    added = dataclasses.make_dataclass("Added", [("of_a_new_agent", int)])
    assert undecided([*all_settings(), added]) == {"of_a_new_agent"}


def options(name, steps, **changes):
    agent = agents.find(name)
    preset = agent.load_preset(ENVIRONMENTS[agent.actions])
    known = names_of(agent.config)
    config = dataclasses.replace(preset.config, **{k: v for k, v in {**SMALL, **changes}.items() if k in known})
    run = dataclasses.replace(
        preset.run, max_env_steps=steps, evaluate_every=steps, screening_episodes=1, confirmation_episodes=1, threads=1
    )
    return {"agent": agent, "env_id": ENVIRONMENTS[agent.actions], "config": config, "run": run, "seed": 3}


@pytest.fixture(scope="module")
def trained_runs(tmp_path_factory):
    """Folders of checkpoints of every agent, each trained when it is first asked for."""
    known = {}

    def run(name):
        if name not in known:
            known[name] = tmp_path_factory.mktemp(name)
            train(**options(name, 80), folder=known[name])
        return known[name]

    return run


def other_value(name, value):
    """Another valid value of a setting."""
    words = {
        "importance_normalise": {"batch": "table", "table": "batch"},
        "first_priority": {"td_error": "max", "max": "td_error"},
        "precision": {"float32": "bfloat16", "bfloat16": "float32"},
        "policy_critics": {"min": "mean", "mean": "min"},
        "anneal_shape": {"linear": "cosine", "cosine": "linear"},
    }
    if name == "target_critics":
        return 1  # of those that there are; 0 is all
    if name == "random_hold":
        return value + 1.0  # at least 1
    if isinstance(value, str):
        return words[name][value]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 3
    return value * 0.9 if value else 0.5


@pytest.mark.long
@pytest.mark.parametrize("name", agents.BUILT_IN)
def test_a_run_continues_with_every_changeable_setting_changed(name, trained_runs):
    before = options(name, 80)["config"]
    changes = {one: other_value(one, getattr(before, one)) for one in names_of(type(before)) & MAY_CHANGE}
    if "minibatch_size" in changes:
        assert changes["epochs"] != before.epochs
    asked = options(name, 180, **changes)
    assert asked["config"] != before
    first = checkpoints.load(checkpoints.find(trained_runs(name)))
    result = train(**asked, resume=checkpoints.find(trained_runs(name)))
    assert result.env_steps >= 180
    assert result.learner["updates"] > first["updates"] > 0


@pytest.mark.parametrize("name", agents.BUILT_IN)
def test_a_changed_learning_rate_is_that_of_the_resumed_optimiser_and_its_moments_stay(name, trained_runs):
    state = checkpoints.load(checkpoints.find(trained_runs(name)))["learner"]
    asked = options(name, 80, **dict.fromkeys(RATES, 0.25))
    agent, topology = asked["agent"], plan(**asked)
    learner = agent.make_learner(topology.env, topology.config, None, seed=9, watch=Stopwatch())
    learner.load_state_dict(state)
    shards = [shard._optimizer for shard in learner._own_server._shards] if name == "gorila" else []
    optimizers = [*learner._optimizers.values(), *shards]
    assert [one.param_groups[0]["lr"] for one in optimizers] == [0.25] * len(optimizers)
    moments = [value for one in optimizers for value in one.state_dict()["state"][0].values()]
    assert any(bool((value != 0).any()) for value in moments)


def computing_on(asked, device):
    """The same options with another device; a GPU records the updates of agents whose updates can be recorded."""
    return {**asked, "run": dataclasses.replace(asked["run"], device=device)}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", [one for one in agents.BUILT_IN if "cuda" in agents.find(one).devices])
def test_a_run_continues_on_a_gpu_and_then_on_the_processor_with_the_state_that_it_had(name, trained_runs, tmp_path):
    before = checkpoints.load(checkpoints.find(trained_runs(name)))["learner"]
    asked = options(name, 180)
    agent, topology = asked["agent"], plan(**asked)
    with networks_on("cuda"):
        learner = agent.make_learner(topology.env, topology.config, None, seed=9, watch=Stopwatch())
    learner.load_state_dict(before)
    loaded = learner.state_dict()
    for part in ("networks", "optimizers"):
        for network, values in before[part].items():
            np.testing.assert_equal(loaded[part][network], values)
    on_gpu = train(**computing_on(asked, "cuda"), folder=tmp_path, resume=trained_runs(name))
    assert on_gpu.learner["updates"] > before["version"]
    assert on_gpu.topology.run.device == "cuda"
    asked["run"] = dataclasses.replace(asked["run"], max_env_steps=260)
    at_last = train(**computing_on(asked, "cpu"), resume=tmp_path)
    assert at_last.learner["updates"] > on_gpu.learner["updates"]
    assert np.isfinite(at_last.weights.flat).all()


@pytest.mark.parametrize("name", ["dqn", "apex-dqn", "gorila", "ppo", "impala", "sac"])
def test_after_a_resume_updates_have_the_size_of_the_changed_rate(name, trained_runs):
    start = checkpoints.load(checkpoints.find(trained_runs(name)))["weights"]["parameters"]
    flat = np.concatenate([one.ravel() for one in start.values()])
    moved = []
    for rate in (1e-12, 1e-2):
        asked = options(name, 180, **dict.fromkeys(RATES, rate))
        result = train(**asked, resume=checkpoints.find(trained_runs(name)))
        moved.append(float(np.abs(result.weights.flat - flat).max()))
    assert moved[0] < 1e-6 < 1e-3 < moved[1]


def test_settings_that_may_not_change_are_named_with_both_values_and_the_reason(trained_runs):
    asked = options("dqn", 900, n_step=2, num_actors=2, learning_rate=0.5)
    with pytest.raises(ChangedSettingsError) as caught:
        train(**asked, resume=trained_runs("dqn"))
    assert [(one.name, one.before, one.now) for one in caught.value.changes] == [("num_actors", 1, 2), ("n_step", 1, 2)]
    for text in ("num_actors is 2, and was 1, which cannot change: each actor", "n_step is 2, and was 1, which cannot"):
        assert text in str(caught.value)
    assert "learning_rate" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(MUST_STAY))
def test_each_setting_that_must_stay_is_refused(name, trained_runs):
    of_all = NO_SETTING | names_of(EnvSettings)
    config = next(one for one in all_settings()[2:] if name in of_all or name in names_of(one))
    agent = next(agents.find(one) for one in agents.BUILT_IN if agents.find(one).config is config)
    topology = plan(**options(agent.name, 900))
    before = {**topology.identity, name: "another"}
    (change,) = setting_changes.changes(before, agent, topology)
    assert (change.name, change.before, change.refused) == (name, "another", MUST_STAY[name])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(agents.find("dqn").config):
    temper: float = 1.0


def test_a_setting_of_another_packages_agent_may_change_if_the_agent_names_it(trained_runs):
    agent = dataclasses.replace(agents.find("dqn"), config=Mine)
    known = vars(options("dqn", 900)["config"])
    topology = dataclasses.replace(plan(**options("dqn", 900)), config=Mine(**known, temper=2.0))
    before = {**topology.identity, "temper": 1.0}
    (change,) = setting_changes.changes(before, agent, topology)
    assert change.refused == "it is a setting of dqn alone, whose Agent.may_change does not name it"
    (change,) = setting_changes.changes(before, dataclasses.replace(agent, may_change=frozenset({"temper"})), topology)
    assert change.refused == ""


@pytest.mark.long
def test_other_intervals_of_evaluations_and_checkpoints_hold_at_once(tmp_path):
    asked = options("dqn", 500)
    rare = dataclasses.replace(asked["run"], evaluate_every=10_000, checkpoint_every=10_000)
    train(**{**asked, "run": rare}, folder=tmp_path)
    often = dataclasses.replace(asked["run"], evaluate_every=100, checkpoint_every=200, max_env_steps=900)
    seen = []
    train(**{**asked, "run": often}, folder=tmp_path, resume=True, on_event=seen.append)
    evaluated = [round(event.point.env_steps, -1) for event in seen if isinstance(event, Evaluated)]
    assert evaluated == [600, 700, 800, 900]
    assert [round(event.env_steps, -1) for event in seen if isinstance(event, Saved)] == [600, 800, 900, 900]
    seen.clear()
    train(**{**asked, "run": dataclasses.replace(rare, max_env_steps=1_100)}, resume=tmp_path, on_event=seen.append)
    assert [round(event.point.env_steps, -1) for event in seen if isinstance(event, Evaluated)] == [1_100]


def test_other_threads_and_another_target_hold(trained_runs):
    asked = options("dqn", 300)
    run = dataclasses.replace(asked["run"], threads=2, target_return=1.0, evaluate_every=50)
    result = train(**{**asked, "run": run}, resume=trained_runs("dqn"), stop_when_confirmed=False)
    assert result.confirmed
    assert result.env_steps >= 300
    assert result.topology.run.threads == 2
