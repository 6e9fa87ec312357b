"""The values that a client returns: samples, batches, outcomes of updates. `reverie.info` has figures of tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt

from reverie import _native, _padding
from reverie._tensorflow import tensorflow

__all__ = [
    "Batch",
    "BatchInfo",
    "Borders",
    "Condition",
    "ReplaySample",
    "SampleInfo",
    "UpdateResult",
]

#: `(field, op, number)`; see `Client.query`.
Condition = tuple[
    Literal["priority", "times_sampled", "version", "age"], Literal["<", "<=", "==", "!=", ">=", ">"], float
]
#: How a window that crosses an end of its item is handled; see `Client.windows`.
Borders = Literal["drop", "pad", "cross"]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class SampleInfo(NamedTuple):
    """The table's data about one draw. It has exactly these five fields: ported code unpacks them.

    Fields are scalars for one item or step, and arrays where a dataset batched them.
    """

    key: Any
    """The item's key, a 63-bit integer."""
    probability: Any
    """The probability with which the item was drawn; 1 for deterministic selectors."""
    table_size: Any
    """The number of items in the table at the draw, before the draw removed any."""
    priority: Any
    """The item's priority."""
    times_sampled: Any
    """The number of times that the item was drawn, this draw included."""

    @classmethod
    def zeros(cls) -> SampleInfo:
        """A `SampleInfo` of zeros, with the dtypes of samples."""
        return cls(np.uint64(0), np.float64(0), np.int64(0), np.float64(0), np.int32(0))

    @classmethod
    def tf_dtypes(cls) -> SampleInfo:
        """The fields' dtypes in datasets, as TensorFlow's. ImportError without TensorFlow."""
        tf = tensorflow("SampleInfo.tf_dtypes", "SampleInfo.zeros(), whose fields have the dtypes of samples")
        return cls(*(tf.as_dtype(field.dtype) for field in cls.zeros()))

    @classmethod
    def tf_shapes(cls) -> SampleInfo:
        """The fields' shapes in datasets (scalars), as TensorFlow's. ImportError without TensorFlow."""
        tf = tensorflow("SampleInfo.tf_shapes", "SampleInfo.zeros(): every field is a scalar")
        return cls(*(tf.TensorShape([]) for _ in cls._fields))


class ReplaySample(NamedTuple):
    """One draw: the table's data about it, and the stored data."""

    info: SampleInfo
    data: Any


@final
@dataclasses.dataclass(eq=False)
class BatchInfo(_native.DrawInfo):
    """The table's data about each draw of a batch: one array per field, each of shape `[B]`.

    An array is made when its field is first read; then the caller owns it.
    """

    __slots__ = ()

    # Without `field()` the base class's getters would be taken for defaults.
    key: IntArray = dataclasses.field()
    """Keys of the items, int64."""
    probability: FloatArray = dataclasses.field()
    """The probability with which each item was drawn; 1 for deterministic selectors."""
    priority: FloatArray = dataclasses.field()
    """Priorities at the draw."""
    table_size: IntArray = dataclasses.field()
    """The number of items in the table at each draw, before the draw removed any."""
    times_sampled: IntArray = dataclasses.field()
    """The number of times that each item was drawn, this draw included."""
    version: IntArray = dataclasses.field()
    """The number of updates of each item's priority so far; pass it to `update_priorities(..., if_version=)`."""
    inserted_at: FloatArray = dataclasses.field()
    """When each item was inserted, in seconds of the table's monotonic clock."""

    def __len__(self) -> int:
        return len(self.key)

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchInfo, tuple(getattr(self, field.name) for field in dataclasses.fields(self))


