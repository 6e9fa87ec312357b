"""The items of a table, read in the order of their insertion without drawing them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reverie import _native
from reverie.client import Client
from reverie.errors import RaggedError, UnknownKeyError
from reverie.integrations.datasets.sources import DatasetError, Layout, RowBlock
from reverie.specs import TensorSpec
from reverie.types import Batch

__all__ = ["TableReader"]

#: Bytes of a block of items, as estimated from the size of the items before.
BLOCK_BYTES = 4 << 20


class TableReader:
    """The items of a table as they are now; items that are inserted later are not read.

    Rows are steps where all columns of an item have a time axis of one length: sequences and episodes. Otherwise, a row
    is an item. It counts as no sample, and does not wait for the rate limiter.

    Args:
        client: of one server, or of several.
        table: the table.
        columns: paths to read; None means all.
        timeout: seconds for each call.

    Raises:
        DatasetError: for an empty table.
        UnknownTableError, DeadlineExceededError.
        ValueError: for columns that the table does not have.
    """

    def __init__(
        self, client: Client, table: str, *, columns: Sequence[str] | None = None, timeout: float | None = None
    ) -> None:
        self._client, self._table, self._timeout = client, table, timeout
        self._columns = None if columns is None else list(columns)
        self._keys = client.query(table, timeout=timeout).key
        #: Items that left the table before they were read.
        self.num_gone = 0
        first = next((batch for at in range(len(self._keys)) if (batch := self._one(at)) is not None), None)
        if first is None:
            raise DatasetError(f"table '{table}' has no items to export")
        whole, apart = first
        leaves, self.structure = _native.flatten(whole.data)
        rows, _ = _native.flatten(apart.data)
        has_time = [leaf.ndim != row.ndim for leaf, row in zip(leaves, rows, strict=True)]
        self.layout: Layout = "steps" if all(has_time) and isinstance(apart.lengths, np.ndarray) else "items"
        self._ragged = self.layout == "steps"
        cells = rows if self._ragged else leaves
        self.like = whole.data
        self.specs = [TensorSpec(cell.shape[1:], cell.dtype) for cell in cells]
        self._item_bytes = max(1, sum(leaf.nbytes for leaf in leaves))

    @property
    def num_items(self) -> int:
        """The number of items in the table when it was looked at."""
        return len(self._keys)

    def _one(self, at: int) -> tuple[Batch, Batch] | None:
        """An item with its time axes, and without: its cells behind one another. None for an item that is gone."""
        key = self._keys[at : at + 1]
        try:
            return self._get(key, False), self._get(key, True)
        except UnknownKeyError:
            return None

    def _get(self, keys: npt.NDArray[np.int64], cells: bool) -> Batch:
        ragged: Any = "values" if cells else None
        return self._client.get(self._table, keys, columns=self._columns, ragged=ragged, timeout=self._timeout)

    def blocks(self) -> Iterator[RowBlock]:
        """The items; a block has about 4 MiB, or one item. Rows of steps are numbered by their item.

        Raises:
            DatasetError: for items of different shapes among columns without a time axis.
        """
        at, number = 0, 0
        while at < len(self._keys):
            count = max(1, min(4096, BLOCK_BYTES // self._item_bytes))
            for batch in self._present(self._keys[at : at + count]):
                leaves, _ = _native.flatten(batch.data)
                lengths = batch.lengths if self._ragged else np.ones(len(batch), np.int64)
                items = np.arange(number, number + len(batch), dtype=np.int64)
                number += len(batch)
                self._item_bytes = max(1, sum(leaf.nbytes for leaf in leaves) // len(batch))
                priorities = np.repeat(batch.info.priority, lengths)
                yield RowBlock(leaves, np.repeat(items, lengths) if self._ragged else None, priorities)
            at += count

    def _present(self, keys: npt.NDArray[np.int64]) -> Iterator[Batch]:
        """The items of these keys that are still in the table; halves are asked for where one is gone."""
        try:
            yield self._get(keys, self._ragged)
        except UnknownKeyError:
            if len(keys) == 1:
                self.num_gone += 1
                return
            middle = len(keys) // 2
            yield from self._present(keys[:middle])
            yield from self._present(keys[middle:])
        except RaggedError as error:
            raise DatasetError(
                f"table '{self._table}': items differ in the lengths of some columns, and other columns have no time"
                f" axis; export one kind of them with columns= ({error})"
            ) from error
