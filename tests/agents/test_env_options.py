"""Ids of environments with options of `gymnasium.make`."""

import dataclasses

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch")

import reverie
from reverie import agents
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import (
    UnknownEnvironmentError,
    UnsupportedEnvironmentError,
    describe,
    make_one,
    make_vector,
)
from reverie.agents.presets import PresetError
from reverie.runners import train

STILL = "FrozenLake-v1(is_slippery=False)"
DQN = agents.find("dqn")


def test_options_reach_every_environment_of_a_run():
    spec = describe(STILL)
    assert spec.env_id == STILL
    assert spec.reward_threshold == describe("FrozenLake-v1").reward_threshold
    assert not make_one(spec).get_wrapper_attr("spec").kwargs["is_slippery"]
    assert "is_slippery" not in make_one("FrozenLake-v1").get_wrapper_attr("spec").kwargs
    assert [one.spec.kwargs["is_slippery"] for one in make_vector(spec, 2).envs] == [False, False]
    assert describe('FrozenLake-v1(map_name="8x8", is_slippery=False)').leaves[0].sizes == (64,)
    named = "gymnasium.envs.toy_text:FrozenLake-v1(is_slippery=False)"
    assert not make_one(describe(named)).get_wrapper_attr("spec").kwargs["is_slippery"]


def test_settings_come_from_the_environment_without_its_options():
    assert DQN.load_preset("CartPole-v1(sutton_barto_reward=True)").config == DQN.load_preset("CartPole-v1").config


def test_a_policy_has_the_options_of_its_environment(tmp_path):
    preset = DQN.load_preset(STILL)
    config = dataclasses.replace(preset.config, learning_starts=20, hidden=(8,))
    run = dataclasses.replace(preset.run, max_env_steps=40, evaluate_every=40, screening_episodes=1)
    train(DQN, STILL, config=config, run=run, folder=tmp_path)
    path = reverie.load_policy(tmp_path).save(tmp_path / "policy.safetensors")
    assert reverie.load_policy(path).spec.env_id == STILL


@pytest.mark.parametrize(
    ("env_id", "error", "reason"),
    [
        ("FrozenLake-v1(1)", UnknownEnvironmentError, r"options are malformed: write FrozenLake-v1\(name=3\)"),
        ("FrozenLake-v1(is_slippery=", UnknownEnvironmentError, "options are malformed"),
        ("FrozenLake-v1(render_mode='human')", UnsupportedEnvironmentError, "sets render_mode, which the run sets"),
        ("FrozenLake-v1(slippery=1)", UnsupportedEnvironmentError, "cannot be made: TypeError: .*slippery"),
        (
            "FrozenLake(is_slippery=False)",
            UnknownEnvironmentError,
            "its id has no version; did you mean FrozenLake",
        ),
        ("FrozenLaki-v1(is_slippery=False)", UnknownEnvironmentError, r"not registered; did you mean FrozenLake-v1"),
        ("ALE/Pong-v5(mode=1)", UnsupportedEnvironmentError, r"has options, and Atari games take none here"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(env_id, error, reason):
    with pytest.raises(error, match=reason):
        describe(env_id)


class Chosen(gymnasium.Env):
    """Counts its actions from `start`, and returns them as the reward."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, space):
        self.action_space = space

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(np.asarray(action, self.action_space.dtype)), action
        return np.zeros(2, np.float32), float(np.sum(action)), False, False, {}


@pytest.mark.parametrize(
    ("space", "plain", "action", "reward"),
    [
        (gymnasium.spaces.Discrete(3, start=1), "Discrete(3)", 2, 3.0),
        (gymnasium.spaces.MultiDiscrete([2, 3], start=[5, 7]), "MultiDiscrete([2 3])", [1, 2], 15.0),
    ],
)
def test_choices_that_do_not_start_at_0_are_played_by_the_wrapper_that_the_refusal_names(space, plain, action, reward):
    gymnasium.register("ReverieChosen-v0", lambda: Chosen(space))
    try:
        with pytest.raises(UnsupportedEnvironmentError, match=r"0: name .*FromZero in wrappers") as caught:
            describe("ReverieChosen-v0")
        (named,) = (word.rstrip(",") for word in str(caught.value).split() if word.startswith("reverie."))
        spec = describe("ReverieChosen-v0", EnvSettings(wrappers=(named,)))
        assert spec.action_space == plain
        made = make_one(spec)
        made.reset(seed=1)
        assert made.step(np.array(action))[1] == reward
        vector = make_vector(spec, 2)
        vector.reset(seed=1)
        assert vector.step(np.array([action, action]))[1].tolist() == [reward, reward]
    finally:
        del gymnasium.registry["ReverieChosen-v0"]


def test_the_wrapper_of_choices_refuses_other_actions():
    with pytest.raises(UnsupportedEnvironmentError, match=r"ActionsFromZero' cannot wrap .* have no start"):
        describe("Pendulum-v1", EnvSettings(wrappers=("reverie.agents.wrappers:ActionsFromZero",)))


def test_an_environment_that_only_another_process_has_registered_is_named_with_what_to_do():
    gymnasium.register("ReverieMain-v0", entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv")
    spec = describe("ReverieMain-v0")
    del gymnasium.registry["ReverieMain-v0"]
    with pytest.raises(UnknownEnvironmentError, match=r"not registered in this process.* as module:ReverieMain-v0$"):
        make_vector(spec, 1)


class Sized(gymnasium.Env):
    """An environment with an option."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size=1, wind=0.0):
        self.size, self.wind = size, wind


@pytest.mark.parametrize(
    ("env", "options", "env_id"),
    [
        ("FrozenLake-v1", {"is_slippery": False}, STILL),
        (STILL, {"map_name": "8x8"}, "FrozenLake-v1(is_slippery=False, map_name='8x8')"),
        ("CartPole-v1", {"sutton_barto_reward": "True"}, "CartPole-v1(sutton_barto_reward=True)"),
        (Sized, {"size": 3}, f"{__name__}:Sized(size=3)"),
        (f"{__name__}:Sized(wind=0.5)", {"size": 3}, f"{__name__}:Sized(wind=0.5, size=3)"),
    ],
)
def test_an_option_of_the_environment_that_is_given_as_a_setting_is_named_with_the_id_that_has_it(env, options, env_id):
    (name,) = options
    with pytest.raises(PresetError) as caught:
        train(DQN, env, **options)
    assert str(caught.value) == (
        f"dqn has no setting {name!r}: it is an option of the environment, so give the id {env_id}"
    )


@pytest.mark.parametrize("name", ["no_such_option", "render_mode"])
def test_other_names_are_no_options_of_the_environment(name):
    with pytest.raises(PresetError, match=f"^dqn has no setting {name!r}; known are "):
        train(DQN, Sized, **{name: 3})


def test_atari_games_take_no_options_and_none_is_advised():
    gymnasium.register_envs(pytest.importorskip("ale_py"))
    with pytest.raises(PresetError, match=r"^dqn has no setting 'difficulty'; known are "):
        train(DQN, "ALE/Pong-v5", difficulty=1)
