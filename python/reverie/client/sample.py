"""The calls of a client that return items one by one."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from reverie import _checks, _native
from reverie.client.signatures import structure_of
from reverie.client.table import TableCalls
from reverie.errors import RaggedError
from reverie.specs import in_order_of
from reverie.types import Batch, BatchInfo, ReplaySample, SampleInfo

#: Draws of one request of `sample`.
SAMPLES_AT_ONCE = 64


class SampleCalls(TableCalls):
    """The calls of a client that return items one by one."""

    #: The order of items of several servers; None for one server, which keeps the order of its draws.
    _random: random.Random | None = None

    def sample(
        self,
        table: str,
        num_samples: int = 1,
        *,
        emit_timesteps: bool = True,
        unpack_as_table_signature: bool = False,
        timeout: float | None = None,
    ) -> Iterator[list[ReplaySample] | ReplaySample]:
        """Draws items one by one.

        Several draws are requested together, at most `num_samples`. On a table that deletes sampled items each draw is
        requested alone, so that no item is lost where a loop ends early. Items that were drawn together are views of
        one allocation. Cells of any size have the sizes that they were appended with.

        Args:
            table: the table.
            num_samples: the number of items to draw.
            emit_timesteps: True returns a list with one sample per step for each item; False one sample per item.
            unpack_as_table_signature: True returns data in the structure of the table's signature, or in the stored
                structure where the table has none; False returns the flat list of leaves in flattening order.
            timeout: seconds that each item may take.

        Raises:
            DeadlineExceededError, UnknownTableError, ClosedError.
            ValueError: for `num_samples` below 1, or timesteps of an item whose columns differ in length. If the table
                deletes sampled items, the item is in `.drawn`, as a batch; the same holds for a MemoryError.
            RaggedError: with `emit_timesteps=False`, the cells of a sequence differ in size and cannot be one array;
                `.drawn` has the item as a padded batch with masks by path. With timesteps each step has its own cell.
        """
        num_samples = _checks.count("num_samples", num_samples, 1)
        unpack = unpack_as_table_signature
        return self._sample(table, num_samples, emit_timesteps, unpack, timeout, SAMPLES_AT_ONCE, answer=timeout)

    def _sample(
        self,
        table: str,
        num_samples: int,
        timesteps: bool,
        unpack: bool,
        timeout: float | None,
        at_once: int,
        answer: float | None = None,
        form: _native.Structure | None = None,
    ) -> Iterator[list[ReplaySample] | ReplaySample]:
        # `timeout` limits the wait for the rate limiter, `answer` that for a response about the table's options.
        left = num_samples
        if unpack and form is None:
            of_table = self.server_info(answer).get(table)
            form = None if of_table is None else structure_of(of_table.signature)
            consumes = of_table is not None and of_table.max_times_sampled > 0
        else:
            consumes = self._consume([table], answer)
        at_once = 1 if consumes else at_once
        while left > 0:
            runs = self._sample_available(table, min(left, at_once), timeout=timeout)
            left -= sum(len(batch) for batch, _ in runs)
            if at_once == 1:
                yield from [_sample_or_draw(batch, step, timesteps, unpack, form) for batch, step in runs]
                continue
            rows = (row for batch, step in runs for row in samples_of(batch, step, timesteps, unpack, form))
            if self._random is None:
                yield from rows
                continue
            # A loop that stops early has not seen the items of one server only.
            shuffled = list(rows)
            self._random.shuffle(shuffled)
            yield from shuffled


def _sample_or_draw(
    batch: Batch, step: bool, timesteps: bool, unpack: bool, form: _native.Structure | None
) -> list[ReplaySample] | ReplaySample:
    """The only item of a batch, or an error whose `drawn` has the batch: its table may not have it any more."""
    try:
        [sample] = samples_of(batch, step, timesteps, unpack, form)
    except BaseException as error:
        if not getattr(error, "drawn", None):
            error.drawn = [batch]  # type: ignore[attr-defined]
        raise
    return sample


def samples_of(
    batch: Batch, step: bool, timesteps: bool, unpack: bool, form: _native.Structure | None = None
) -> Iterator[list[ReplaySample] | ReplaySample]:
    """The items of a batch, as `Client.sample` returns them.

    Args:
        batch: the draws.
        step: True where each item is a single step that was inserted without a time axis.
        timesteps, unpack: as `emit_timesteps` and `unpack_as_table_signature`.
        form: the structure to unpack to; None means the stored one.
    """
    columns, structure = _native.flatten(batch.data)
    sizes = _sizes_of(batch, columns, structure.paths)
    if form is not None and form != structure and len(form.paths) == len(columns):
        columns, sizes = (in_order_of(form, each, structure) for each in (columns, sizes))
        structure = form
    info = batch.info
    infos = zip(
        info.key.tolist(),
        info.probability.tolist(),
        info.table_size.tolist(),
        info.priority.tolist(),
        info.times_sampled.tolist(),
        strict=True,
    )
    # Past the constructors of the named tuples, which are Python functions: two calls for each item.
    samples = (_tuple(SampleInfo, values) for values in infos)
    data_of = structure.unflatten if unpack else _flat
    rows = _whole_rows if all(size is None for size in sizes) else _rows_of_sizes
    of_items = rows(batch, columns, sizes, structure.paths, step, timesteps)
    for sampled, cells in zip(samples, of_items, strict=True):
        if timesteps:
            yield [_tuple(ReplaySample, (sampled, data_of(one))) for one in cells]
        else:
            yield _tuple(ReplaySample, (sampled, data_of(cells)))


_tuple = tuple.__new__


def _flat(cells: list[Any]) -> list[Any]:
    return cells


def _whole_rows(
    batch: Batch, columns: list[Any], _sizes: list[Any], paths: list[str], step: bool, timesteps: bool
) -> Iterator[list[Any]]:
    """The cells of each item, or of each of its steps, where all cells of a column have one size."""
    count = len(batch)
    if step or not timesteps:
        added = np.newaxis if step and not timesteps else ...
        rows = ([column[row, added] for column in columns] for row in range(count))
        return ([row] for row in rows) if timesteps else rows
    if count == 0:
        return iter(())
    length = _length([column[0] for column in columns], paths)
    return ([[column[row, at, ...] for column in columns] for at in range(length)] for row in range(count))


def _rows_of_sizes(
    batch: Batch, columns: list[Any], sizes: list[Any], paths: list[str], step: bool, timesteps: bool
) -> Iterator[list[Any]]:
    """The same where cells differ in size: each cell is cut to its own."""
    for row in range(len(batch)):
        cells = [_cells(column, size, row) for column, size in zip(columns, sizes, strict=True)]
        if timesteps:
            yield [cells] if step else [[_at(cell, at) for cell in cells] for at in range(_length(cells, paths))]
            continue
        _check_sizes(batch, row, cells, paths)
        yield [cell[np.newaxis] for cell in cells] if step else cells


def _sizes_of(batch: Batch, columns: list[Any], paths: list[str]) -> list[Any]:
    """For each column the sizes of its cells, `[B]` or `[B, T]`; None where all are whole."""
    if batch.mask is None:
        return [None] * len(columns)
    masks = [batch.mask.get(path) for path in paths]
    return [None if mask is None or mask.all() else mask.sum(axis=-1) for mask in masks]


def _cells(column: Any, sizes: Any, row: int) -> Any:
    """The cells of one item: an array, or a list with an array for each step where these differ in size."""
    if sizes is None:
        return column[row, ...]
    of_item = sizes[row]
    if of_item.ndim == 0:
        return column[row, :of_item]
    if (of_item == of_item[:1]).all():
        return column[row, :, : of_item[0]]
    return [column[row, step, :size] for step, size in enumerate(of_item)]


def _check_sizes(batch: Batch, row: int, cells: list[Any], paths: list[str]) -> None:
    """Refuses an item with cells that cannot be one array."""
    for path, cell in zip(paths, cells, strict=True):
        if isinstance(cell, list):
            sizes = ", ".join(map(str, sorted({len(one) for one in cell})))
            reason = (
                f"its cells have the sizes {sizes}; pass emit_timesteps=True, or read it with sample_batch(ragged=)"
            )
            raise RaggedError(f"column '{path}': {reason}", path=path, reason=reason, drawn=[_row_of(batch, row)])


def _row_of(batch: Batch, row: int) -> Batch:
    """One item as a batch of its own."""
    columns, structure = _native.flatten(batch.data)
    own = slice(row, row + 1)
    return dataclasses.replace(
        batch,
        info=BatchInfo(*(getattr(batch.info, field.name)[own] for field in dataclasses.fields(batch.info))),
        data=structure.unflatten([column[own] for column in columns]),
        mask={path: of[own] for path, of in batch.mask.items()},
    )


def _length(cells: list[Any], paths: list[str]) -> int:
    """The number of steps of an item, which all of its columns have."""
    single = [not isinstance(cell, list) and cell.ndim == 0 for cell in cells]
    lengths = {1 if one else len(cell) for cell, one in zip(cells, single, strict=True)}
    if len(lengths) > 1 or any(single):
        shapes = ", ".join(f"'{path}' {_shape(cell)}" for path, cell in zip(paths, cells, strict=True))
        raise ValueError(f"the columns of this item have no common time axis ({shapes}); pass emit_timesteps=False")
    return lengths.pop()


def _at(cells: Any, step: int) -> Any:
    return cells[step] if isinstance(cells, list) else cells[step, ...]


def _shape(cells: Any) -> tuple[int | None, ...]:
    return (len(cells), None, *cells[0].shape[1:]) if isinstance(cells, list) else cells.shape
