"""Environments with goals: the parts of their observations, and the rewards of other goals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

#: The parts of an observation of a goal environment.
PARTS = ("observation", "achieved_goal", "desired_goal")


def rewards_of(
    compute: Callable[[Any, Any, Any], Any],
    achieved: npt.NDArray[Any],
    desired: npt.NDArray[Any],
    infos: Sequence[dict[str, Any]],
) -> npt.NDArray[np.float32]:
    """The rewards `[N]` of achieved and desired goals `[N, ...]`, by an environment's `compute_reward`.

    Raises what `compute` raises, and ValueError if it does not return one finite number for each.
    """
    return rewards_from(compute(achieved, desired, list(infos)), achieved, desired)


def rewards_from(returned: Any, achieved: npt.NDArray[Any], desired: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """The rewards `[N]` that `compute_reward` returned for goals `[N, ...]`.

    Raises ValueError unless they are one number for each pair of goals, finite in float32.
    """
    with np.errstate(over="ignore"):
        rewards: npt.NDArray[np.float32] = np.asarray(returned, np.float32)
    if rewards.size != len(achieved):
        raise ValueError(
            f"compute_reward returned the shape {rewards.shape} for {len(achieved)} goals; it must return one "
            "reward for each, of arrays [N, ...]"
        )
    rewards = rewards.reshape(-1)
    finite = np.isfinite(rewards)
    if not finite.all():
        i = int(np.argmin(finite))
        raise ValueError(
            f"compute_reward returned {rewards[i]} for the achieved goal {_shown(achieved[i])} and the desired goal"
            f" {_shown(desired[i])}; it must return a finite reward for any two goals, also for equal ones"
        )
    return rewards


def _shown(goal: Any) -> str:
    """A goal for an error message: its numbers, and only the first and last ones of a large one."""
    return np.array2string(np.ravel(goal), separator=", ", threshold=16, max_line_width=1_000)
