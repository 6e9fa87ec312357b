"""The calls of a client that return iterators of batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

from reverie import _checks, adapters
from reverie.client.table import TableCalls
from reverie.datasets import Annealed, Batches
from reverie.datasets.batches import checked_windows
from reverie.datasets.sending import Send
from reverie.types import Borders


class BatchCalls(TableCalls):
    """The calls of a client that return iterators of batches."""

    #: That of a client that traces makes spans.
    _kind_of_batches = Batches

    def batches(
        self,
        table: str | Mapping[str, float | Annealed],
        batch_size: int,
        *,
        prefetch: int | None = None,
        columns: list[str] | None = None,
        ragged: Literal["pad", "values"] | None = None,
        max_samples: int | None = None,
        timeout: float | None = None,
        without_replacement: bool = False,
        as_: adapters.As = "numpy",
        device: Any = None,
        pinned: bool | None = None,
        sent_ahead: int | None = None,
        seed: int | None = None,
    ) -> Batches:
        """Batches for a training loop, drawn in the background; see `reverie.datasets.Batches`.

        Args:
            table: a table, or a mapping of tables to their shares of every batch: numbers, or
                `reverie.datasets.Annealed` for shares that change from batch to batch.
            batch_size: draws per batch.
            prefetch: the largest number of batches to draw ahead. None means 2, or more over a network with a long
                delay (within the client's `max_in_flight_bytes`), and 0 for a table that deletes sampled items.
            columns, ragged, without_replacement: as for `sample_batch`.
            max_samples: draws in total; None means no limit.
            timeout: seconds that each batch may take.
            as_: the type of the columns in `Batch.data`: NumPy arrays, PyTorch tensors, JAX arrays, or one TensorDict.
                `Batch.info` stays NumPy; `Batch.weights` gives the type of the columns.
            device: the device of tensors and JAX arrays; None means the CPU.
            pinned: copies tensors to a GPU through page-locked memory, without waiting for the copy; None does so for a
                CUDA device.
            sent_ahead: the largest number of batches that a thread copies to a CUDA device before the loop asks for
                them, in parallel to the device's work and in addition to those of `prefetch`; 0 copies each on the
                loop's own thread. None means 2 for a CUDA device where batches are drawn ahead and pinned, and 0 for a
                table that deletes sampled items: what was sent does not return to it if the iterator is not closed.
            seed: of annealed shares, whose counts are rounded at random so that their expectation is exact; None takes
                a random seed.
        """
        return self._batches(
            table,
            batch_size,
            prefetch,
            sent_ahead,
            as_,
            device,
            pinned,
            columns=columns,
            ragged=ragged,
            max_samples=max_samples,
            timeout=timeout,
            without_replacement=without_replacement,
            seed=seed,
        )

    def windows(
        self,
        table: str | Mapping[str, float | Annealed],
        batch_size: int,
        length: int,
        burn_in: int = 0,
        borders: Borders = "drop",
        timeout: float | None = None,
        *,
        prefetch: int | None = None,
        columns: list[str] | None = None,
        max_samples: int | None = None,
        as_: adapters.As = "numpy",
        device: Any = None,
        pinned: bool | None = None,
        sent_ahead: int | None = None,
        seed: int | None = None,
    ) -> Batches:
        """Batches of fixed-length windows of stored episodes or sequences, without an end; for R2D2 or Dreamer.

        Each draw selects an item with the table's sampler, and then one of the item's windows, all with the same
        probability. Only the cells of the windows are copied and sent. Columns with a time axis become `[B, T, ...]`
        with `T = burn_in + length`; other columns (such as one state per episode) stay `[B, ...]`.

        `Batch.is_first` `[B, T]` is true at the first step of each window and of each episode. `Batch.loss_mask`
        `[B, T]` is true at the steps to learn from. The first `Batch.burn_in` steps of T only warm up a recurrent
        state. `Batch.start` `[B]` is the step of the item at which the window begins.

        With several servers, items that a window fits into are drawn as from one table of all items; "cross" continues
        in items of the same writer, which are on the same server.

        Args:
            table: a table, or a mapping of tables to their shares of every batch, as for `batches`.
            batch_size: windows per batch.
            length: the number of steps to learn from.
            burn_in: the number of steps before these (Kapturowski et al. 2019, R2D2, section 3).
            borders: how windows that cross an end of their item are handled.
                "drop": they are not drawn. An item with fewer than T steps has no window: its draw counts for the
                table's rate limiter, and another item is drawn instead.
                "pad": the steps to learn from begin at any step of the item. Steps before its first and after its last
                are zeros, and false in `Batch.mask` `[B, T]`.
                "cross": a window begins at any step, and continues in the items that the same writer inserted next (in
                a vector writer: the same environment); a step that both items have is taken once. A window does not
                begin where too few steps were written to fill it. Items are joined even where they neither overlap
                nor follow each other directly.
            timeout: seconds that each batch may take.
            prefetch, columns, max_samples, as_, device, pinned, sent_ahead, seed: as for `batches`.

        Raises:
            ValueError: for sizes below 1; raised by the iterator: "drop" or "cross" on a table that deletes sampled
                items (`max_times_sampled`).
            RaggedError: raised by the iterator: items have no common time axis, or none of 1000 draws is long enough.
        """
        return self._batches(
            table,
            batch_size,
            prefetch,
            sent_ahead,
            as_,
            device,
            pinned,
            columns=columns,
            max_samples=max_samples,
            timeout=timeout,
            windows=checked_windows(length, burn_in, borders),
            seed=seed,
        )

    def _batches(
        self,
        table: str | Mapping[str, float | Annealed],
        batch_size: int,
        prefetch: int | None,
        sent_ahead: int | None,
        as_: adapters.As,
        device: Any,
        pinned: bool | None,
        *,
        timeout: float | None,
        **options: Any,
    ) -> Batches:
        """The iterator; where a default depends on whether the tables delete sampled items, one request asks for it."""
        names = [table] if isinstance(table, str) else list(table)
        consumes = functools.cache(lambda: self._consume(names, timeout))
        convert = adapters.converter(as_, device, pinned)
        ahead = prefetch if prefetch is not None else 0 if consumes() else 2
        send = adapters.sender(as_, device, pinned) if ahead else None
        return self._kind_of_batches(
            self,
            table,
            batch_size,
            prefetch=ahead,
            # A long delay to the server may increase the default.
            widens=prefetch is None and ahead > 0,
            timeout=timeout,
            convert=convert,
            send=send,
            sent_ahead=_sent_ahead(sent_ahead, ahead, send, consumes),
            **options,
        )


def _sent_ahead(asked: int | None, prefetch: int, send: Send | None, consumes: Callable[[], bool]) -> int:
    """The number of batches to send ahead. Raises ValueError for one that nothing would send."""
    if asked is None:
        # A batch that was sent does not return to its table.
        return 2 if prefetch and send is not None and not consumes() else 0
    count = _checks.count("sent_ahead", asked, 0)
    if count and not prefetch:
        raise ValueError(f"sent_ahead is {count}, and prefetch is 0, which draws a batch when the loop asks for it")
    if count and send is None:
        raise ValueError(f"sent_ahead is {count}, and is for tensors on a CUDA device, through pinned memory")
    return count
