"""The environment that a loaded policy plays is that of its run's evaluations."""

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch")

import reverie
from reverie.agents.environments import UnsupportedEnvironmentError
from reverie.runners import Evaluator

SHORT = {"max_env_steps": 60, "learning_starts": 20, "evaluate_every": 60, "target_return": None, "compile": "off"}


class Shifted(gymnasium.ObservationWrapper):
    """Observations plus `by`."""

    def __init__(self, env, by=100.0):
        super().__init__(env)
        self.by, space = by, env.observation_space
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, space.shape, np.float32)

    def observation(self, observation):
        return (observation + self.by).astype(np.float32)


class Split(gymnasium.ObservationWrapper):
    """Observations as a dict."""

    def __init__(self, env):
        super().__init__(env)
        box = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.observation_space = gymnasium.spaces.Dict(place=box, speed=box)

    def observation(self, observation):
        return {"place": observation[::2], "speed": observation[1::2]}


def played(policy, env, seed):
    """The return of an episode."""
    total, over = 0.0, False
    observation, _ = env.reset(seed=seed)
    while not over:
        assert observation.shape == policy.spec.obs_shape
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        total, over = total + reward, terminated or truncated
    return total


def test_a_policy_makes_its_environment_with_the_wrappers_limit_and_stack_of_its_run(tmp_path):
    made = {"wrappers": [Shifted], "time_limit": 7, "frame_stack": 2}
    policy = reverie.train("dqn", "CartPole-v1", **SHORT, **made).policy
    file = reverie.load_policy(policy.save(tmp_path / "policy.safetensors"))
    env = file.make_env(render_mode="rgb_array")
    observation, _ = env.reset(seed=3)
    plain = gymnasium.make("CartPole-v1").reset(seed=3)[0]
    np.testing.assert_allclose(observation, np.stack([plain + 100, plain + 100]), rtol=1e-6)
    assert env.render().shape[2] == 3
    assert played(file, env, 4) == 7
    env.close()


def test_it_is_the_environment_of_evaluations(tmp_path):
    made = {"wrappers": [Shifted], "evaluation_wrappers": [f"{__name__}:Shifted(by=1.0)"]}
    policy = reverie.train("dqn", "CartPole-v1", **SHORT, **made).policy
    env = policy.make_env()
    assert abs(float(env.reset(seed=1)[0][0]) - 1) < 0.1
    evaluator = Evaluator(policy.spec, num_envs=1)
    assert evaluator.evaluate(policy, seeds=[5]).mean_return == played(policy, env, 5)
    evaluator.close()
    env.close()


def test_observations_that_are_nests_come_as_the_rows_that_the_policy_reads():
    policy = reverie.train("dqn", "CartPole-v1", **SHORT, wrappers=[Split]).policy
    env = policy.make_env()
    assert played(policy, env, 1) > 0
    env.close()


def test_a_vector_of_environments_is_drawn_in_pictures_only():
    policy = reverie.train("dqn", "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv", **SHORT).policy
    with pytest.raises(UnsupportedEnvironmentError, match="render_mode is 'human'"):
        policy.make_env("human")
    assert played(policy, policy.make_env(), 1) > 0


class FromStarts(gymnasium.Env):
    """Categories of a space with starts; the reward is the first of them."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, space=None):
        self.observation_space = gymnasium.spaces.MultiDiscrete([3, 4], start=[1, 2], dtype=np.int32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action):
        seen = self._observe()
        return seen, float(np.ravel(seen)[0]), self.np_random.random() < 0.2, False, {}

    def _observe(self):
        low = np.asarray(self.observation_space.start)
        size = getattr(self.observation_space, "nvec", getattr(self.observation_space, "n", None))
        return np.asarray(low + self.np_random.integers(0, size), np.int32)


class FromMinusTwo(FromStarts):
    """A single category, from -2 on."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Discrete(5, start=-2)


@pytest.mark.parametrize("made", [FromStarts, FromMinusTwo])
@pytest.mark.parametrize("stack", [None, 2])
def test_categories_count_from_their_starts_in_each_dtype_and_from_the_policys_own_environment(made, stack, tmp_path):
    policy = reverie.train("dqn", made, **SHORT, frame_stack=stack).policy
    policy = reverie.load_policy(policy.save(tmp_path / "policy.safetensors"))
    (leaf,) = policy.spec.leaves
    rng, frames = np.random.default_rng(0), () if stack is None else (stack,)
    sizes, starts = np.reshape(leaf.sizes, leaf.shape), np.reshape(leaf.starts, leaf.shape)
    own = starts + rng.integers(0, sizes, (8, *frames, *leaf.shape))
    wanted = policy.policy.q_values_in_rewards((own - starts).reshape(8, *policy.spec.obs_shape).astype(np.int32), None)
    for dtype in (np.int64, np.int32, np.int16):
        np.testing.assert_allclose(policy.q_values(own.astype(dtype)), wanted, rtol=1e-6)
        np.testing.assert_allclose(policy.q_values(own[:1].astype(dtype)), wanted[:1], rtol=1e-5)
        np.testing.assert_allclose(policy.q_values(own[0].astype(dtype)), wanted[0], rtol=1e-5)
    env = policy.make_env()
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    assert observation.shape == own[0].shape
    np.testing.assert_array_equal(np.ravel(observation)[-leaf.count :], np.ravel(made_at(made, 1)))


def made_at(made, seed):
    """The first observation from a seed."""
    return made().reset(seed=seed)[0]


def test_a_function_of_the_evaluators_rows_can_call_a_policy_of_categories_with_starts():
    policy = reverie.train("dqn", FromStarts, **SHORT).policy
    evaluator, seeds = Evaluator(policy.spec, num_envs=2), [1, 2]
    seen = []

    def play(observations):
        seen.append([policy.q_values(observations), policy.policy.q_values_in_rewards(np.array(observations), None)])
        return policy(observations)

    assert evaluator.evaluate(play, seeds).returns == evaluator.evaluate(policy, seeds).returns
    for ours, of_rows in seen:
        np.testing.assert_array_equal(ours, of_rows)
    evaluator.close()
