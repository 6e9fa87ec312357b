"""Gymnasium environments as the agents see them: described once, refused early, stepped in vectors."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class UnknownEnvironmentError(ValueError):
    """No environment of this id is registered. `.env_id`, `.nearest` (ids that look like it)."""

    def __init__(self, env_id: str, reason: str, nearest: tuple[str, ...]) -> None:
        self.env_id, self.nearest = env_id, nearest
        hint = f"; did you mean {' or '.join(nearest)}?" if nearest else "; `gymnasium.pprint_registry()` lists them"
        super().__init__(f"no environment {env_id!r}: {reason}{hint}")


class UnsupportedEnvironmentError(ValueError):
    """The environment exists and this agent cannot play it. The text says what would fit."""


@dataclass(frozen=True)
class EnvSpec:
    """What an agent needs to know of an environment before it makes one."""

    env_id: str
    obs_shape: tuple[int, ...]
    obs_dtype: str
    num_actions: int | None
    """None: the actions are not discrete; `action_space` says what they are."""
    action_space: str
    reward_threshold: float | None
    """Gymnasium's own mark of a solved environment."""


def describe(env_id: str) -> EnvSpec:
    """Look the environment up and make it once.

    Raises `UnknownEnvironmentError` where the id is unknown or its version is not there, and
    `UnsupportedEnvironmentError` where a package that the environment needs is missing.
    """
    try:
        env = gymnasium.make(env_id, disable_env_checker=True)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv, gymnasium.error.Error) as error:
        if isinstance(error, gymnasium.error.DependencyNotInstalled):
            raise UnsupportedEnvironmentError(f"{env_id} needs a package that is not installed: {error}") from error
        raise UnknownEnvironmentError(env_id, _lower(error), _nearest(env_id)) from error
    try:
        space, actions = env.observation_space, env.action_space
        if not isinstance(space, gymnasium.spaces.Box):
            raise UnsupportedEnvironmentError(
                f"observations of {env_id} are {space}; agents here take one array (a Box): wrap the environment with"
                " gymnasium.wrappers.FlattenObservation"
            )
        if isinstance(actions, gymnasium.spaces.Discrete) and actions.start != 0:
            raise UnsupportedEnvironmentError(f"actions of {env_id} start at {actions.start}; they must start at 0")
        threshold = env.spec.reward_threshold if env.spec is not None else None
        return EnvSpec(
            env_id=env_id,
            obs_shape=tuple(space.shape),
            obs_dtype=np.dtype(space.dtype).name,
            num_actions=int(actions.n) if isinstance(actions, gymnasium.spaces.Discrete) else None,
            action_space=str(actions),
            reward_threshold=threshold,
        )
    finally:
        env.close()


def make_one(env_id: str) -> gymnasium.Env[Any, Any]:
    """One environment, for the evaluator."""
    return gymnasium.make(env_id, disable_env_checker=True)


def make_vector(env_id: str, num_envs: int) -> SyncVectorEnv:
    """`num_envs` environments stepped one after the other in this thread, under NEXT_STEP autoreset.

    A step that ends an episode gives its true last observation; the next step of that environment ignores the action
    and gives the first observation of a new episode (Gymnasium >= 1.0).
    """
    return SyncVectorEnv([lambda: make_one(env_id)] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


def _nearest(env_id: str) -> tuple[str, ...]:
    same_namespace = [known for known in gymnasium.registry if ("/" in known) == ("/" in env_id)]
    return tuple(difflib.get_close_matches(env_id, same_namespace, n=3, cutoff=0.6))


def _lower(error: Exception) -> str:
    text = str(error).strip().rstrip(".")
    return text[:1].lower() + text[1:]
