"""Batches for a training loop, drawn in the background."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, cast, final, get_args

import numpy as np

from reverie import _checks, _native
from reverie._forks import OwnerProcess
from reverie.datasets.sending import BatchSender, Send
from reverie.datasets.shares import Annealed, annealed_shares
from reverie.errors import ClosedError, UnavailableError
from reverie.types import Batch, Borders

__all__ = ["Batches"]


@final
class Batches(Iterator[Batch]):
    """An iterator of batches; `client.batches(...)` makes it.

    A thread of the engine draws and gathers up to `prefetch` batches ahead. With `prefetch=0` each batch is drawn when
    it is asked for. For a GPU another thread sends up to `sent_ahead` of them there. Use it as a context manager, or
    `close` it: what was drawn and not delivered is then in `leftover`. If an iterator is dropped without that, draws
    of a table that deletes sampled items return to their table.

    Args:
        tables: a table's name, or a mapping of names to shares: positive numbers, or `Annealed` for shares that change
            from batch to batch. With shares, a batch has the draws of the first table, then those of the next, and
            `Batch.info` the same order; `weights(normalise="table")` is not available.
        batch_size: draws per batch.
        prefetch: the largest number of batches to draw ahead.
        widens: True draws more batches ahead over a network, as many as fill the connection within the client's
            `max_in_flight_bytes`.
        columns, ragged, without_replacement: as for `sample_batch`.
        max_samples: draws in total; the last batch may be smaller.
        timeout: seconds that each batch may take; None takes the client's default. The iterator can be used again after
            a DeadlineExceededError. After an UnavailableError or a ClosedError of a table every call raises it again:
            make another iterator once the servers are back.
        windows: (length, burn_in, borders) of `client.windows`.
        convert: a function that is applied to every batch, on the reader's thread.
        send: a function that converts batches in its place, on a thread of its own, if `sent_ahead` is above 0.
        sent_ahead: the largest number of batches that are sent before they are read, in addition to those of
            `prefetch`.
        seed: of annealed shares: the draws of a table in a batch are its exact number rounded down or up by a random
            number of this seed and the batch, so that their expectation is exact. None takes a random seed.

    Raises:
        ValueError: for sizes below 1, constant shares that leave a table without a draw, a batch in which no table has
            a share, or a seed without annealed shares.
    """

    leftover: list[Batch]
    """Batches that were drawn and not delivered, in order: one whose conversion failed, or that Ctrl-C ended the wait
    for, and after `close` those that were prefetched. Over a network draws whose answer is late, and those of a lost
    connection, are not here: they go back to their table."""

    def __init__(
        self,
        client: _native.Client,
        tables: str | Mapping[str, float | Annealed],
        batch_size: int,
        *,
        prefetch: int,
        widens: bool = False,
        columns: list[str] | None = None,
        ragged: Literal["pad", "values"] | None = None,
        max_samples: int | None = None,
        timeout: float | None = None,
        without_replacement: bool = False,
        windows: tuple[int, int, Borders] | None = None,
        convert: Callable[[Batch], Batch] | None = None,
        send: Send | None = None,
        sent_ahead: int = 0,
        seed: int | None = None,
    ) -> None:
        batch_size = _checks.count("batch_size", batch_size, 1)
        prefetch = _checks.count("prefetch", prefetch, 0)
        if max_samples is not None:
            max_samples = _checks.count("max_samples", max_samples, 1)
        self.leftover = []
        self.tables, mixture = _parts(tables, batch_size, seed)
        self._client = client
        self._process = OwnerProcess("iterator of batches")
        self._timeout = timeout
        self._convert = convert
        self._left = max_samples
        self._closed = False
        self._options: dict[str, Any] = {
            "columns": columns,
            "ragged": ragged,
            "without_replacement": without_replacement,
        }
        self._windows = windows
        self._ahead: _BatchesAhead | None = None
        if prefetch or len(self.tables) > 1:
            given: dict[str, Any] = {} if windows is None else {"windows": windows}
            if widens:
                given["widens"] = True
            if mixture is not None:
                given["mixture"] = mixture
            # The thread also combines the draws of several tables, so it runs for these with `prefetch=0` too.
            ahead = _native.Prefetch(
                client,
                list(self.tables.items()),
                ahead=max(1, prefetch),
                max_samples=max_samples,
                **given,
                **self._options,
            )
            self._ahead = _BatchesAhead(ahead)
        self._sender: BatchSender | None = None
        if send is not None and sent_ahead and self._ahead is not None:
            self._sender = BatchSender(_drawing(self._ahead, windows), send, sent_ahead)

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Batch:
        if self._closed:
            raise ClosedError("these batches are closed", name="batches")
        batch = self._next() if self._sender is None else self._sent(self._sender)
        if batch is None:
            raise StopIteration
        if self._sender is not None:
            return batch
        if self._windows is not None:
            _mark_windows(batch, self._windows)
        if self._convert is None:
            return batch
        try:
            return self._convert(batch)
        except BaseException:
            # Draws of a consuming table are nowhere else.
            self._keep_undelivered([batch])
            raise

    def _next(self) -> Batch | None:
        return self._draw() if self._ahead is None else self._ahead.next(self._timeout)

    def _sent(self, sender: BatchSender) -> Batch | None:
        try:
            return sender.next(self._client.timeout if self._timeout is None else self._timeout)
        except BaseException:
            self.leftover.extend(sender.drain_failed())
            raise

    def _draw(self) -> Batch | None:
        [(table, count)] = self.tables.items()
        if self._left is not None:
            count = min(count, self._left)
            if count == 0:
                return None
        try:
            if self._windows is None:
                batch = self._client.sample_batch(table, count, timeout=self._timeout, **self._options)
            else:
                columns = self._options["columns"]
                batch = self._client._sample_windows(table, count, self._windows, self._timeout, columns)
        except KeyboardInterrupt as interrupt:
            # Items of a table that deletes sampled items are nowhere else.
            partial = getattr(interrupt, "partial", None)
            self._keep_undelivered([] if partial is None else [partial])
            raise
        if self._left is not None:
            self._left -= count
        return batch

    def close(self) -> None:
        """Stops drawing; `leftover` then has what was not delivered. Idempotent.

        Over a network it waits for the answer to each batch that is under way, for the client's `grace` at most.
        """
        self._closed = True
        if self._sender is not None:
            self.leftover.extend(self._sender.close())
        if self._ahead is not None:
            self._keep_undelivered(self._ahead.close())

    def _keep_undelivered(self, batches: list[Batch]) -> None:
        for batch in batches:
            # Items that cannot become windows are left whole.
            if self._windows is not None and batch.is_first is not None:
                _mark_windows(batch, self._windows)
        self.leftover.extend(batches)

    def __enter__(self) -> Batches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.is_here():  # a forked child that leaves the block ends with its own exit
            self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("an iterator of batches belongs to its process and cannot be pickled; make it where it is used")


class _BatchesAhead:
    """The batches that the engine draws ahead.

    They end where the servers are lost, or their tables closed. That is not the end that the reader asked for: the
    error is raised again, at every call.
    """

    def __init__(self, ahead: _native.Prefetch) -> None:
        self._ahead = ahead
        self._lost: UnavailableError | ClosedError | None = None

    def next(self, timeout: float | None) -> Batch | None:
        try:
            batch = self._ahead.next(timeout)
        except (UnavailableError, ClosedError) as error:
            self._lost = error
            raise
        if batch is None and self._lost is not None:
            raise self._lost.with_traceback(None)
        self._lost = None
        return batch

    def close(self) -> list[Batch]:
        return self._ahead.close()


def _drawing(ahead: _BatchesAhead, windows: tuple[int, int, Borders] | None) -> Callable[[float], Batch | None]:
    """A function that draws the next batch, without a reference to its iterator."""

    def draw(timeout: float) -> Batch | None:
        batch = ahead.next(timeout)
        if batch is not None and windows is not None:
            _mark_windows(batch, windows)
        return batch

    return draw


def _mark_windows(batch: Batch, windows: tuple[int, int, Borders]) -> None:
    length, batch.burn_in, _ = windows
    shape = (len(batch), batch.burn_in + length)
    batch.loss_mask = np.ones(shape, bool) if batch.mask is None else batch.mask.copy()
    batch.loss_mask[:, : batch.burn_in] = False


def checked_windows(length: int, burn_in: int, borders: Borders) -> tuple[int, int, Borders]:
    """The arguments of a client's `windows`; ValueError for invalid ones."""
    windows = (_checks.count("length", length, 1), _checks.count("burn_in", burn_in, 0), borders)
    if borders not in get_args(Borders):
        raise ValueError(f'borders must be "drop", "pad" or "cross", got {borders!r}')
    return windows


