"""Counts of the steps of each environment, and its newest episode, as a collector of tianshou reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tianshou.data import Batch

from reverie.integrations.tianshou.windows import STEP

__all__ = ["BufferEpisodes", "are_numbers"]

#: The numbers of an environment's steps begin at a multiple of this; indices of a sample are smaller.
_STEPS = 1 << 40


def are_numbers(index: npt.NDArray[Any]) -> bool:
    """Whether these are numbers of steps, which `BufferEpisodes.add` gave, and no indices of a sample."""
    return bool(index.size) and bool(index.flat[0] >= _STEPS)


class BufferEpisodes:
    """The episodes of `num` environments. Lists, not arrays: a step touches one number of each."""

    def __init__(self, num: int) -> None:
        #: Whether the newest step of each environment ended its episode, or there is none.
        self.ended = [True] * num
        self._steps, self._starts, self._returns = [0] * num, [0] * num, [0.0] * num
        #: The steps of the newest episode of each environment, without observations.
        self._newest: list[list[dict[str, Any]]] = [[] for _ in range(num)]

    def add(self, env: int, step: dict[str, Any], ended: bool) -> tuple[int, float, int, int]:
        """Counts a step.

        Args:
            env: the environment's number.
            step: its columns `STEP`.
            ended: its episode ends with it.

        Returns:
            the number of the step, the return and the length of the episode that it ended (else 0), and the number of
            the step at which its episode began.
        """
        number, start, offset = self._steps[env], self._starts[env], (env + 1) * _STEPS
        if number == start:
            self._newest[env].clear()
        self._newest[env].append(step)
        self._steps[env], self.ended[env] = number + 1, ended
        total = self._returns[env] + float(step["rew"])
        if not ended:
            self._returns[env] = total
            return number + offset, 0.0, 0, start + offset
        self._returns[env], self._starts[env] = 0.0, number + 1
        return number + offset, total, number + 1 - start, start + offset

    def begin_again(self) -> None:
        """The next step of each environment does not continue the one before. Counts and returns stay."""
        self.ended = [True] * len(self.ended)

    def __getitem__(self, numbers: npt.NDArray[np.int64]) -> Any:
        """Steps of the newest episode of an environment, by their numbers, as a `Batch` without observations.

        Raises:
            ValueError: for a step of an episode before the newest one.
        """
        env, first = int(numbers[0] // _STEPS) - 1, int(numbers[0] % _STEPS)
        steps, start = self._newest[env], self._steps[env] - len(self._newest[env])
        if first < start:
            raise ValueError("these steps are of an episode before the newest one of their environment")
        chosen = [steps[number] for number in numbers % _STEPS - start]
        columns = {name: np.array([step[name] for step in chosen]) for name in STEP}
        return Batch(**columns, done=columns["terminated"] | columns["truncated"])
