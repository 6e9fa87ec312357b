"""Goal environments that count their steps, their episodes, and an actor on a table of its own."""

import dataclasses

import gymnasium
import numpy as np
from gymnasium import spaces

import reverie
from reverie.agents import find
from reverie.agents.core import Stopwatch
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import describe
from reverie.agents.goal_functions import EpisodeStep

DQN = find("dqn")


class Counter(gymnasium.Env):
    """The place is the number of steps, whatever the action; the goal is 100. The reward is minus the distance."""

    action_space = spaces.Discrete(2)
    place = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    observation_space = spaces.Dict({"observation": place, "achieved_goal": place, "desired_goal": place})

    def __init__(self, length=4, terminates=False):
        self.length, self.terminates = length, terminates

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        over = self.steps == self.length
        reward = self.compute_reward(np.array([self.steps]), np.array([100]), {})
        return self.observe(), float(reward), over and self.terminates, over and not self.terminates, {}

    def compute_reward(self, achieved, desired, info):
        return -np.abs(np.asarray(achieved) - desired)[..., 0]

    def observe(self):
        here = np.array([self.steps], np.float32)
        return {"observation": here * 10, "achieved_goal": here, "desired_goal": np.array([100], np.float32)}


class Bounded(Counter):
    """The same, and an episode ends where the goal is achieved."""

    def compute_terminated(self, achieved, desired, info):
        assert np.shape(achieved) == (1,), "one step"
        return bool(achieved[0] == desired[0])


class Mixed(Counter):
    """Observations of several dtypes, whose goals are categories that begin at 5."""

    goal = spaces.Discrete(50, start=5)
    observation_space = spaces.Dict({"observation": Counter.place, "achieved_goal": goal, "desired_goal": goal})

    def observe(self):
        return {
            "observation": np.array([self.steps], np.float32) * 10,
            "achieved_goal": self.steps + 5,
            "desired_goal": 40,
        }

    def compute_reward(self, achieved, desired, info):
        return -np.abs(np.asarray(achieved) - desired)


for _class in (Counter, Bounded, Mixed):
    gymnasium.register(f"Reverie{_class.__name__}-v0", _class)
gymnasium.register("ReverieTerminatedCounter-v0", Counter, kwargs={"terminates": True})
COUNTER = describe("ReverieCounter-v0")


def rows(*places, goal=100.0):
    """Rows as tables have them: achieved, desired, observation."""
    return np.array([[place, goal, 10.0 * place] for place in places], np.float32)


def episode(length, *, terminated=False):
    for t in range(length):
        yield EpisodeStep(*rows(t), t % 2, t - 99.0, *rows(t + 1), terminated and t == length - 1, 7)


class Harness:
    """An actor on a table of its own whose limiter admits all."""

    def __init__(self, name, env, wrappers=(), **changes):
        agent, spec = find(name), describe(env, EnvSettings(wrappers=wrappers))
        config = dataclasses.replace(agent.load_preset(spec.env_id).config, num_actors=1, envs_per_actor=2, **changes)
        (table,) = agent.make_tables(spec, config, seed=0)
        table = table.replace(rate_limiter=reverie.rate_limiters.MinSize(1))
        self.server = reverie.Server([table], listen=False)
        self.client, self.config, self.needs = self.server.client(), config, agent.needs(config)
        made = {"seed": 0, "watch": Stopwatch()}
        learner = agent.make_learner(spec, config, self.client, **made)
        self.actor = agent.make_actor(spec, config, self.client, learner, index=0, **made)

    def act(self, times):
        for _ in range(times):
            self.actor.act()

    def items(self):
        self.actor.settle()
        self.actor._writer.flush()
        found = self.client.query("replay")
        return self.client.get("replay", found.key).data, found
