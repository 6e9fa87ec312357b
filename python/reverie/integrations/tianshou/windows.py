"""Windows of consecutive steps of one environment as items that share observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tianshou.data import Batch

from reverie.integrations._trajectories import Trajectory

__all__ = [
    "STEP",
    "StepWindows",
    "batch_of",
    "laid_out",
    "nest_of",
    "row_of",
    "rows_equal",
    "set_rows",
    "zeros_like_rows",
]

#: The columns of a step that are not observations.
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
            item["obs_last"] = self._cells(seen, cells[-1] + 1)
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
    """Whether each row is equal in two nests of one structure, `[B]`; all are false if shapes differ."""
    equal: npt.NDArray[np.bool_]
    if isinstance(one, dict):
        equal = np.logical_and.reduce([rows_equal(part, other[name]) for name, part in one.items()])
    elif one.shape != other.shape:
        equal = np.zeros(len(one), np.bool_)
    else:
        equal = (one == other).reshape(len(one), -1).all(axis=1)
    return equal


def row_of(value: Any, row: Any) -> Any:
    """Rows of a nest of arrays."""
    return {name: row_of(part, row) for name, part in value.items()} if isinstance(value, dict) else value[row]


def zeros_like_rows(like: Any, count: int) -> Any:
    """A nest of `count` rows of zeros, as those of another."""
    if isinstance(like, dict):
        return {name: zeros_like_rows(part, count) for name, part in like.items()}
    return np.zeros((count, *like.shape[1:]), like.dtype)


def set_rows(value: Any, rows: Any, given: Any) -> None:
    """Sets rows of a nest of arrays."""
    if not isinstance(value, dict):
        value[rows] = given
        return
    for name, part in value.items():
        set_rows(part, rows, given[name])


def laid_out(cells: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    """The cells of windows one after another, `[B * n, ...]`, with zeros behind those of short windows."""
    if n == 1:
        return cells
    width = cells.shape[1]  # All windows of a batch may be short ones.
    if width < n:
        cells = np.concatenate([cells, np.zeros((len(cells), n - width, *cells.shape[2:]), cells.dtype)], axis=1)
    return cells.reshape(-1, *cells.shape[2:])


def refuse_nan(name: str, column: Any) -> None:
    """Raises ValueError for NaN in a column, or in a part of it."""
    if isinstance(column, dict):
        for part, values in column.items():
            refuse_nan(f"{name}/{part}", values)
    elif column.dtype.kind == "f" and np.isnan(column).any():
        raise ValueError(f"column '{name}' has NaN; the step was not added")
