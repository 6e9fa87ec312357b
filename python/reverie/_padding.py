"""Columns of unequal lengths as one array, for NumPy arrays, PyTorch tensors and JAX arrays alike."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from reverie import _checks

__all__ = ["padded"]


def padded(
    path: str, column: Any, mask: Any, lengths: Any, value: float, side: Literal["left", "right"], multiple: int
) -> tuple[Any, npt.NDArray[np.int64]]:
    """See `Batch.padded`. `mask` and `lengths` are those of this column; one of them is None."""
    if side not in ("left", "right"):
        raise ValueError(f'side must be "left" or "right", got {side!r}')
    multiple = _checks.count("multiple", multiple, 1)
    there = None if mask is None else _numpy(mask)
    if there is not None:
        if tuple(column.shape[: there.ndim]) != there.shape:
            raise _without_lengths(path, column)
        counts = there.sum(axis=-1, dtype=np.int64)
    else:
        counts = _numpy(lengths).astype(np.int64)
        if not column.shape or column.shape[0] != counts.sum():
            raise _without_lengths(path, column)
    _check(path, column, value)
    width = -(-int(counts.max(initial=0)) // multiple) * multiple
    real = np.arange(width) < counts[..., np.newaxis]
    if side == "left":
        real = np.ascontiguousarray(real[..., ::-1])
    try:
        if there is not None and there.shape == real.shape and side == "right":
            return _filled(column, ~real, value), counts
        # The values lie one behind the other, in the order in which the places of the data do.
        return _placed(column if there is None else column[there], real, value), counts
    except (OverflowError, RuntimeError) as error:
        raise ValueError(f"value is {value}, which column '{path}' of {column.dtype} cannot hold") from error


def _placed(values: Any, real: npt.NDArray[np.bool_], value: float) -> Any:
    """An array of a value with the values in these places."""
    shape = (*real.shape, *values.shape[1:])
    if isinstance(values, np.ndarray):
        cells = np.full(shape, np.array(value, values.dtype))
        cells[real] = values
        return cells
    if hasattr(values, "new_full"):  # PyTorch
        cells = values.new_full(shape, value)
        cells[real] = values
        return cells
    full = values.__array_namespace__().full  # JAX
    return full(shape, value, dtype=values.dtype).at[np.nonzero(real)].set(values)


def _filled(cells: Any, where: npt.NDArray[np.bool_], value: float) -> Any:
    """A copy of the cells with a value in some of them."""
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


def _without_lengths(path: str, column: Any) -> ValueError:
    return ValueError(
        f"column '{path}' {list(column.shape)} has no time axis of unequal lengths and no cells that differ in size: "
        "read it from Batch.data"
    )
