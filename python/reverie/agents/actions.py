"""Vectors of choices (MultiDiscrete, MultiBinary) as single numbers, for agents with a value for each action."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class ActionEnumeration:
    """Numbers the combinations of a vector of choices, the last choice fastest. The identity for other actions."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self._sizes = sizes
        self._steps = tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))

    def to_env(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Actions as the environment takes them, `[N, A]` of numbers `[N]`; without choices the numbers themselves."""
        if not self._sizes:
            return numbers
        steps, sizes = np.array(self._steps), np.array(self._sizes)
        vectors: NDArray[np.int64] = numbers[:, None] // steps % sizes
        return vectors

    def from_env(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers `[...]` of actions `[..., A]` as the environment takes them."""
        if not self._sizes:
            return actions
        numbers: NDArray[np.int64] = (actions * np.array(self._steps)).sum(axis=-1)
        return numbers

    def to_env_tensor(self, numbers: Tensor) -> Tensor:
        """The actions of a tensor of numbers `[N]`, as the environment takes them."""
        if not self._sizes:
            return numbers
        pairs = zip(self._steps, self._sizes, strict=True)
        return torch.stack([torch.div(numbers, step, rounding_mode="floor") % size for step, size in pairs], dim=1)


def per_part(scores: Any, sizes: tuple[int, ...]) -> list[Any]:
    """Scores `[N, sum of sizes]` by part: `[N, size]` each. Without sizes, all of them as one part."""
    if not sizes:
        return [scores]
    if isinstance(scores, Tensor):
        return list(torch.split(scores, list(sizes), dim=-1))
    return np.split(scores, np.cumsum(sizes)[:-1], axis=-1)
