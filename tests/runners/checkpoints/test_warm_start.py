"""Runs that begin with trained weights: the weights are those of the source, and all else is new."""

import dataclasses
import json
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import EnvSpec  # noqa: E402
from reverie.agents.inputs import Statistics  # noqa: E402
from reverie.agents.policies import TrainedPolicy  # noqa: E402
from reverie.agents.policy_records import PolicyError, TrainingRun  # noqa: E402
from reverie.runners import CheckpointError, checkpoints, plan, train  # noqa: E402
from reverie.runners.checkpoints import warm_start  # noqa: E402
from reverie.runners.checkpoints.warm_start import warm_started  # noqa: E402

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
}
TARGETS = {"target": "online", "target-0": "online-0", "policy_target": "policy"}
NEVER = {"learning_starts": 10_000, "unroll_length": 1_000}
"""Settings with which no update is made."""


def settings(name, steps=64, **changes):
    agent = agents.find(name)
    preset = agent.load_preset(ENVIRONMENTS[agent.actions])
    known = {one.name for one in dataclasses.fields(preset.config)}
    config = dataclasses.replace(preset.config, **{k: v for k, v in {**SMALL, **changes}.items() if k in known})
    run = dataclasses.replace(
        preset.run, max_env_steps=steps, evaluate_every=steps, screening_episodes=1, confirmation_episodes=1, threads=1
    )
    return {"agent": agent, "env_id": ENVIRONMENTS[agent.actions], "config": config, "run": run}


@pytest.fixture(scope="module")
def trained_runs(tmp_path_factory):
    """Folders of runs of every agent, each trained when it is first asked for."""
    known = {}

    def run(name):
        if name not in known:
            known[name] = tmp_path_factory.mktemp(name)
            train(**settings(name), seed=3, folder=known[name])
        return known[name]

    return run


def learner_from(name, source, seed=9, **changes):
    """The learner of a new run that begins with the weights of `source`, or without any."""
    asked = settings(name, **changes)
    agent = asked["agent"]
    topology = plan(seed=seed, **asked)
    if source is not None:
        agent = warm_started(agent, topology, source)
    return agent.make_learner(topology.env, topology.config, None, seed=seed, watch=Stopwatch())


def joined(named):
    return np.concatenate([one.ravel() for one in named.values()])


def acting_of(source):
    return joined(checkpoints.load(source)["weights"]["parameters"])


@pytest.mark.parametrize("name", agents.BUILT_IN)
def test_a_learner_begins_with_the_weights_of_a_run_and_all_else_is_new(name, trained_runs, networks_of):
    folder = trained_runs(name)
    saved = checkpoints.load(checkpoints.find(folder))
    warm, cold = learner_from(name, folder), learner_from(name, None)
    assert saved["learner"]["version"] > 0
    assert (warm.latest(-1).flat == joined(saved["weights"]["parameters"])).all()
    assert (warm.latest(-1).flat != cold.latest(-1).flat).any()
    if name != "gorila":  # its workers pull from the server
        assert all((networks_of(warm)[k] == one).all() for k, one in networks_of(saved["learner"]).items())
    new, state = cold.state_dict(), warm.state_dict()
    assert state["version"] == new["version"] == 0
    assert state["counts"] == new["counts"]
    assert set(map(len, state["optimizers"].values())) <= {0}
    assert (state["random"] is None) == (new["random"] is None)
    assert state["random"] is None or (state["random"] == new["random"]).all()


@pytest.mark.parametrize("name", agents.BUILT_IN)
def test_a_file_gives_the_weights_that_act_and_the_rest_is_new(name, trained_runs, tmp_path, networks_of):
    policy = reverie.load_policy(trained_runs(name))
    warm, cold = learner_from(name, policy.save(tmp_path / "p.safetensors")), learner_from(name, None)
    assert (warm.latest(-1).flat == acting_of(policy.path)).all()
    for network, flat in networks_of(warm).items():
        fresh = network.startswith(("critic", "temperature", "values")) and name != "apex-dpg"
        # Statistics of rewards are the first three numbers of a network that divides by their deviation.
        first = 3 if policy.spec.settings.normalise_rewards and network != "temperature" else 0
        assert (flat == networks_of(cold)[network])[first:].all() == fresh, network
    for target, online in TARGETS.items():
        if {target, online} <= networks_of(warm).keys():
            assert (networks_of(warm)[target] == networks_of(warm)[online]).all()


