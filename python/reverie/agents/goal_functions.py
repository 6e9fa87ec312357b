"""The functions of a goal environment that reward other goals, and the check that its steps follow them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import NDArray

from reverie._goals import rewards_from
from reverie.agents.action_dtypes import ActionsOfSpace
from reverie.agents.env_errors import UnsupportedEnvironmentError
from reverie.agents.error_places import place_of, warn
from reverie.agents.first_step import FirstStepChecked
from reverie.agents.observations import AsRows
from reverie.agents.wrappers import ActionsFromZero, FlatActions


class EpisodeStep(NamedTuple):
    """A step of an episode."""

    obs: NDArray[Any]
    action: Any
    reward: float
    """The reward that the environment returned."""
    next_obs: NDArray[Any]
    terminated: bool
    weights_version: int


class GoalFunctions(NamedTuple):
    """The methods of an environment that depend on goals."""

    reward: Callable[[Any, Any, Any], Any]
    """`compute_reward(achieved_goals, desired_goals, infos)`, of arrays `[N, ...]`."""
    terminated: Callable[[Any, Any, Any], Any] | None
    """`compute_terminated(achieved_goal, desired_goal, info)` of one step, if the environment has it."""
    wrappers: tuple[str, ...] = ()
    """The wrappers of the environment, which may change rewards; the outermost is the first."""

    env_id: str = "the environment"
    """The environment's name in errors."""

    def rewards(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.float32]:
        """The rewards `[N]` of goals `[N, ...]`.

        Raises `UnsupportedEnvironmentError` if the function raises, or does not return one finite number for each.
        """
        infos: list[dict[str, Any]] = [{} for _ in achieved]
        try:
            returned = self.reward(achieved, desired, infos)
        except Exception as error:
            raise self._raised("compute_reward", "arrays [N, ...] of goals and a list of empty infos", error) from error
        try:
            return rewards_from(returned, achieved, desired)
        except (TypeError, ValueError) as error:
            raise UnsupportedEnvironmentError(f"her is set, and {self.env_id} cannot be relabelled: {error}") from error

    def ends(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Whether steps that achieved goals `[N, ...]` terminate, `[N]`; None without `compute_terminated`.

        Raises `UnsupportedEnvironmentError` if the function raises, or does not return true or false.
        """
        if self.terminated is None:
            return None
        try:
            return np.array([bool(self.terminated(a, d, {})) for a, d in zip(achieved, desired, strict=True)])
        except Exception as error:
            raise self._raised("compute_terminated", "two goals and an empty info", error) from error

    def _raised(self, method: str, arguments: str, error: Exception) -> UnsupportedEnvironmentError:
        return UnsupportedEnvironmentError(
            f"her is set, and {method} of {self.env_id} cannot be used: {place_of(error)}; it is called with"
            f" {arguments}"
        )


def goal_functions(envs: Any, env_id: str) -> GoalFunctions:
    """The methods of the first one of a vector of environments. Raises `UnsupportedEnvironmentError` without them."""
    made, wrappers = getattr(envs, "envs", ()), []
    while isinstance(made, VectorWrapper):
        wrappers.append(type(made).__name__)
        made = made.env
    if isinstance(made, VectorEnv):
        made = getattr(made, "envs", None)
    first = made[0] if isinstance(made, list | tuple) and made else None
    if not isinstance(first, gymnasium.Env):
        raise UnsupportedEnvironmentError(
            f"her is set, and {env_id} is a vector without a list of its environments, of which one has compute_reward:"
            " register the single environment, or leave the setting out"
        )
    reward, ends = (
        first.get_wrapper_attr(name) if first.has_wrapper_attr(name) else None
        for name in ("compute_reward", "compute_terminated")
    )
    if reward is None:
        raise UnsupportedEnvironmentError(f"her is set, and {env_id} has no compute_reward, which rewards other goals")
    inner: Any = first
    while isinstance(inner, gymnasium.Wrapper):
        if not isinstance(inner, KEEPS_REWARDS):
            wrappers.append(type(inner).__name__)
        inner = inner.env
    return GoalFunctions(reward, ends, tuple(wrappers), env_id)


_OF_ACTIONS = (ActionsFromZero, ActionsOfSpace, FlatActions)
KEEPS_REWARDS = (*_OF_ACTIONS, AsRows, FirstStepChecked, OrderEnforcing, PassiveEnvChecker, TimeLimit)
"""Wrappers that change neither rewards nor goals."""


class GoalCheck:
    """Compares the steps of an actor's episodes with what the goal functions give for the episodes' own goals.

    They differ where a wrapper changes rewards or goals, and the function is the inner environment's: real and
    relabelled items would be in two units. They differ also if a reward has noise or depends on the action or the info.
    """

    MOST = 0.001
    """The share of steps that may differ: float32 goals may lie on the other side of a threshold."""
    TOLERANCE = 1e-3
    """The difference of rewards, in the largest reward of the episode, that is no difference."""
    NEAR = 0.05
    """The difference from the reward of equal goals, in the range of the episode's rewards, of a goal that is achieved:
    an environment ends within some distance of it."""

    def __init__(self, env_id: str) -> None:
        self._env_id = env_id
        self._steps = 0
        self._has_warned = False
        self._different = {"compute_reward": 0, "compute_terminated": 0}

    def add(
        self, steps: Sequence[EpisodeStep], achieved: NDArray[Any], desired: NDArray[Any], functions: GoalFunctions
    ) -> None:
        """Compare the steps of an episode, whose goals are `[T, ...]`.

        Warns once if the environment terminates where its goal is achieved, and has no `compute_terminated`. Raises
        `UnsupportedEnvironmentError` if at least two steps of all episodes, and more than `MOST`, differ.
        """
        self._steps += len(steps)
        given, computed = np.array([step.reward for step in steps]), functions.rewards(achieved, desired)
        largest = max(np.abs(given).max(), np.abs(computed).max())
        same = np.abs(given - computed) <= self.TOLERANCE * largest
        self._count("compute_reward", given, computed, ~same, functions)
        ends = functions.ends(achieved, desired)
        if ends is not None:
            terminated = np.array([step.terminated for step in steps])
            self._count("compute_terminated", terminated, ends, terminated != ends, functions)
        elif steps[-1].terminated and not self._has_warned:
            self._warn_of_success(computed, achieved, functions)

    def _warn_of_success(self, computed: NDArray[np.float32], achieved: NDArray[Any], functions: GoalFunctions) -> None:
        """Warn if the last step, which terminated, has the reward of a goal that is achieved; others have less."""
        (success,) = functions.rewards(achieved[-1:], achieved[-1:])
        largest = float(success - computed.min())
        if largest <= 0 or success - computed[-1] > self.NEAR * largest:
            return
        self._has_warned = True
        warn(
            f"{self._env_id} terminates where its goal is achieved, and has no compute_terminated: items with other"
            ' goals do not end where they achieve theirs, and with her="episode" some end where they do not. Define'
            " compute_terminated(achieved_goal, desired_goal, info), which returns whether a step ends the episode"
        )

    def _count(
        self,
        method: str,
        given: NDArray[Any],
        computed: NDArray[Any],
        different: NDArray[np.bool_],
        functions: GoalFunctions,
    ) -> None:
        self._different[method] += int(different.sum())
        if not different.any() or self._different[method] <= max(1, self.MOST * self._steps):
            return
        i = int(np.flatnonzero(different)[0])
        through = f" through its wrappers {', '.join(functions.wrappers)}" if functions.wrappers else ""
        count = f"{self._different[method]:,} of {self._steps:,} steps differ"
        raise UnsupportedEnvironmentError(
            f"her is set, and a step of {self._env_id}{through} gave {given[i]}, where {method} of the goals in its"
            f" observation gives {computed[i]} ({count}), so items with other goals would not match the rest: leave out"
            f" the wrapper that changes it, give it a {method} of its own, or leave the setting out. {method} must"
            " depend on the two goals only"
        )
