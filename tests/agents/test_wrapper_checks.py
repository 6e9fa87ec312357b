"""Wrappers that normalise by statistics of one environment object are refused."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

pytest.importorskip("torch")

from reverie import agents
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import UnsupportedEnvironmentError, describe
from reverie.runners import plan

NORMALISED = "gymnasium.wrappers:NormalizeObservation"
gymnasium.register(
    "ReverieNormalisedInside-v0",
    entry_point=lambda: gymnasium.wrappers.FlattenObservation(
        gymnasium.wrappers.NormalizeReward(gymnasium.make("CartPole-v1"))
    ),
)


def fixed(env):
    wrapped = gymnasium.wrappers.NormalizeObservation(env)
    wrapped.update_running_mean = False
    return wrapped


def normalised_each(num_envs):
    """A vector whose environments normalise."""
    make = lambda: gymnasium.wrappers.NormalizeObservation(gymnasium.make("CartPole-v1"))  # noqa: E731
    return SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


@pytest.mark.parametrize(
    ("env_id", "wrappers", "named", "setting"),
    [
        ("CartPole-v1", (NORMALISED,), "NormalizeObservation", "normalise_observations"),
        (
            "CartPole-v1",
            ("gymnasium.wrappers:NormalizeReward(gamma=0.9)", "gymnasium.wrappers:FlattenObservation"),
            "NormalizeReward",
            "normalise_rewards",
        ),
        ("ReverieNormalisedInside-v0", (), "NormalizeReward", "normalise_rewards"),
        (
            "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv",
            ("gymnasium.wrappers.vector:NormalizeObservation",),
            "NormalizeObservation",
            "normalise_observations",
        ),
        (
            "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv",
            ("gymnasium.wrappers.vector:NormalizeReward",),
            "NormalizeReward",
            "normalise_rewards",
        ),
        (f"{__name__}:normalised_each", (), "NormalizeObservation", "normalise_observations"),
    ],
)
def test_a_wrapper_with_running_statistics_is_refused_with_the_setting_to_use(env_id, wrappers, named, setting):
    with pytest.raises(UnsupportedEnvironmentError, match=f"has the wrapper {named}.*Leave .* out and set {setting}"):
        plan(agents.find("dqn"), env_id, environment=EnvSettings(wrappers=wrappers))


def test_it_is_refused_for_evaluations_too():
    with pytest.raises(UnsupportedEnvironmentError, match="NormalizeObservation"):
        describe("CartPole-v1", EnvSettings(evaluation_wrappers=(NORMALISED,)))


def test_statistics_that_are_fixed_are_not_refused():
    spec = describe("CartPole-v1", EnvSettings(wrappers=(f"{__name__}:fixed",)))
    assert spec.obs_shape == (4,)
    assert np.dtype(spec.obs_dtype) == np.float32
