"""What a client reads as batches, one behind the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from reverie import adapters
from reverie.client.table import Keeping
from reverie.datasets import Batches
from reverie.datasets.batches import checked_windows
from reverie.types import Borders


class Batching(Keeping):
    """The part of a client that gives iterators of batches."""

    def batches(
        self,
        table: str | Mapping[str, float],
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
    ) -> Batches:
        """The read path of a training loop; see `reverie.datasets.Batches`.

        Args:
            table: a table, or a mapping of tables to their shares of every batch.
            batch_size: draws of a batch.
            prefetch: batches made ahead at most. None is 2, over a network more where that fills the way to the server
                (within the client's `max_in_flight_bytes`), and 0 where draws consume items of a table.
            columns, ragged, without_replacement: as for `sample_batch`.
            max_samples: draws in all.
            timeout: seconds that each batch may take.
            as_: what the columns of `Batch.data` are: NumPy's arrays, tensors, JAX's arrays, or one TensorDict. The
                info stays NumPy.
            device: of tensors and JAX's arrays, where to; None is the CPU.
            pinned: copy tensors through page-locked memory without waiting; None does so for a CUDA device.
        """
        convert = adapters.converter(as_, device, pinned)
        ahead, widens = self._ahead(table, timeout) if prefetch is None else (prefetch, False)
        return Batches(
            self,
            table,
            batch_size,
            prefetch=ahead,
            widens=widens,
            columns=columns,
            ragged=ragged,
            max_samples=max_samples,
            timeout=timeout,
            without_replacement=without_replacement,
            convert=convert,
        )

    def windows(
        self,
        table: str | Mapping[str, float],
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
    ) -> Batches:
        """Batches of fixed-length windows of stored episodes or sequences, without end; what R2D2 and Dreamer read.

        Each draw picks an item as the table's sampler says, and then one of the windows that the item has, all equally
        likely. Only the cells of the windows are copied, and sent. Columns with a time axis become `[B, T, ...]` with
        `T = burn_in + length`; those without (one state per episode, say) stay `[B, ...]`.

        `Batch.is_first` `[B, T]` is true at the first step of a window and wherever another episode begins,
        `Batch.loss_mask` `[B, T]` at the steps to learn from, `Batch.burn_in` of the first T are only there to warm a
        state up, and `Batch.start` `[B]` is the step of the item at which the window begins.

        Args:
            table: a table, or a mapping of tables to their shares of every batch.
            batch_size: windows of a batch.
            length: steps to learn from.
            burn_in: steps before these (Kapturowski et al. 2019, R2D2, section 3).
            borders: what becomes of windows that reach over the end of their item.
                "drop": there are none; an item with fewer than T steps gives no window. Drawing one counts to the
                table's limiter, and another is drawn in its place.
                "pad": the steps to learn from begin at any step of the item. Steps before its first and behind its last
                are zeros, and false in `Batch.mask` `[B, T]`.
                "cross": windows begin at any step and go on in the items that the same writer (of a vector writer: the
                same environment) inserted behind, steps that overlap taken once; where too few steps have been written
                yet, at none from which a window would not be full. Items that neither overlap nor follow each other
                are joined all the same.
            timeout: seconds that each batch may take.
            prefetch, columns, max_samples, as_, device, pinned: as for `batches`.

        Raises:
            ValueError: for sizes below 1, or "drop" or "cross" on a table that gives its items away
                (`max_times_sampled`).
            RaggedError: of the iterator: items without a common time axis, or no item long enough in 1000 draws.
        """
        ahead, widens = self._ahead(table, timeout) if prefetch is None else (prefetch, False)
        return Batches(
            self,
            table,
            batch_size,
            prefetch=ahead,
            widens=widens,
            columns=columns,
            max_samples=max_samples,
            timeout=timeout,
            windows=checked_windows(length, burn_in, borders),
            convert=adapters.converter(as_, device, pinned),
        )

    def _ahead(self, table: str | Mapping[str, float], timeout: float | None) -> tuple[int, bool]:
        """How many batches are made ahead where the caller does not say, and whether a long way makes them more."""
        names = [table] if isinstance(table, str) else list(table)
        return (0, False) if any(self._consumes(name, timeout) for name in names) else (2, True)
