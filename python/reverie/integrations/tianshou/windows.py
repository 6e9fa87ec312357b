"""Windows of consecutive steps of one environment as items that share observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tianshou.data import Batch

from reverie.integrations._trajectories import Trajectory

__all__ = ["STEP", "StepWindows", "batch_of", "nest_of", "rows_equal"]

#: The columns of a step that are no observations.
STEP = ("act", "rew", "terminated", "truncated")


class StepWindows(Trajectory):
    """Writes an item for each step of one environment: `n_steps` steps from there, fewer at the end of an episode.

    An item has the observations that an update reads: `obs` and `obs_next` of its first step, and with several steps
    `obs_last`, which is the `obs_next` of its last one. The other columns have a cell for each of several steps.
    """

    def _send(self) -> None:
        (end, first), cells = self._pending[0], [cell for _, cell in self._pending]
        self._pending.popleft()
        history = self._writer.history
        seen = history["observation"]
        item = {"obs": self._cells(seen, end), "obs_next": self._cells(seen, first + 1)}
        if self._n_steps > 1:
            item["obs_last"] = self._cells(seen, self._count)
        for name in STEP:
            item[name] = history[name][first if self._n_steps == 1 else cells]
        self._writer.create_item(self._table, self._priority, item)


def nest_of(value: Any) -> Any:
    """Arrays, and dicts of arrays where tianshou has a `Batch`."""
    return {name: nest_of(value[name]) for name in value.get_keys()} if isinstance(value, Batch) else np.asarray(value)


def batch_of(value: Any) -> Any:
    """A `Batch` where `nest_of` has a dict. Its arrays are those of the dict: `Batch(...)` would look at each."""
    if not isinstance(value, dict):
        return value
    batch = Batch()
    batch.__dict__.update((name, batch_of(part)) for name, part in value.items())
    return batch


def rows_equal(one: Any, other: Any) -> npt.NDArray[np.bool_]:
    """Which rows of two nests of one structure are equal, `[B]`; none where their shapes differ."""
    if isinstance(one, dict):
        return np.logical_and.reduce([rows_equal(part, other[name]) for name, part in one.items()])
    if one.shape != other.shape:
        return np.zeros(len(one), np.bool_)
    found: npt.NDArray[np.bool_] = (one == other).reshape(len(one), -1).all(axis=1)
    return found
