"""Draws of an error that was pickled in another process, where they could be read one by one only.

`reverie._native` makes these of the iterator that `drawn` of a MemoryError is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reverie import _native
from reverie.errors import ReplayError

if TYPE_CHECKING:
    from reverie.types import Batch

CARRIED_BYTES = 64 << 20
"""The most bytes of draws in a pickled error: memory ran out for them, and a message should not be much larger."""

NOTE = (
    "the draws are in .drawn, an iterator with a batch of each; a copy of this error in another process has only those "
    f"that fit into {CARRIED_BYTES >> 20} MiB"
)


class CarriedDraws:
    """An iterator over draws that came with an error, each a `Batch`; if others did not come, it ends with an error."""

    def __init__(self, draws: list[Batch], num_missing: int) -> None:
        self._draws, self._num_missing = draws, num_missing

    def __iter__(self) -> CarriedDraws:
        return self

    def __len__(self) -> int:
        """The draws that came with the error and are still to be read."""
        return len(self._draws)

    def __next__(self) -> Batch:
        if self._draws:
            return self._draws.pop(0)
        if self._num_missing:
            raise ReplayError(
                f"{self._num_missing} more draws stayed in the process that raised the error, as a copy of it has at"
                f" most {CARRIED_BYTES >> 20} MiB of draws: read them there, or draw smaller batches"
            )
        raise StopIteration


def size_of(batch: Batch) -> int:
    """The bytes of a batch's columns."""
    return sum(column.nbytes for column in _native.flatten(batch.data)[0])