@pytest.mark.parametrize("name", ["sac", "ddpg"])
def test_critics_begin_with_the_running_statistics_of_a_file_which_are_the_same_in_each_network(name, tmp_path):
    """Otherwise critics would read observations as they are, and rewards would be divided by another deviation."""
    asked = settings(name) | {"environment": EnvSettings(normalise_observations=True, normalise_rewards=True)}
    train(**asked, seed=3, folder=tmp_path)
    path = reverie.load_policy(tmp_path).save(tmp_path / "p.safetensors")
    topology = plan(seed=9, **asked)
    learner = warm_started(asked["agent"], topology, path).make_learner(
        topology.env, topology.config, None, seed=9, watch=Stopwatch()
    )
    acting, *others = Statistics(one.module for one in learner._networks.values())._readers
    assert len(others) >= 2, "critics and their targets"
    assert acting.moments.count > 32
    assert acting.returns.variance != 1
    for reader in others:
        for own, found in zip(reader.parameters(), acting.parameters(), strict=True):
            assert (own == found).all()


@pytest.mark.parametrize("name", ["dqn", "gorila", "sac"])
def test_a_run_begins_with_them_and_uses_its_own_learning_rate(name, trained_runs, tmp_path):
    folder = trained_runs(name)
    weights = acting_of(checkpoints.find(folder))
    result = train(**settings(name, steps=40, **NEVER), seed=8, init_from=folder)
    assert result.learner["updates"] == 0
    assert (result.weights.flat == weights).all()
    other = train(**settings(name, steps=40, **NEVER), seed=8)
    assert (other.weights.flat != weights).any()
    if name != "gorila":
        rates = {"learning_rate": 0.5, "policy_learning_rate": 0.5, "critic_learning_rate": 0.5}
        optimizers = learner_from(name, folder, **rates)._optimizers
        assert next(iter(optimizers.values())).param_groups[0]["lr"] == 0.5


@pytest.mark.long
@pytest.mark.xdist_group("fork server")
@pytest.mark.parametrize("name", ["dqn", "gorila"])
def test_learners_and_parameter_shards_in_processes_begin_with_them(name, trained_runs):
    folder = trained_runs(name)
    weights = acting_of(checkpoints.find(folder))
    changes = {**NEVER, "num_learners": 2, "num_actors": 2, "num_parameter_shards": 2, "bundled": False}
    result = train(**settings(name, steps=40, **changes), seed=8, init_from=folder, runner="process")
    assert result.learner["updates"] == 0
    assert (result.weights.flat == weights).all()


def test_weights_of_convolutions_keep_their_places(tmp_path):
    agent = agents.find("dqn")
    spec = EnvSpec("ALE/Pong-v5", (4, 84, 84), "uint8", 6, "Discrete(6)", None, frame_stack=4, reward_bound=1.0)
    config = dataclasses.replace(agent.load_preset("ALE/Pong-v5").config, hidden=(8,))
    policy = agent.make_policy(spec, config)
    trained = TrainedPolicy(agent, "dqn", spec, config, TrainingRun(0, 0, 0, 0.0), policy, tmp_path, None)
    acting = warm_start._acting(agent, types.SimpleNamespace(env=spec, config=config), trained)
    assert (acting == policy._network.numpy()).all()


def test_weights_of_another_shape_are_refused_by_name(trained_runs):
    with pytest.raises(PolicyError, match=r"has the weight 0.layers.0.weight as float32 \(8, 4\), and this run needs"):
        learner_from("dqn", trained_runs("dqn"), hidden=(7,))
    with pytest.raises(PolicyError, match=r"has other weights than this run: it lacks .*layers\.1"):
        learner_from("dqn", trained_runs("dqn"), hidden=(8, 8))
    with pytest.raises(PolicyError, match=r"network critics has the weight layers.0.weight as float32 \(2, 4, 8\)"):
        learner_from("sac", trained_runs("sac"), critic_hidden=(7,))