def _parts(
    tables: str | Mapping[str, float | Annealed], batch_size: int, seed: int | None
) -> tuple[dict[str, int], tuple[int, list[tuple[float, float, int, int]]] | None]:
    """The draws of each table in a batch, at most; and the lines and the seed of annealed shares."""
    if not isinstance(tables, Mapping) or not any(isinstance(share, Annealed) for share in tables.values()):
        if seed is not None:
            raise ValueError("seed is for annealed shares; draws follow the seeds of the tables' samplers")
        return split(cast("str | Mapping[str, float]", tables), batch_size), None
    lines = annealed_shares(tables)
    seed = int.from_bytes(os.urandom(8), "little") if seed is None else _checks.count("seed", seed, 0, _checks.MANY)
    mixture = [(line.first, line.last, line.start, line.batches) for line in lines.values()]
    return dict.fromkeys(lines, batch_size), (seed, mixture)


def split(tables: str | Mapping[str, float], batch_size: int) -> dict[str, int]:
    """The draws of each table in a batch: its share, rounded so that the sum is `batch_size` (largest remainder).

    Raises:
        TypeError: for `tables` that are neither a name nor a mapping, or a share that is not a number.
        ValueError: for a share that is not above 0, no tables, or a table without a draw in a batch.
    """
    if isinstance(tables, str):
        return {tables: batch_size}
    if not isinstance(tables, Mapping):
        raise TypeError(f"table must be a table's name or a mapping of names to shares, got {tables!r}")
    shares = {table: _checks.number(f"the share of table '{table}'", share) for table, share in tables.items()}
    if not shares or not all(share > 0 and math.isfinite(share) for share in shares.values()):
        raise ValueError(f"shares must be of at least one table, and each a finite number above 0, got {shares}")
    total = sum(shares.values())
    exact = {table: batch_size * share / total for table, share in shares.items()}
    counts = {table: math.floor(count) for table, count in exact.items()}
    by_remainder = sorted(exact, key=lambda table: counts[table] - exact[table])
    for table in by_remainder[: batch_size - sum(counts.values())]:
        counts[table] += 1
    if not all(counts.values()):
        raise ValueError(f"a batch of {batch_size} has no draw for some table of {shares}; raise batch_size")
    return counts
