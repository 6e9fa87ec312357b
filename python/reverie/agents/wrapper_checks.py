"""Refuses wrappers of Gymnasium whose running statistics no other environment, checkpoint or policy would have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymnasium import Wrapper, wrappers
from gymnasium.vector import SyncVectorEnv, VectorWrapper
from gymnasium.wrappers import vector

from reverie.agents.env_errors import UnsupportedEnvironmentError

SETTINGS: tuple[tuple[tuple[type, type], str], ...] = (
    ((wrappers.NormalizeObservation, vector.NormalizeObservation), "normalise_observations"),
    ((wrappers.NormalizeReward, vector.NormalizeReward), "normalise_rewards"),
)
"""Wrappers, and the setting whose statistics are in the weights."""


def require_shared_statistics(env_id: str, env: object) -> None:
    """Raise `UnsupportedEnvironmentError` for a wrapper that normalises by statistics of this one object.

    `env` is an environment or a vector of them; its wrappers are looked at from the outermost to those that its
    registration names. A wrapper whose statistics are fixed (`update_running_mean = False`) is not refused.
    """
    for one in _chain(env):
        for kinds, setting in SETTINGS:
            if isinstance(one, kinds) and one.update_running_mean:  # type: ignore[attr-defined]
                raise UnsupportedEnvironmentError(
                    f"{env_id} has the wrapper {type(one).__name__}, whose running statistics are of one environment:"
                    " others, evaluations and the policy's file would not have them. Leave the wrapper out and set"
                    f" {setting}, whose statistics are in the weights"
                )


def _chain(env: Any) -> Iterator[object]:
    """The environment and those that it wraps, outermost first."""
    while True:
        yield env
        if isinstance(env, Wrapper | VectorWrapper):
            env = env.env
        elif isinstance(env, SyncVectorEnv):
            env = env.envs[0]  # all have the same wrappers
        else:
            return
