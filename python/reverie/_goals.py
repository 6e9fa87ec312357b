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

    Raises ValueError if it does not return one reward for each.
    """
    rewards: npt.NDArray[np.float32] = np.asarray(compute(achieved, desired, list(infos)), np.float32)
    if rewards.size != len(achieved):
        raise ValueError(
            f"compute_reward returned the shape {rewards.shape} for {len(achieved)} goals; it must return one "
            "reward for each, of arrays [N, ...]"
        )
    return rewards.reshape(-1)
