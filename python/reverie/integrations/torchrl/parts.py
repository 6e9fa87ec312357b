"""A table as the parts of which TorchRL composes a replay buffer: storage, writer and sampler."""

from __future__ import annotations

from multiprocessing.context import get_spawning_popen
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tensordict import TensorDict, is_non_tensor, is_tensor_collection
from torchrl.data.replay_buffers import Sampler, Storage, Writer

from reverie import adapters
from reverie.adapters.torch import to_array
from reverie.integrations._replay_table import LocalTable, RemoteTable
from reverie.types import Batch

__all__ = ["TableSampler", "TableStorage", "TableWriter", "keys_of"]

#: The column that TorchRL's buffers add to what they extend and sample: the address of an item, here its key.
INDEX = "index"


def keys_of(index: Any) -> npt.NDArray[np.int64]:
    """The keys `[N]` of an index: an int, `[N]`, or `[N, ...]` as TorchRL expands it to the shape of a TensorDict.

    Raises:
        TypeError: for an index that is not of integers.
    """
    keys = np.atleast_1d(np.asarray(index.detach().cpu() if isinstance(index, torch.Tensor) else index))
    if keys.dtype.kind not in "iu":
        raise TypeError(
            f"an index must be an item's key, or a tensor of keys, as `extend` and `sample` return: {index!r}"
        )
    return keys.reshape(len(keys), -1)[:, 0].astype(np.int64, copy=False)


