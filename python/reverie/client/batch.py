"""What a client reads as batches, one behind the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from reverie import adapters
from reverie.client.table import Keeping
from reverie.datasets import Batches


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
            prefetch: batches made ahead at most; None is 2, or 0 where draws consume items of a table.
            columns, ragged, without_replacement: as for `sample_batch`.
            max_samples: draws in all.
            timeout: seconds that each batch may take.
            as_: what the columns of `Batch.data` are: NumPy's arrays, tensors, JAX's arrays, or one TensorDict. The
                info stays NumPy.
            device: of tensors and JAX's arrays, where to; None is the CPU.
            pinned: copy tensors through page-locked memory without waiting; None does so for a CUDA device.
        """
        convert = adapters.converter(as_, device, pinned)
        if prefetch is None:
            names = [table] if isinstance(table, str) else list(table)
            prefetch = 0 if any(self._consumes(name) for name in names) else 2
        return Batches(
            self,
            table,
            batch_size,
            prefetch=prefetch,
            columns=columns,
            ragged=ragged,
            max_samples=max_samples,
            timeout=timeout,
            without_replacement=without_replacement,
            convert=convert,
        )
