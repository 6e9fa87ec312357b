"""A learner in a loop that steps the environment itself, as in docs/guides/an-agent-of-your-own.md, of any spaces."""

import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("torch")

import reverie
from reverie.agents import find
from reverie.agents.actions import ActionEnumeration
from reverie.agents.continuous import ActionScale
from reverie.agents.core import Stopwatch
from reverie.agents.environments import describe, make_one

NEST = spaces.Dict({"pos": spaces.Discrete(5, start=3), "speed": spaces.Box(-1, 1, (2,), np.float64)})


class Walk(gymnasium.Env):
    """Episodes of six steps, whose observations are nests with a category that counts from 3."""

    observation_space = NEST
    action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        return self.observation(), 1.0, False, self.steps >= 6, {}

    def observation(self):
        return {"pos": np.int64(3 + self.steps % 5), "speed": np.full(2, 0.1 * self.steps)}


class Drive(Walk):
    """With continuous actions whose bounds are not those of networks."""

    action_space = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 1], np.float32))


@pytest.mark.parametrize(("name", "env_class"), [("dqn", Walk), ("sac", Drive)])
def test_items_have_the_rows_of_make_one_and_actions_that_are_converted_and_the_learner_learns_from_them(
    name, env_class
):
    agent, spec = find(name), describe(env_class)
    preset = agent.load_preset("CartPole-v1" if name == "dqn" else "Pendulum-v1")
    config = dataclasses.replace(preset.config, learning_starts=20, batch_size=8)
    client = reverie.Server(agent.make_tables(spec, config, seed=0), listen=False).client()
    learner = agent.make_learner(spec, config, client, seed=0, watch=Stopwatch())
    policy, rng = agent.make_policy(spec, config), np.random.default_rng(0)
    policy.load(learner.latest(newer_than=-1))
    convert = ActionEnumeration(spec.action_sizes) if spec.num_actions is not None else ActionScale(spec)
    env = make_one(spec)
    obs, _ = env.reset(seed=0)
    assert (obs.shape, str(obs.dtype)) == (spec.obs_shape, spec.obs_dtype)
    taken = []
    with client.transition_writer("replay", n_step=1, discount=0.9, autoreset="disabled") as writer:
        for _ in range(40):
            action = policy.sample(obs[np.newaxis], rng)[0]
            taken.append(action)
            after, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            writer.append(
                obs, convert.from_env(action), reward, terminated, truncated, final_obs=after if over else None
            )
            obs = env.reset()[0] if over else after
            try:
                while True:
                    learner.learn()
            except reverie.DeadlineExceededError:
                pass
    assert learner.metrics()["updates"] > 0
    batch = client.get("replay", client.query("replay").key)
    written = convert.to_env(batch.data["action"])
    assert {tuple(np.round(one, 4)) for one in written} <= {tuple(np.round(one, 4)) for one in taken}
    assert batch.data["obs"].dtype == spec.obs_dtype
