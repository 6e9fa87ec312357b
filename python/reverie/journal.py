"""The journal: what a server acknowledged is on the disk, and survives the end of its process."""

from __future__ import annotations

import os
from typing import Literal, final

from reverie import _checks

__all__ = ["Journal"]

#: When a journal waits for the disk.
Sync = Literal["os", "interval", "always"]


@final
class Journal:
    """Settings of a server's journal: a folder in which every change is written before it is acknowledged.

    A server that starts with the folder of an earlier one has what that one acknowledged, however it ended. That is
    what `insert`, `flush`, `insert_batch`, `delete`, `reset` and `configure` have returned for, and draws from tables
    that delete sampled items. Such draws of a remote client are held for it after a kill: it reconnects to the
    next server and acknowledges them, or asks for them again, so that no item is delivered twice. Priorities and counts
    of draws of other tables are written every `interval`. Options of tables are those that the server is constructed
    with; limits that `configure` changed apply where the constructor's are as before.

    A plain option: it can be pickled, and used by one server after another.

    Args:
        path: the folder, with the checkpoints that shorten the journal. One server at a time writes to it.
        sync: when the disk is waited for. "os": only after `max_unsynced_bytes`, at checkpoints and for
            `flush(durable=True)`; the end of the process loses nothing, that of the machine what the operating system
            had not written. "interval": every `interval` seconds; the end of the machine loses at
            most as much. "always": before anything is acknowledged.
        interval: seconds between writes of priorities and counts of draws, and between waits for the disk.
        max_unsynced_bytes: with more bytes than that written and not on the disk, the next write waits for the disk.
        checkpoint_period: seconds between checkpoints, after which what was written before is removed; None takes them
            only at `client.checkpoint()`. For other options of checkpoints, give the server a
            `reverie.checkpointers.DefaultCheckpointer` of the same folder.
        checkpoint_bytes: a checkpoint is also taken when the journal has this many bytes more than at the last one, so
            that the folder is bounded by the tables' bytes and this, and a start by as many bytes to read; None has no
            such bound. A checkpoint writes one row for each item, so small values cost writes.

    Raises:
        ValueError: for numbers that are not above 0, and another `sync`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sync: Sync = "interval",
        interval: float = 1.0,
        max_unsynced_bytes: int = 256 << 20,
        checkpoint_period: float | None = 600.0,
        checkpoint_bytes: int | None = 4 << 30,
    ) -> None:
        if sync not in ("os", "interval", "always"):
            raise ValueError(f'sync must be "os", "interval" or "always", got {sync!r}')
        self._path = os.fspath(path)
        self._sync: Sync = sync
        self._interval = _checks.number("interval", interval)
        if self._interval <= 0:
            raise ValueError(f"interval must be above 0 seconds, got {interval}")
        self._max_unsynced_bytes = _checks.count("max_unsynced_bytes", max_unsynced_bytes, 1, _checks.MANY)
        self._checkpoint_period = None
        if checkpoint_period is not None:
            self._checkpoint_period = _checks.number("checkpoint_period", checkpoint_period)
            if self._checkpoint_period <= 0:
                raise ValueError(f"checkpoint_period must be above 0 seconds, got {checkpoint_period}")

        self._checkpoint_bytes = None
        if checkpoint_bytes is not None:
            self._checkpoint_bytes = _checks.count("checkpoint_bytes", checkpoint_bytes, 1, _checks.MANY)

    @property
    def path(self) -> str:
        """The folder."""
        return self._path

    @property
    def sync(self) -> Sync:
        """When the disk is waited for."""
        return self._sync

    @property
    def interval(self) -> float:
        """Seconds between writes of priorities and counts of draws, and between waits for the disk."""
        return self._interval

    @property
    def max_unsynced_bytes(self) -> int:
        """Bytes that may be written and not on the disk."""
        return self._max_unsynced_bytes

    @property
    def checkpoint_period(self) -> float | None:
        """Seconds between checkpoints; None takes none by itself."""
        return self._checkpoint_period

    @property
    def checkpoint_bytes(self) -> int | None:
        """Bytes of the journal after which a checkpoint is taken; None takes none for that reason."""
        return self._checkpoint_bytes

    def __repr__(self) -> str:
        return (
            f"Journal({self._path!r}, sync={self._sync!r}, interval={self._interval}, "
            f"max_unsynced_bytes={self._max_unsynced_bytes}, checkpoint_period={self._checkpoint_period}, "
            f"checkpoint_bytes={self._checkpoint_bytes})"
        )