def test_a_difference_in_normalisation_is_named_in_place_of_the_weights_that_it_adds(trained_runs):
    asked = settings("sac")
    topology = plan(seed=9, environment=EnvSettings(normalise_rewards=True), **asked)
    with pytest.raises(PolicyError, match=r"was trained with normalise_rewards=false; set that here, too"):
        warm_started(asked["agent"], topology, trained_runs("sac"))


def temperature_of(learner):
    return float(np.exp(learner.state_dict()["networks"]["temperature"]["log"])[0])


@pytest.mark.parametrize("name", ["sac", "cql-sac"])
def test_a_fixed_temperature_is_that_of_the_settings_and_a_learnt_one_that_of_the_trained_run(name, trained_runs):
    trained = checkpoints.load(checkpoints.find(trained_runs(name)))["learner"]["networks"]["temperature"]
    fixed = learner_from(name, trained_runs(name), initial_temperature=0.25, temperature_learning_rate=0.0)
    assert temperature_of(fixed) == pytest.approx(0.25)
    with pytest.warns(
        reverie.TrainingWarning, match=r"initial_temperature is 0.25 and has no effect: the run begins with the weig"
    ):
        learnt = learner_from(name, trained_runs(name), initial_temperature=0.25)
    assert temperature_of(learnt) == pytest.approx(float(np.exp(trained["log"])[0]))


@pytest.mark.parametrize(
    ("name", "change"),
    [("ppo", {"initial_sigma": 0.25}), ("iql", {"initial_sigma": 0.25}), ("rainbow", {"noisy_sigma": 0.25})],
)
def test_a_setting_of_initial_weights_is_noted_where_trained_weights_replace_them(
    name, change, trained_runs, tmp_path, recwarn
):
    file = reverie.load_policy(trained_runs(name)).save(tmp_path / "p.safetensors")
    learner_from(name, file)
    assert not recwarn
    with pytest.warns(reverie.TrainingWarning, match=f"{next(iter(change))} is 0.25 and has no effect"):
        learner_from(name, file, **change)


def test_the_temperature_of_the_settings_has_its_effect_with_a_file_which_has_none(trained_runs, tmp_path, recwarn):
    file = reverie.load_policy(trained_runs("sac")).save(tmp_path / "p.safetensors")
    assert temperature_of(learner_from("sac", file, initial_temperature=0.25)) == pytest.approx(0.25)
    assert not recwarn


def test_a_file_for_other_critics_fits_since_it_has_none(trained_runs, tmp_path):
    path = reverie.load_policy(trained_runs("sac")).save(tmp_path / "p.safetensors")
    assert learner_from("sac", path, critic_hidden=(7,)).version == 0


@pytest.mark.parametrize(("name", "source"), [("sac", "cql-sac"), ("dqn", "cql"), ("gorila", "dqn"), ("cql", "dqn")])
def test_a_learner_begins_with_the_weights_of_another_agent_with_the_same_policy(name, source, trained_runs, tmp_path):
    folder = trained_runs(source)
    file = reverie.load_policy(folder).save(tmp_path / "p.safetensors")
    for path in (folder, file):
        assert (learner_from(name, path).latest(-1).flat == acting_of(checkpoints.find(folder))).all()


def test_fine_tuning_without_the_conservative_term_begins_with_the_critics_too(tmp_path, networks_of):
    train(**settings("cql-sac", conservative_threshold=1.0), seed=3, folder=tmp_path)
    saved = networks_of(checkpoints.load(checkpoints.find(tmp_path))["learner"])
    warm = networks_of(learner_from("sac", tmp_path))
    assert "factor" in saved
    assert "factor" not in warm
    assert all((saved[name] == one).all() for name, one in warm.items())


