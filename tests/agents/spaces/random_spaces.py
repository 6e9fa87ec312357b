"""Environments with random observations of every kind of space, and a batch that an agent writes from one."""

import dataclasses

import gymnasium
import numpy as np
from gymnasium import spaces

import reverie
from reverie.agents.core import Stopwatch
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import describe

NEST = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (16, 16, 3), np.uint8),
        "joints": spaces.Tuple((spaces.Box(-2, 2, (2,), np.float64), spaces.Discrete(3, start=5))),
        "switches": spaces.MultiBinary(4),
    }
)


class Anything(gymnasium.Env):
    """Random observations of a space. The reward is 1 where the action's first part is 1, else 0."""

    def __init__(self, observations, actions, length=6, scale=1.0):
        self.observation_space, self.action_space, self.length, self.scale = observations, actions, length, scale

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(np.asarray(action, self.action_space.dtype)), action
        self.steps += 1
        reward = self.scale * float(np.ravel(action)[0] == 1)
        return self.observation_space.sample(), reward, False, self.steps == self.length, {}


BOX = spaces.Box(-1, 1, (2,), np.float32)
SPACES = {
    "Nest": (NEST, spaces.Discrete(2)),
    "NestSteered": (NEST, spaces.Box(-1, 1, (2,), np.float32)),
    "Choices": (BOX, spaces.MultiDiscrete([2, 3])),
    "Switches": (BOX, spaces.MultiBinary(3)),
    "ManyChoices": (BOX, spaces.MultiDiscrete([11, 10, 10])),
    "Grid": (spaces.Box(0, 1, (10, 10, 4), np.bool_), spaces.Discrete(3)),
    "Grey": (spaces.Box(0, 255, (12, 14), np.uint8), spaces.Discrete(2)),
    "Colour": (spaces.Box(0, 255, (40, 44, 3), np.uint8), spaces.Discrete(2)),
    "Number": (spaces.Discrete(5), spaces.Discrete(2)),
    "Sequence": (spaces.Sequence(BOX), spaces.Discrete(2)),
    "Shifted": (BOX, spaces.MultiDiscrete([2, 2], start=[1, 0])),
}
for _name, (_observations, _actions) in SPACES.items():
    gymnasium.register(f"Reverie{_name}-v0", Anything, kwargs={"observations": _observations, "actions": _actions})
gymnasium.register("ReverieLoud-v0", Anything, kwargs={"observations": BOX, "actions": spaces.Discrete(2), "scale": 50})


def id_of(name):
    return f"Reverie{name}-v0"


def table_of(name, agent, **settings):
    """The columns of a batch that an actor of the agent has written."""
    spec = describe(id_of(name), EnvSettings(**settings))
    config = dataclasses.replace(
        agent.load_preset(spec.env_id).config, num_actors=1, envs_per_actor=2, learning_starts=4
    )
    if hasattr(config, "random_hold"):
        config = dataclasses.replace(config, random_hold=1.0)  # so that few steps have many actions
    with reverie.Server(agent.make_tables(spec, config, seed=0), listen=False) as server:
        client = server.client()
        learner = agent.make_learner(spec, config, client, seed=0, watch=Stopwatch())
        actor = agent.make_actor(spec, config, client, learner, index=0, seed=0, watch=Stopwatch())
        needs = agent.needs(config)
        for _ in range(40):
            if client.can_insert("replay", needs.inserts_per_act):
                actor.act()
        actor.settle()
        batch = client.sample_batch("replay", 16, timeout=5)
        learner.learn()
        actor.close()
    return spec, batch.data, learner, actor
