"""Replay buffers for the losses, collectors and trainers of TorchRL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from tensordict.nn.utils import _set_dispatch_td_nn_modules
from torchrl.data import TensorDictReplayBuffer
from torchrl.data.replay_buffers.utils import _reduce

from reverie import _checks, selectors
from reverie.client import Client
from reverie.integrations._replay_table import LocalTable, RemoteTable, check_alone, check_prioritized
from reverie.integrations.torchrl.parts import TableSampler, TableStorage, TableWriter
from reverie.tables import Compression

__all__ = ["PrioritizedReplayBuffer", "ReplayBuffer"]

#: A server: an address, several, or a client.
Servers = str | Sequence[str] | Client


class ReplayBuffer(TensorDictReplayBuffer):  # type: ignore[misc]
    """A table of Reverie as a replay buffer of TorchRL.

    `add` and `extend` take TensorDicts and return keys of items; `sample` returns a TensorDict with the keys as
    `"index"`; `buffer[keys]` reads items. Threads may share it. A draw and an insert do not wait for each other.

    Args:
        max_size: the number of items; the oldest leave first. A server's table has its own, which counts instead.
        server: None keeps the items in this process. An address, several addresses, or a `reverie.Client` (for a token
            or TLS): on that server, which other processes can share.
        table: the table's name on the server.
        batch_size: of `sample()`.
        prefetch: the number of batches that threads draw ahead.
        transform, transform_factory: as for TorchRL's buffers: applied to samples, and inverted to what is added.
        priority_key: the entry of a TensorDict that `update_tensordict_priority` reads.
        batch_dims: the number of batch dimensions of a sample: 1 for steps, 2 for sequences, whose samples have the
            batch size `[B, T]`.
        device: of samples; None means the CPU.
        compression: of the table in this process, see `reverie.Table`; None means "auto".
        seed: of the draws in this process; None takes PyTorch's initial seed.

    Raises:
        ValueError: for options of the table in this process together with `server`.
        UnknownTableError: the server has no such table.
    """

    #: The priority of new items.
    _priority: float | Literal["max"] = 1.0

    def __init__(
        self,
        max_size: int | None = None,
        *,
        server: Servers | None = None,
        table: str = "replay",
        batch_size: int | None = None,
        prefetch: int | None = None,
        transform: Any = None,
        transform_factory: Callable[[], Any] | None = None,
        priority_key: Any = "td_error",
        batch_dims: int = 1,
        device: torch.device | str | None = None,
        compression: Compression | None = None,
        seed: int | None = None,
    ) -> None:
        batch_dims = _checks.count("batch_dims", batch_dims, 1)
        if server is None:
            if max_size is None:
                raise ValueError("a replay buffer in this process needs max_size, the number of items")
            items: LocalTable | RemoteTable = LocalTable(
                {
                    "name": table,
                    "sampler": self._selector(torch.initial_seed() % 2**64 if seed is None else seed),
                    "remover": selectors.Fifo(),
                    "max_size": max_size,
                    "compression": "auto" if compression is None else compression,
                }
            )
        else:
            check_alone(max_size=max_size, compression=compression, seed=seed)
            items = self._remote(RemoteTable(server, table))
        super().__init__(
            storage=TableStorage(items, batch_dims, device),
            sampler=self._sampler_part(),
            writer=TableWriter(self._priority),
            collate_fn=_same,
            batch_size=batch_size,
            prefetch=prefetch,
            transform=transform,
            transform_factory=transform_factory,
            priority_key=priority_key,
        )

    @property
    def client(self) -> Client:
        """The client of the table, for its figures and for calls that TorchRL does not make."""
        return self.storage.table.client  # type: ignore[no-any-return]

    def update_tensordict_priority(self, data: Any) -> None:
        """Sets the priorities of sampled items from `data[priority_key]`; nothing where the table is not prioritised.

        Args:
            data: a sample, or a part of it with its `"index"`. Entries `[B, ...]` are reduced to one for each item.
        """
        priority = data.get(self.priority_key, None)
        if priority is None or self.sampler.beta is None:
            return
        if data.ndim:
            priority = _reduce(priority.reshape(len(priority), -1), self.sampler.reduction, dim=1)
        elif priority.numel() > 1:
            priority = _reduce(priority, self.sampler.reduction)
        self.update_priority(data.get("index"), priority)

    def share(self, shared: bool = True) -> ReplayBuffer:
        """Called by collectors before they send the buffer to other processes. The server takes care of writers."""
        super().share(False)
        self.shared = shared
        return self

    def set_storage(self, storage: Any, collate_fn: Any = None) -> Any:
        """Raises TypeError: the table is storage, writer and sampler."""
        raise TypeError(_ONE_PART)

    def set_sampler(self, sampler: Any) -> Any:
        """Raises TypeError: the table is storage, writer and sampler."""
        raise TypeError(_ONE_PART)

    def set_writer(self, writer: Any) -> Any:
        """Raises TypeError: the table is storage, writer and sampler."""
        raise TypeError(_ONE_PART)

    def _sample(self, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """Draws and reads in one call, without TorchRL's locks: on a server a draw may wait for an insert."""
        batch = self._storage.draw(batch_size)
        data = batch.data
        if self._transform is not None and len(self._transform):
            with data.unlock_(), _set_dispatch_td_nn_modules(True):
                data = self._transform(data)
        return data, {"index": torch.from_numpy(batch.info.key), **self._sampler.info(batch)}

    def _selector(self, seed: int) -> selectors.Selector:
        """The sampler of the table in this process."""
        return selectors.Uniform(seed=seed)

    def _sampler_part(self) -> TableSampler:
        return TableSampler()

    def _remote(self, table: RemoteTable) -> RemoteTable:
        """Checks the table of a server."""
        return table