def test_a_variant_begins_with_the_weights_of_the_agent_that_it_was_made_from(trained_runs, monkeypatch):
    asked = settings("dqn")
    variant = dataclasses.replace(asked["agent"], name="variant")
    topology = plan(seed=9, **asked)
    begun = warm_started(variant, topology, trained_runs("dqn"))
    learner = begun.make_learner(topology.env, topology.config, None, seed=9, watch=Stopwatch())
    assert (learner.latest(-1).flat == acting_of(checkpoints.find(trained_runs("dqn")))).all()
    other = dataclasses.replace(variant, make_policy=lambda spec, config: None)
    with pytest.raises(PolicyError, match="is of the agent dqn, and variant begins with weights of its own or of an"):
        warm_started(other, topology, trained_runs("dqn"))


def test_another_agent_a_missing_run_and_a_resume_are_refused(trained_runs, tmp_path):
    with pytest.raises(PolicyError, match="is of the agent dqn, and rainbow begins with weights of its own or of an"):
        learner_from("rainbow", trained_runs("dqn"))
    networks = r"its networks are policy, policy_target, critic, .*, and this learner's .*; its policy alone does: give"
    with pytest.raises(PolicyError, match=networks):
        learner_from("td3", trained_runs("ddpg"))
    learner_from("td3", reverie.load_policy(trained_runs("ddpg")).save(tmp_path / "p.safetensors"))
    with pytest.raises(CheckpointError, match="is missing"):
        train(**settings("dqn"), init_from=tmp_path / "nothing")
    policy = reverie.load_policy(trained_runs("dqn"))
    with pytest.raises(
        TypeError, match=r"init_from must be a path, got <TrainedPolicy of dqn .*>: save the policy to a"
    ):
        train(**settings("dqn"), init_from=policy)
    with pytest.raises(ValueError, match="init_from begins a run and resume continues one"):
        train(**settings("dqn"), init_from=trained_runs("dqn"), resume=trained_runs("dqn"))
    with pytest.raises(TypeError, match="init_from must be a path, got 7"):
        train(**settings("dqn"), init_from=7)


class Bare:
    """A learner of another package without `warm_start`."""

    def __init__(self, *arguments, **options):
        pass


def test_a_learner_of_another_package_names_what_it_lacks(trained_runs, monkeypatch, tmp_path):
    asked = settings("dqn")
    bare = dataclasses.replace(asked["agent"], make_learner=Bare)
    with pytest.raises(TypeError, match="its learner has no warm_start"):
        warm_started(bare, plan(**asked), trained_runs("dqn"))
    path = reverie.load_policy(trained_runs("dqn")).save(tmp_path / "p.safetensors")
    monkeypatch.setattr(asked["agent"].make_learner, "ACTING", ())
    with pytest.raises(TypeError, match="does not name the networks that act: set ACTING"):
        learner_from("dqn", path)
    assert learner_from("dqn", trained_runs("dqn")).version == 0


@pytest.mark.long
def test_the_command_begins_with_them_and_refuses_what_does_not_fit_before_it_makes_a_folder(
    trained_runs, tmp_path, monkeypatch
):
    testing = pytest.importorskip("typer.testing")
    from reverie.cli.app import app

    source = trained_runs("dqn")
    monkeypatch.chdir(tmp_path)
    short = ["--set", "max_env_steps=40", "--set", "learning_starts=10000", "--set", "envs_per_actor=2"]
    short += ["--set", "num_actors=1", "--no-tensorboard", "--out", "new", "--env", "CartPole-v1"]

    def run(*options):
        arguments = ["train", "dqn", *short, "--init-from", source, *options]
        return testing.CliRunner().invoke(app, [str(one) for one in arguments])

    refused = run("--set", "hidden=[7]")
    assert refused.exit_code == 2
    assert "has the weight 0.layers.0.weight as float32 (8, 4), and this run needs" in refused.stderr
    assert not (tmp_path / "new").exists()
    refused = run("--resume=must")
    assert refused.exit_code == 2
    assert "--init-from begins a run and --resume=must continues one" in refused.stderr
    result = run("--set", "hidden=[8]", "--json", "--resume")
    assert result.exit_code == 1, result.stderr
    assert "new has no run yet: a new one begins" in result.stderr
    assert json.loads(result.stdout.splitlines()[-1])["updates"] == 0
    observations = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
    values = [reverie.load_policy(one).policy.q_values(observations) for one in (source, "new")]
    assert (values[0] == values[1]).all()
