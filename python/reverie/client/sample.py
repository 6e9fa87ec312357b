"""The calls of a client that return items one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from reverie import _checks, _native
from reverie.client.table import TableCalls
from reverie.specs import in_order_of
from reverie.types import Batch, ReplaySample, SampleInfo

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
        one allocation.

        Args:
            table: the table.
            num_samples: the number of items to draw.
            emit_timesteps: True returns a list with one sample per step for each item; False one sample per item.
            unpack_as_table_signature: True returns data in the structure of the table's signature, or in the stored
                structure where the table has none; False returns the flat list of leaves in flattening order.
            timeout: seconds that each item may take.

        Raises:
            DeadlineExceededError, UnknownTableError, ClosedError.
            ValueError: for `num_samples` below 1, or timesteps of an item whose columns differ in length.
            RaggedError: the cells of a sequence differ in size; `sample_batch(table, 1, ragged=)` reads such an item.
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
        at_once = 1 if self._consumes(table, answer) else at_once
        form = self._form(table, answer) if unpack and form is None else form
        while left > 0:
            runs = self._sample_available(table, min(left, at_once), timeout=timeout)
            left -= sum(len(batch) for batch, _ in runs)
            rows = (row for batch, step in runs for row in samples_of(batch, step, timesteps, unpack, form))
            if self._random is None:
                yield from rows
                continue
            # A loop that stops early has not seen the items of one server only.
            shuffled = list(rows)
            self._random.shuffle(shuffled)
            yield from shuffled

    def _form(self, table: str, timeout: float | None) -> _native.Structure | None:
        """The structure of the table's signature; None where it has none."""
        of_table = self.server_info(timeout).get(table)
        return None if of_table is None or of_table.signature is None else _native.flatten(of_table.signature)[1]


def samples_of(
    batch: Batch, step: bool, timesteps: bool, unpack: bool, form: _native.Structure | None = None
) -> Iterator[list[ReplaySample] | ReplaySample]:
    """The items of a batch, as `Client.sample` returns them.

    Args:
        batch: the draws.
        step: True where each item is a single step that was inserted without a time axis.
        timesteps, unpack: as `emit_timesteps` and `unpack_as_table_signature`.
        form: the structure to unpack to; None is the stored one.
    """
    columns, structure = _native.flatten(batch.data)
    if form is not None and form != structure and len(form.paths) == len(columns):
        columns, structure = in_order_of(form, columns, structure), form
    info = batch.info
    fields = zip(
        info.key.tolist(),
        info.probability.tolist(),
        info.table_size.tolist(),
        info.priority.tolist(),
        info.times_sampled.tolist(),
        strict=True,
    )
    for row, values in enumerate(fields):
        sampled = SampleInfo(*values)
        cells = [column[row, ...] for column in columns]
        if step and not timesteps:
            cells = [cell[np.newaxis] for cell in cells]
        if not timesteps:
            yield ReplaySample(sampled, structure.unflatten(cells) if unpack else cells)
            continue
        steps = [cells] if step else _steps(cells, structure.paths)
        yield [ReplaySample(sampled, structure.unflatten(one) if unpack else one) for one in steps]


def _steps(cells: list[Any], paths: list[str]) -> list[list[Any]]:
    lengths = {len(cell) if cell.ndim else 1 for cell in cells}
    if len(lengths) > 1 or any(cell.ndim == 0 for cell in cells):
        shapes = ", ".join(f"'{path}' {cell.shape}" for path, cell in zip(paths, cells, strict=True))
        raise ValueError(f"the columns of this item have no common time axis ({shapes}); pass emit_timesteps=False")
    return [[cell[step, ...] for cell in cells] for step in range(lengths.pop())]