class PrioritizedReplayBuffer(ReplayBuffer):
    """Prioritised replay (Schaul et al. 2016), in place of TorchRL's `TensorDictPrioritizedReplayBuffer`.

    Samples have `"priority_weight"` `[B]`, float32: divided by the largest weight of any item of the table, as in
    TorchRL. New items have the largest priority in the table, or that of their `priority_key`.
    A schedule of `torchrl.data.replay_buffers.scheduler` changes `buffer.sampler.beta`.

    Args:
        max_size: as for `ReplayBuffer`.
        alpha: the exponent of priorities, 0 for uniform draws; None means 0.6. A server's table has its own.
        beta: how much of the bias the weights correct, from 0 to 1.
        eps: added to priorities, so that none is 0.
        reduction: how the priorities of one item become one: "max", "min", "mean", "median" or "sum".
        options: as for `ReplayBuffer`.

    Raises:
        ValueError: also for a server's table whose sampler has no priorities, or a beta outside [0, 1].
    """

    _priority = "max"

    def __init__(
        self,
        max_size: int | None = None,
        *,
        alpha: float | None = None,
        beta: float = 0.4,
        eps: float = 1e-8,
        reduction: Literal["max", "min", "mean", "median", "sum"] = "max",
        **options: Any,
    ) -> None:
        if not 0.0 <= beta <= 1.0:
            raise ValueError(f"beta must be between 0 and 1, got {beta}")
        if options.get("server") is not None:
            check_alone(alpha=alpha)
        self._alpha, self._weights = alpha, (beta, eps, reduction)
        super().__init__(max_size, **options)

    def _selector(self, seed: int) -> selectors.Selector:
        return selectors.Prioritized(0.6 if self._alpha is None else self._alpha, seed=seed)

    def _sampler_part(self) -> TableSampler:
        return TableSampler(*self._weights)

    def _remote(self, table: RemoteTable) -> RemoteTable:
        check_prioritized(table)
        return table


_ONE_PART = (
    "a table is the storage, the writer and the sampler of its buffer, and none can be replaced; make another buffer"
)


def _same(data: Any) -> Any:
    """TorchRL's collate function, for a batch that is one already."""
    return data
