"""Trained policies: their actions are the evaluator's, and wrong observations are refused by name."""

import dataclasses
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from small_policies import FRAMES, first, observations, trained, untrained

safetensors = pytest.importorskip("safetensors")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents import environments  # noqa: E402


@pytest.fixture(scope="module")
def trained_runs(tmp_path_factory):
    """Runs of every agent, trained at the first request: `folder, result, evaluator = trained_runs(name)`."""
    known = {}

    def run(name):
        if name not in known:
            folder = tmp_path_factory.mktemp(name)
            known[name] = (folder, *trained(name, folder))
        return known[name]

    return run


def test_the_error_of_a_process_without_the_environment_of_a_run_names_the_file_that_needs_none(tmp_path):
    env_id = "ReverieElsewhere-v0"
    gymnasium.register(env_id, "gymnasium.envs.classic_control:CartPoleEnv")
    settings = {"max_env_steps": 40, "learning_starts": 20, "target_return": None, "compile": "off"}
    result = reverie.train("dqn", env_id, folder=tmp_path / "run", **settings)
    result.policy.save(tmp_path / "policy.safetensors")
    spec = gymnasium.registry.pop(env_id)
    with pytest.raises(
        environments.UnknownEnvironmentError, match=f"no environment '{env_id}': .* registers it"
    ) as told:
        reverie.load_policy(tmp_path / "run")
    assert "the .safetensors file that `save` of the policy writes is loaded without the environment" in str(told.value)
    assert reverie.load_policy(tmp_path / "policy.safetensors")(np.zeros(4, np.float32)).shape == ()
    gymnasium.register(env_id, "no_such_simulator:Env")
    with pytest.raises(ValueError, match="is loaded without the environment"):
        reverie.load_policy(tmp_path / "run")
    gymnasium.registry.pop(env_id)
    assert spec.id == env_id


@pytest.mark.long
@pytest.mark.parametrize("name", agents.BUILT_IN)
def test_the_policy_of_a_run_acts_as_its_evaluator(name, trained_runs, tmp_path):
    folder, result, evaluator = trained_runs(name)
    policy = reverie.load_policy(folder)
    obs = observations(policy.spec, 32)
    assert evaluator.module is not policy.module
    assert result.learner["updates"] > 0
    expected = evaluator(obs)
    for one in (policy, reverie.load_policy(policy.path), reverie.load_policy(policy.save(tmp_path / "p.safetensors"))):
        actions = first(one, obs)
        assert actions.dtype == expected.dtype
        assert (actions == expected).all()
        assert (one.run.seed, one.run.env_steps, one.run.updates) == (3, result.env_steps, result.weights.version)
        assert one.spec == policy.spec
        assert one.config == policy.config == result.topology.config


@pytest.mark.parametrize("name", agents.BUILT_IN)
def test_one_observation_gives_the_action_of_a_batch_of_one(name, trained_runs):
    policy = reverie.load_policy(trained_runs(name)[0])
    (obs,) = observations(policy.spec, 1)
    alone, batch = first(policy, obs), first(policy, obs[None])
    assert (alone == batch[0]).all()
    assert alone.shape == ((policy.spec.action_size,) if policy.spec.action_size else ())
    assert first(policy, np.empty((0, *policy.spec.obs_shape), np.float32)).shape[0] == 0


@pytest.mark.parametrize("name", agents.BUILT_IN)
def test_the_seed_decides_sampled_actions_and_greedy_ones_use_no_random_numbers(name, trained_runs):
    folder = trained_runs(name)[0]
    one, same, other = (reverie.load_policy(folder, seed=seed) for seed in (5, 5, 6))
    obs = observations(one.spec, 2_000)
    first(same, obs)
    sampled = first(one, obs, greedy=False)
    assert (sampled == first(same, obs, greedy=False)).all()
    assert (sampled != first(other, obs, greedy=False)).any()
    assert (sampled != first(one, obs)).any()
    assert sampled.dtype == first(one, obs).dtype
    if one.spec.action_size:
        assert (sampled >= np.array(one.spec.action_low)).all()
        assert (sampled <= np.array(one.spec.action_high)).all()


