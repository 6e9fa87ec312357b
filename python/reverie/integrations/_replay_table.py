"""The table of a replay buffer: in this process, or on a server."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from reverie import rate_limiters, selectors
from reverie.checkpointers import DefaultCheckpointer
from reverie.client import Client
from reverie.errors import DeadlineExceededError
from reverie.server import Server
from reverie.tables import Table
from reverie.types import Batch
from reverie.writers import TrajectoryWriter

__all__ = ["LocalTable", "Ragged", "RemoteTable"]

#: The form of columns whose items differ in length, see `reverie.Client.sample_batch`.
Ragged = Literal["pad", "values"] | None
#: The reason why most buffers cannot sample while their table is empty.
_EMPTY = "no complete transition yet; begin to sample later (a transition of n steps is complete n steps later)"
#: The file that a pickled checkpoint leaves out: it keeps other servers out of the folder.
_LOCK = "lock"


class LocalTable:
    """A table of this process. A pickle has its items and their priorities, as a checkpoint.

    Args:
        options: of the table, without its rate limiter.
        empty: what the buffer lacks while the table is empty, and what to do.
        checkpoint: the files of a checkpoint to start with, by name.
    """

    def __init__(
        self, options: dict[str, Any], empty: str = _EMPTY, checkpoint: dict[str, bytes] | None = None
    ) -> None:
        self._options, self._empty = options, empty
        # The folder of the server's checkpoints; it is removed with this object.
        self._folder = tempfile.TemporaryDirectory(prefix="reverie-replay-")
        for name, content in (checkpoint or {}).items():
            (Path(self._folder.name) / name).write_bytes(content)
        table = Table(**options, rate_limiter=rate_limiters.MinSize(1))
        self._server = Server([table], checkpointer=DefaultCheckpointer(self._folder.name, keep=1), listen=False)
        self.client, self.name, self.max_size = self._server.client(), table.name, table.max_size

    def writer(self, num_keep_alive_refs: int) -> TrajectoryWriter:
        """A writer of the table's items."""
        return self.client.trajectory_writer(num_keep_alive_refs)

    def sample(self, batch_size: int, ragged: Ragged) -> Batch:
        """Draws items.

        Raises:
            ValueError: the table is empty. A wait would have no end: the thread that samples is the one that adds.
        """
        return self._drawn(lambda: self.client.sample_batch(self.name, batch_size, ragged=ragged, timeout=0.0))

    def sample_cells(self, batch_size: int) -> Batch:
        """Draws items, and of their columns with a time axis one cell each, all with the same probability.

        Raises:
            ValueError: as `sample`.
        """
        return self._drawn(lambda: next(self.client.windows(self.name, batch_size, 1, timeout=0.0, prefetch=0)))

    def _drawn(self, draw: Callable[[], Batch]) -> Batch:
        try:
            return draw()
        except DeadlineExceededError as error:
            raise ValueError(f"the replay buffer has {self._empty}") from error

    def update_priorities(self, keys: Any, priorities: Any) -> None:
        """Sets priorities; keys of items that have left the table are ignored."""
        self.client.update_priorities(self.name, keys, priorities)

    def checkpoint(self) -> dict[str, bytes]:
        """Takes a checkpoint: its files, by name. Blocks until it is taken."""
        self.client.checkpoint()
        return {path.name: path.read_bytes() for path in Path(self._folder.name).iterdir() if path.name != _LOCK}

    def restored(self, checkpoint: dict[str, bytes]) -> LocalTable:
        """A table with the same options and the items of a checkpoint."""
        return type(self)(self._options, self._empty, checkpoint)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._options, self._empty, self.checkpoint())


class RemoteTable:
    """A table of a server. A pickle has the server's address; the items stay on the server, which takes a checkpoint.

    Args:
        server: an address, several addresses, or a client.
        name: the table's name on the server.

    Raises:
        UnknownTableError: the server has no table of this name.
        UnavailableError: the server cannot be reached.
    """

    def __init__(self, server: str | Sequence[str] | Client, name: str) -> None:
        self.client, self.name = server if isinstance(server, Client) else Client(server), name
        self.client.can_insert(name)  # Raises UnknownTableError, which names the tables that exist.
        info = self.client.server_info()[name]
        self.max_size, self.sampler = info.max_size, info.sampler_options

    def writer(self, num_keep_alive_refs: int) -> TrajectoryWriter:
        """A writer of the table's items."""
        return self.client.trajectory_writer(num_keep_alive_refs)

    def sample(self, batch_size: int, ragged: Ragged) -> Batch:
        """Draws items. Waits for the table's rate limiter, for the client's timeout at most."""
        return self.client.sample_batch(self.name, batch_size, ragged=ragged)

    def sample_cells(self, batch_size: int) -> Batch:
        """Draws items, and of their columns with a time axis one cell each. Waits as `sample`."""
        return next(self.client.windows(self.name, batch_size, 1, prefetch=0))

    def update_priorities(self, keys: Any, priorities: Any) -> None:
        """Sets priorities, without waiting for the response; keys of items that have left the table are ignored."""
        self.client.update_priorities(self.name, keys, priorities, wait=False)

    def checkpoint(self) -> dict[str, bytes]:
        """Takes a checkpoint, in the server's folder: no file here. Blocks until it is taken."""
        self.client.checkpoint()
        return {}

    def restored(self, checkpoint: dict[str, bytes]) -> RemoteTable:
        """This table: the items stayed on the server.

        Raises:
            ValueError: the checkpoint has files, of a table in a process.
        """
        if checkpoint:
            raise ValueError(
                f"the items were saved by a buffer in its own process; table '{self.name}' of a server takes them from "
                "the server's checkpoints only: load them into a buffer without server="
            )
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        self.client.checkpoint()
        return type(self), (self.client, self.name)


def check_alone(**options: Any) -> None:
    """Raises ValueError for options that the table of a server has."""
    for name in (name for name, value in options.items() if value is not None):
        raise ValueError(f"{name} is an option of the table in this process; the table of the server has its own")


def check_prioritized(table: RemoteTable) -> None:
    """Raises ValueError for a table whose sampler has no priorities: all weights would be 1."""
    if not isinstance(table.sampler, selectors.Prioritized):
        raise ValueError(
            f"table '{table.name}' samples by {table.sampler!r}; PrioritizedReplayBuffer needs a table with "
            "sampler=reverie.selectors.Prioritized(...)"
        )
