"""Columns of unequal lengths as one array, for NumPy arrays, PyTorch tensors and JAX arrays alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["padded"]


def padded(path: str, column: Any, mask: Any, lengths: Any, value: float) -> tuple[Any, npt.NDArray[np.int64]]:
    """See `Batch.padded`. `mask` and `lengths` are those of this column; one of them is None."""
    if mask is not None:
        real = _numpy(mask)
        if tuple(column.shape[:2]) != real.shape:
            raise _without_time(path, column)
        cells, counts = column, real.sum(axis=1, dtype=np.int64)
    else:
        counts = _numpy(lengths).astype(np.int64)
        if not column.shape or column.shape[0] != counts.sum():
            raise _without_time(path, column)
        steps, starts = np.arange(counts.max(initial=0)), np.cumsum(counts) - counts
        real = steps < counts[:, np.newaxis]
        cells = column[np.where(real, starts[:, np.newaxis] + steps, 0)]
    _check(path, column, value)
    try:
        return _filled(cells, ~real, value), counts
    except (OverflowError, RuntimeError) as error:
        raise ValueError(f"value is {value}, which column '{path}' of {column.dtype} cannot hold") from error


def _filled(cells: Any, where: npt.NDArray[np.bool_], value: float) -> Any:
    """A copy of the cells `[B, T, ...]` with a value in some of them."""
    if hasattr(cells, "at") and not isinstance(cells, np.ndarray):  # JAX
        return cells.at[where].set(value)
    if isinstance(cells, np.ndarray):
        filled = cells.copy()
        if where.any():
            filled[where] = np.array(value, cells.dtype)
        return filled
    filled = cells.clone()
    filled[where] = value
    return filled


def _check(path: str, column: Any, value: float) -> None:
    """Raises ValueError for a value that a column would round, and for columns of text."""
    kind = getattr(column.dtype, "kind", "f" if getattr(column.dtype, "is_floating_point", False) else "i")
    if kind in "SU":
        raise ValueError(f"column '{path}' is text, which has no padding")
    if kind in "biu" and not float(value).is_integer():
        raise ValueError(f"value is {value}, which column '{path}' of {column.dtype} cannot hold")


def _numpy(array: Any) -> npt.NDArray[Any]:
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array)


def _without_time(path: str, column: Any) -> ValueError:
    return ValueError(
        f"column '{path}' {list(column.shape)} has no time axis of unequal lengths: read it from Batch.data"
    )
