"""Spaces and masks of actions that agents do not play as they are: what is reported, and the wrapper that helps."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("torch")

from reverie import agents
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import (
    UnsupportedEnvironmentError,
    describe,
    make_one,
    make_vector,
)
from reverie.agents.wrappers import FlatActions


class Sampled(gymnasium.Env):
    """Random observations of a space, for actions that are in the other one."""

    def __init__(self, observations, actions):
        self.observation_space, self.action_space = observations, actions

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return self.observation_space.sample(), 0.0, False, False, {}


REFUSED = {
    "Text": (spaces.Text(4), "FlattenObservation in wrappers"),
    "OneOf": (spaces.OneOf((spaces.Discrete(2), spaces.Discrete(3))), "FlattenObservation in wrappers"),
    "TextPart": (spaces.Dict(word=spaces.Text(4), x=spaces.Discrete(2)), "the part word is .*FlattenObservation"),
    "Graph": (spaces.Graph(spaces.Box(-1, 1, (2,)), None), "no fixed size; .*TransformObservation"),
    "Sequence": (spaces.Sequence(spaces.Discrete(2)), "no fixed size; .*TransformObservation"),
    "Empty": (spaces.Dict({}), "the space is .* has no numbers"),
    "Keys": (
        spaces.Dict({0: spaces.Discrete(2), 1: spaces.Discrete(2)}),
        "the space is a Dict with the key 0, and its keys must be text: name it '0'",
    ),
    "KeysOfPart": (
        spaces.Dict(hand=spaces.Dict({0: spaces.Discrete(2)})),
        "the part hand is a Dict with the key 0",
    ),
    "EmptyPart": (spaces.Dict(x=spaces.Discrete(2), y=spaces.Tuple(())), "the part y is .* has no numbers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_observations_that_no_network_reads_are_refused_with_the_wrapper_that_helps(name):
    space, words = REFUSED[name]
    env_id = f"ReverieRefused{name}-v0"
    kwargs = {"observations": space, "actions": spaces.Discrete(2)}
    gymnasium.register(env_id, Sampled, kwargs=kwargs, disable_env_checker=True)
    with pytest.raises(UnsupportedEnvironmentError, match=words):
        describe(env_id)
    if "Flatten" in words:
        flat = EnvSettings(wrappers=("gymnasium.wrappers:FlattenObservation",))
        env = make_one(describe(env_id, flat))
        assert env.reset(seed=0)[0].shape == env.observation_space.shape


def test_a_mask_of_actions_is_reported_once_for_each_environment(caplog):
    class Masked(Sampled):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)[0], {"action_mask": np.ones(2, np.int8)}

    class MaskedRow(Sampled):
        pass

    plain, row = spaces.Box(-1, 1, (2,), np.float32), spaces.Dict(action_mask=spaces.MultiBinary(2))
    for kind, space in ((Masked, plain), (MaskedRow, row), (Sampled, plain)):
        env_id, kwargs = f"Reverie{kind.__name__}-v0", {"observations": space, "actions": spaces.Discrete(2)}
        gymnasium.register(env_id, kind, kwargs=kwargs, disable_env_checker=True)
        for _ in range(2):
            make_vector(describe(env_id), 2).reset(seed=0)
    reported = [record.getMessage().split(",")[0] for record in caplog.records]
    assert reported == ["ReverieMasked-v0 has an action_mask", "ReverieMaskedRow-v0 has an action_mask"]


def test_a_mask_that_only_steps_have_in_their_info_is_reported_too(caplog):
    class MaskedLater(Sampled):
        def step(self, action):
            return (*super().step(action)[:4], {"action_mask": np.ones(2, np.int8)})

    kwargs = {"observations": spaces.Box(-1, 1, (2,), np.float32), "actions": spaces.Discrete(2)}
    gymnasium.register("ReverieMaskedLater-v0", MaskedLater, kwargs=kwargs, disable_env_checker=True)
    envs = make_vector(describe("ReverieMaskedLater-v0"), 2)
    envs.reset(seed=0)
    for _ in range(2):
        envs.step(np.array([0, 1]))
    reported = [record.getMessage().split(",")[0] for record in caplog.records]
    assert reported == ["ReverieMaskedLater-v0 has an action_mask"]


NESTED_ACTIONS = {
    "Numbers": spaces.Dict(
        arm=spaces.Tuple((spaces.Box(-1, 2, (2, 2), np.float32), spaces.Box(0, 1, (), np.float32))),
        leg=spaces.Box(-3, 3, (1,), np.float32),
    ),
    "Choices": spaces.Tuple(
        (spaces.Discrete(3, start=4), spaces.MultiBinary(2), spaces.MultiDiscrete([[2, 3], [4, 5]], dtype=np.int32))
    ),
    "Axes": spaces.Box(-1, 1, (2, 3), np.float32),
    "Grid": spaces.MultiBinary((2, 2)),
}


@pytest.mark.parametrize(("name", "agent"), [("Numbers", "td3"), ("Choices", "ppo"), ("Axes", "ppo"), ("Grid", "dqn")])
def test_a_nest_of_actions_is_played_as_one_vector_with_the_wrapper_that_the_error_names(name, agent):
    env_id, actions = f"ReverieNested{name}-v0", NESTED_ACTIONS[name]
    kwargs = {"observations": spaces.Box(-1, 1, (2,), np.float32), "actions": actions}
    gymnasium.register(env_id, Sampled, kwargs=kwargs, disable_env_checker=True)
    with pytest.raises(UnsupportedEnvironmentError, match=r"reverie\.agents\.wrappers:FlatActions in wrappers"):
        agents.find(agent).check(describe(env_id))
    spec = describe(env_id, EnvSettings(wrappers=("reverie.agents.wrappers:FlatActions",)))
    agents.find(agent).check(spec)
    env = make_one(spec)
    env.action_space.seed(0)
    env.reset(seed=0)
    for _ in range(20):
        env.step(env.action_space.sample())


def test_the_parts_of_a_flat_action_are_in_the_order_of_the_space():
    env = FlatActions(Sampled(spaces.Discrete(2), NESTED_ACTIONS["Numbers"]))
    assert env.action_space.low.tolist() == [-1, -1, -1, -1, 0, -3]
    action = env.action(np.arange(6, dtype=np.float32) / 6)
    assert np.array_equal(action["arm"][0], np.float32([[0, 1], [2, 3]]) / 6)
    assert (action["arm"][1], action["leg"].tolist()) == (np.float32(4 / 6), [np.float32(5 / 6)])
    env = FlatActions(Sampled(spaces.Discrete(2), NESTED_ACTIONS["Choices"]))
    assert env.action_space.nvec.tolist() == [3, 2, 2, 2, 3, 4, 5]
    first, second, third = env.action(np.array([2, 1, 0, 1, 2, 3, 4]))
    assert (first, second.tolist(), third.tolist()) == (6, [1, 0], [[1, 2], [3, 4]])
    assert [one.dtype for one in (first, second, third)] == [np.int64, np.int8, np.int32]


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (2,))))])
def test_numbers_and_choices_together_are_refused_with_what_to_write(space):
    env_id = f"ReverieMixed{type(space).__name__}-v0"
    kwargs = {"observations": spaces.Discrete(2), "actions": space}
    gymnasium.register(env_id, Sampled, kwargs=kwargs, disable_env_checker=True)
    with pytest.raises(UnsupportedEnvironmentError, match="a function of yours that returns"):
        describe(env_id)
    with pytest.raises(UnsupportedEnvironmentError, match=r"cannot wrap .*Boxes of floats alone, or Discrete"):
        describe(env_id, EnvSettings(wrappers=("reverie.agents.wrappers:FlatActions",)))