@final
@dataclasses.dataclass(slots=True, eq=False)
class Batch:
    """Draws from a table as arrays: one contiguous array per column.

    The caller owns the arrays: they are writable, and their memory is not reused while a reference to them exists.
    """

    info: BatchInfo
    """The table's data about each draw."""
    data: Any
    """The stored structure, with arrays `[B, ...]` or `[B, T, ...]` as leaves."""
    mask: Any = None
    """With `ragged="pad"`: bool, true where there is data: `[B, T]`, `[B, N]` of cells that differ in size, or
    `[B, T, N]` of sequences of these. A dict by path where columns differ in length, or there are more of them."""
    lengths: Any = None
    """With `ragged="values"`: int64 `[B]`, the cells or the size of each item; `[B, T]` of sequences whose cells differ
    in size. A dict as for `mask`."""
    smallest_probability: float | None = None
    """The smallest probability of any item in the table; None where the table's selector has no probabilities."""
    is_first: Any = None
    """Windows only: bool `[B, T]`, true at the first step of each window and of each episode."""
    start: Any = None
    """Windows only: int64 `[B]`, the step of the item at which the window begins; below 0 where padding comes first."""
    loss_mask: Any = None
    """Windows only: bool `[B, T]`, true at the steps to learn from: after the burn-in, and not padding."""
    burn_in: int = 0
    """Windows only: the number of steps, of T, before those to learn from."""
    _weights_as: Callable[[FloatArray], Any] | None = dataclasses.field(default=None, repr=False)
    """Makes the importance weights the kind of array that the columns are; None for NumPy."""

    def __len__(self) -> int:
        return len(self.info.key)

    def weights(self, beta: float, normalise: Literal["batch", "table"] = "batch") -> Any:
        """Importance weights `(N * P(i)) ** -beta`, divided by the largest (Schaul et al. 2016, section 3.4).

        Args:
            beta: how much of the bias is corrected, from 0 (none, all weights 1) to 1 (all).
            normalise: "batch" divides by the largest weight in this batch; "table" by the largest that an item of the
                table can have, so that weights of different batches are comparable.

        Returns:
            `[B]`, at most 1: a float64 NumPy array; of a batch of tensors (`as_="torch"` or "tensordict") a float32
            tensor on their device, and of JAX arrays a float32 one.

        Raises:
            ValueError: for a beta outside [0, 1], another `normalise`, or items that `client.get` returned.
        """
        if not 0.0 <= beta <= 1.0:
            raise ValueError(f"beta must be between 0 and 1, got {beta}")
        if normalise == "batch":
            return self._converted(self.info._weights(beta, None))
        if normalise != "table":
            raise ValueError(f'normalise must be "batch" or "table", got {normalise!r}')
        if self.smallest_probability is None:
            raise ValueError('normalise="table" needs draws from one table with a selector that has probabilities')
        return self._converted(self.info._weights(beta, self.smallest_probability))

    def padded(
        self, column: str, value: float = 0, *, side: Literal["left", "right"] = "right", multiple: int = 1
    ) -> tuple[Any, IntArray]:
        """A column of unequal lengths, or of cells that differ in size, as one array with a padding of your choice.

        For batches read with `ragged="pad"` (whose padding is zeros) or `"values"`.

        Args:
            column: the path of the column, as `"tokens"` or `"obs/tokens"`.
            value: the number where there is no data, such as -100 for labels that a loss ignores.
            side: where the padding goes: "right" behind the data, "left" before it.
            multiple: makes the padded axis a multiple of this, as kernels and compiled graphs need it.

        Returns:
            a copy of the column, `[B, T, ...]` with T the length of the longest item (`[B, T, N, ...]` of sequences
            whose cells differ in size: N is padded), as the kind of array that the column is (NumPy, PyTorch, JAX; on
            its device); and the lengths, int64 NumPy `[B]` (`[B, T]`).

        Raises:
            ValueError: for an unknown column, one of equal lengths or of text, a batch that was read without
                `ragged=`, a value that the column's dtype cannot hold, another side, or a multiple below 1.
        """
        leaves, structure = _native.flatten(self.data)
        columns = dict(zip(structure.paths, leaves, strict=True))
        if column not in columns:
            raise ValueError(f"there is no column {column!r}; there is {', '.join(map(repr, columns))}")
        mask, lengths = (of.get(column) if isinstance(of, dict) else of for of in (self.mask, self.lengths))
        if mask is None and lengths is None:
            raise ValueError(f'column {column!r} has no mask and no lengths: read it with ragged="pad" or "values"')
        return _padding.padded(column, columns[column], mask, lengths, value, side, multiple)

    def _converted(self, weights: FloatArray) -> Any:
        return weights if self._weights_as is None else self._weights_as(weights)


class UpdateResult(NamedTuple):
    """The outcome of updates or deletes."""

    applied: int
    """The number of items that were updated or deleted."""
    stale: int
    """The number of keys that were ignored: the item is gone or, with `if_version=`, was updated since."""
