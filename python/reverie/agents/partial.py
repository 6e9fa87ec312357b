"""Wrappers that hide a part of each observation, so that an agent needs a memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class KeepEntries(gymnasium.ObservationWrapper[NDArray[Any], Any, NDArray[Any]]):
    """Observations with the entries `entries` of a vector, in this order: for a task without velocities.

    `reverie.agents.partial:KeepEntries(entries=[0, 2])` as a wrapper of CartPole leaves position and angle.
    Raises ValueError for observations that are not one vector, and for no entries or entries outside of it.
    """

    def __init__(self, env: gymnasium.Env[NDArray[Any], Any], entries: Sequence[int]) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise ValueError(f"observations are {space}, and must be one vector")
        wrong = [one for one in entries if not 0 <= one < space.shape[0]]
        if wrong or not entries:
            raise ValueError(f"entries is {list(entries)}, and must be some of 0 to {space.shape[0] - 1}")
        self._entries = np.array(entries)
        self.observation_space = spaces.Box(
            space.low[self._entries],
            space.high[self._entries],
            dtype=space.dtype.type,
        )

    def observation(self, observation: NDArray[Any]) -> NDArray[Any]:
        """The entries of an observation."""
        kept: NDArray[Any] = observation[self._entries]
        return kept