def test_sampled_actions_follow_the_exploration_settings_of_an_agent():
    never, always = untrained(epsilon_end=0.0), untrained(epsilon_end=1.0)
    obs = observations(never.spec, 4_000)
    assert (never(obs, greedy=False) == never(obs)).all()
    # Five standard deviations of a count of coin tosses.
    assert abs((always(obs, greedy=False) == 0).sum() - 2_000) < 5 * np.sqrt(1_000)
    quiet = untrained("td3", noise_sigma=0.0)
    obs = observations(quiet.spec, 8)
    assert (quiet(obs, greedy=False) == quiet(obs)).all()


def test_an_observation_of_another_shape_or_kind_is_refused_and_of_its_kind_converted():
    policy = untrained()
    obs = observations(policy.spec, 3)
    assert (policy(obs.astype(np.float64)) == policy(obs)).all()
    assert (policy(obs.tolist()) == policy(obs)).all()
    for shape in ((), (3,), (2, 5), (1, 2, 4)):
        with pytest.raises(ValueError, match=r"observations have shape .*, and this policy takes \(4,\), or a batch"):
            policy(np.zeros(shape, np.float32))
    with pytest.raises(TypeError, match="observations are complex64, and this policy takes float32"):
        policy(np.zeros(4, np.complex64))
    with pytest.raises(TypeError, match="observations are float32, and this policy takes uint8"):
        untrained("dqn", FRAMES)(np.zeros((4, 84, 84), np.float32))


@pytest.mark.parametrize("number", [np.nan, -np.inf, 1e300])
def test_an_observation_that_is_not_finite_is_refused_as_that_of_an_environment(number, recwarn):
    policy, wrong = untrained(), np.zeros((3, 4))
    wrong[1:, 2] = number
    with pytest.raises(ValueError, match=r"^observation 1 has (nan|-?inf), and a policy takes finite numbers"):
        policy(wrong)
    with pytest.raises(ValueError, match=r"^the observation has (nan|-?inf), and"):
        policy(wrong[1])
    assert not recwarn.list, "the conversion to infinity has no warning of its own"


def test_an_observation_that_the_dtype_of_the_policy_cannot_hold_is_refused():
    wrong = np.zeros((4, 84, 84), np.uint16)
    policy = untrained("dqn", FRAMES)
    policy(wrong)
    wrong[0, 0, 0] = 256
    with pytest.raises(ValueError, match="the observation has the number 256, which uint8 of this policy cannot hold"):
        policy(wrong)


def test_read_only_and_reversed_observations_are_taken(recwarn):
    policy = untrained()
    obs = observations(policy.spec, 3)
    obs.setflags(write=False)
    assert (policy(obs[::-1]) == policy(obs)[::-1]).all()
    assert list(recwarn) == []


def test_a_policy_is_shown_in_one_line(tmp_path):
    policy = untrained()
    assert repr(policy) == "<TrainedPolicy of dqn on CartPole-v1: 2 steps, 3 updates>"
    path = policy.save(tmp_path / "p.safetensors")
    assert repr(reverie.load_policy(path)) == f"<TrainedPolicy of dqn on CartPole-v1: 2 steps, 3 updates, from {path}>"


class Bare:
    """A policy of another package that has only what the evaluator needs."""

    def load(self, weights):
        pass

    def __call__(self, observations):
        return np.zeros(len(observations), np.int64)


def test_a_policy_without_a_network_acts_and_what_it_lacks_is_named(tmp_path):
    policy = dataclasses.replace(untrained(), policy=Bare())
    obs = observations(policy.spec, 4)
    assert (policy(obs) == 0).all()
    with pytest.raises(TypeError, match=r"the policy of agent dqn has no sample; reverie\.agents\.core\.Policy"):
        policy(obs, greedy=False)
    with pytest.raises(TypeError, match="the policy of agent dqn has no module"):
        policy.save(tmp_path / "p.safetensors")


@pytest.mark.parametrize("arguments", [{"seed": -1}, {"seed": 1.5}, {"path": 7}])
def test_bad_arguments_are_refused_by_name(tmp_path, arguments):
    with pytest.raises((TypeError, ValueError), match=next(iter(arguments))):
        reverie.load_policy(**{"path": tmp_path, **arguments})


@pytest.mark.long
def test_without_pytorch_the_extra_is_named():
    code = (
        "import sys, importlib.util as util, reverie, reverie.policies as p\n"
        "p.find_spec = lambda name: None if name == 'torch' else util.find_spec(name)\n"
        "try: reverie.load_policy('x')\nexcept ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.strip() == 'reverie.load_policy needs torch: pip install "reverie[agents]"'
