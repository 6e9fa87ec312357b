"""Agents of continuous actions learn a task of seconds; the shipped presets on Pendulum-v1 are in `make test-all`."""

import dataclasses

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.runners import train


class Drift(gymnasium.Env):
    """A place in [-1, 1], moved by the previous action; the reward of a step is minus the distance from 0.

    No reward depends on the action of its own step: an agent without bootstrapping learns nothing.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.move, self.steps = self.np_random.uniform(-1, 1), 0.0, 0
        return self.observe(), {}

    def observe(self):
        return np.array([self.place, self.move], np.float32)

    def step(self, action):
        self.steps += 1
        self.place = float(np.clip(self.place + 0.3 * self.move, -1, 1))
        self.move = float(action[0]) / 2
        return self.observe(), -abs(self.place), False, self.steps == 20, {}


gymnasium.register("ReverieDrift-v0", Drift)


@pytest.mark.long
@pytest.mark.parametrize("name", ["apex-dpg", "ddpg", "sac", "td3"])
def test_agents_of_continuous_actions_learn_to_move_to_a_place_and_stay(name):
    """Rates are the presets', networks are smaller. The best mean return is about -1, random actions have -9."""
    agent = agents.find(name)
    preset = agent.load_preset("Pendulum-v1")
    sizes = {"policy_hidden": (32,), "critic_hidden": (32,), "batch_size": 64, "samples_per_insert": 64.0}
    begin = {"learning_starts": 200, "random_steps": 200}
    changes = {key: value for key, value in {**sizes, **begin}.items() if hasattr(preset.config, key)}
    run = dataclasses.replace(
        preset.run,
        target_return=-2.5,
        max_env_steps=5_000,
        evaluate_every=200,
        screening_episodes=5,
        confirmation_episodes=20,
        compile="off",
    )
    result = train(agent, "ReverieDrift-v0", config=dataclasses.replace(preset.config, **changes), run=run, seed=1)
    assert result.confirmed, [point.mean_return for point in result.curve]