class TableStorage(Storage):  # type: ignore[misc]
    """The items of a table, addressed by their keys. It is written by `TableWriter`.

    Args:
        table: the table.
        batch_dims: the number of batch dimensions of a sample.
        device: of what is read; None means the CPU.
    """

    def __init__(self, table: LocalTable | RemoteTable, batch_dims: int, device: torch.device | str | None) -> None:
        super().__init__(table.max_size)
        self.table, self.batch_dims = table, batch_dims
        self.device = torch.device("cpu" if device is None else device)
        self._convert = adapters.converter("tensordict", device, None)

    def draw(self, batch_size: int) -> Batch:
        """Draws items, as a batch of one TensorDict.

        Raises:
            ValueError: the table is in this process, and empty.
            DeadlineExceededError: the table is on a server, and its limiter admitted no draw within the client's
                timeout.
        """
        return self._converted(self.table.sample(batch_size, None))

    def get(self, index: Any) -> TensorDict:
        """The items of these keys; `[:]` reads all, the oldest first.

        Raises:
            UnknownKeyError: an item has left the table.
            TypeError: for another slice, or a value that is not a key.
        """
        if isinstance(index, slice):
            if index != slice(None):
                raise TypeError(f"a table has no positions: read [:], or the items of keys, not {index}")
            index = self.table.client.query(self.table.name).key
        keys = keys_of(index)
        data = self._converted(self.table.client.get(self.table.name, keys)).data
        return data[0] if np.ndim(index) == 0 else data

    def set(self, cursor: Any, data: Any, *, set_cursor: bool = True) -> None:
        """Raises TypeError: an item of a table never changes."""
        raise TypeError("an item of a table cannot be changed; add a new one, or change its priority")

    def contains(self, item: Any) -> torch.Tensor:
        """True for each key whose item is in the table."""
        return torch.from_numpy(np.isin(keys_of(item), self.table.client.query(self.table.name).key))

    def __len__(self) -> int:
        return self.table.client.server_info()[self.table.name].current_size

    def _empty(self) -> None:
        self.table.client.reset(self.table.name)

    def state_dict(self) -> dict[str, Any]:
        """The files of a checkpoint, by name; none of a table on a server, which takes one in its own folder."""
        return {"checkpoint": self.table.checkpoint()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Replaces the items by those of a checkpoint; those on a server stay."""
        self.table = self.table.restored(state_dict["checkpoint"])

    def dumps(self, path: str | Path) -> None:
        """Writes the files of a checkpoint to a folder, in place of the files that it has."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for name, content in self.table.checkpoint().items():
            (folder / name).write_bytes(content)

    def loads(self, path: str | Path) -> None:
        """Replaces the items by those that `dumps` wrote; those on a server stay."""
        self.load_state_dict({"checkpoint": {file.name: file.read_bytes() for file in Path(path).iterdir()}})

    def _converted(self, batch: Batch) -> Batch:
        assert self._convert is not None
        batch = self._convert(batch)
        if self.batch_dims > 1:
            first = next(iter(batch.data.values(True, True)))
            batch.data.batch_size = first.shape[: self.batch_dims]
        return batch

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is not None and isinstance(self.table, LocalTable):
            raise TypeError(
                "a replay buffer in this process cannot be sent to another one, which would fill a copy of its own: "
                "keep the table on a server, and pass server= to the buffer"
            )
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_convert"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._convert = adapters.converter("tensordict", self.device, None)


class TableWriter(Writer):  # type: ignore[misc]
    """Inserts TensorDicts, each row an item, with the largest priority in the table where it is prioritised.

    Args:
        priority: of new items.
    """

    def __init__(self, priority: Any) -> None:
        super().__init__()
        self._priority = priority

    @property
    def _write_count(self) -> int:
        """The items inserted so far, by all processes, for TorchRL's collectors."""
        table = self._storage.table
        return int(table.client.server_info()[table.name].num_inserts)

    def add(self, data: Any) -> int:
        """Inserts one item; its key."""
        return int(self._insert(data.unsqueeze(0), 1)[0])

    def extend(self, data: Any) -> torch.Tensor:
        """Inserts items; their keys, int64 `[N]`."""
        return torch.from_numpy(self._insert(data, 0))

    def _insert(self, data: Any, added: int) -> npt.NDArray[np.int64]:
        if not is_tensor_collection(data):
            raise TypeError(f"a replay buffer of Reverie takes TensorDicts, got a {type(data).__name__}")
        wanted = self._storage.batch_dims
        if data.batch_dims != wanted:
            shape = list(data.batch_size[added:])
            raise ValueError(
                f"the batch size is {shape}, {data.batch_dims - added} dimensions, and must have {wanted - added}: "
                f"reshape(-1) makes each step an item; batch_dims={data.batch_dims} of the buffer makes each row one"
            )
        table = self._storage.table
        keys: npt.NDArray[np.int64] = table.client.insert_batch(table.name, _columns(data, ""), self._priority)
        return keys

    def _empty(self, empty_write_count: bool = True) -> None:
        """The storage drops the items."""

    def dumps(self, path: Any) -> None:
        """Nothing: the storage writes the items."""

    def loads(self, path: Any) -> None:
        """Nothing: the storage reads the items."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the storage has the items."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing: the storage has the items."""


class TableSampler(Sampler):  # type: ignore[misc]
    """The draws of a table, uniform or prioritised.

    Args:
        beta: the exponent of the importance weights; None where the table is not prioritised.
        eps: added to priorities.
        reduction: how the priorities of one item's steps become one: "max", "min", "mean", "median" or "sum".
    """

    def __init__(self, beta: float | None = None, eps: float = 0.0, reduction: str = "max") -> None:
        self.beta, self.eps, self.reduction = beta, eps, reduction

    def sample(self, storage: TableStorage, batch_size: int) -> tuple[torch.Tensor, dict[str, Any]]:
        """Keys `[N]` of items, and the rest of `info`. A buffer draws and reads in one call instead."""
        batch = storage.draw(batch_size)
        return torch.from_numpy(batch.info.key), self.info(batch)

    def info(self, batch: Batch) -> dict[str, Any]:
        """The weights that a prioritised buffer adds to a sample, divided by the largest of any item of the table."""
        return {} if self.beta is None else {"priority_weight": batch.weights(self.beta, normalise="table")}

    def update_priority(self, index: Any, priority: Any, *, storage: TableStorage | None = None) -> None:
        """Sets the priorities of items, plus `eps`; keys of items that have left the table are ignored.

        Args:
            index: keys, as `extend` and `sample` return them.
            priority: one for all, or `[N]` or `[N, 1]`.
            storage: the table.

        Raises:
            TypeError: for an index that is not of integers.
            ValueError: for another number of priorities than of keys.
        """
        if self.beta is None:
            super().update_priority(index, priority)  # Warns: nothing is prioritised.
            return
        assert storage is not None
        keys = keys_of(index)
        values = np.asarray(torch.as_tensor(priority).detach().cpu(), np.float64).reshape(-1) + self.eps
        if values.size not in (1, keys.size):
            raise ValueError(f"there are {values.size} priorities for {keys.size} items")
        storage.table.update_priorities(keys, np.broadcast_to(values, keys.shape))

    def _empty(self) -> None:
        """The storage drops the items, with their priorities."""

    def state_dict(self) -> dict[str, Any]:
        """The exponent of the weights: the storage has the priorities."""
        return {"beta": self.beta}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Sets the exponent of the weights."""
        self.beta = state_dict["beta"]

    def dumps(self, path: str | Path) -> None:
        """Writes the exponent of the weights."""
        torch.save(self.state_dict(), path)

    def loads(self, path: str | Path) -> None:
        """Reads the exponent of the weights."""
        self.load_state_dict(torch.load(path))


def _columns(data: Any, path: str) -> dict[str, Any]:
    """The arrays of a TensorDict, but its index."""
    columns = {}
    for name, leaf in data.items():
        if not path and name == INDEX:
            continue
        at = f"{path}/{name}" if path else name
        if is_non_tensor(leaf):
            raise TypeError(f"'{at}' is a {type(leaf).__name__}; a table takes tensors: exclude it before `extend`")
        columns[name] = _columns(leaf, at) if is_tensor_collection(leaf) else to_array(leaf)
    return columns
