"""The figures of a client's tables, in total and of each server."""

from __future__ import annotations

import dataclasses
from typing import Any

from reverie.types import TableInfo

__all__ = ["DiskInfo", "Info", "JournalInfo", "ShardInfo"]


@dataclasses.dataclass(frozen=True, slots=True)
class JournalInfo:
    """The journal of a server, at one moment."""

    sync: str
    """When it waits for the disk: "os", "interval" or "always"."""
    rounds: int
    """Groups of requests that were written together."""
    syncs: int
    """How often it waited for the disk."""
    sync_seconds: float
    """Seconds for which it waited for the disk, in total."""
    longest_sync_seconds: float
    unsynced_bytes: int
    """Bytes that are written and may not be on the disk."""
    log_bytes: int
    """Bytes that were written since the newest checkpoint: a start reads them."""
    waiting: int
    """Calls that wait until all that was done before them is on the disk."""
    is_full: bool
    """True if it waits for room on the disk, and inserts with it."""
    error: str | None
    """Why nothing is written: it waits for room, or, if `is_full` is False, it has stopped and inserts are refused."""


@dataclasses.dataclass(frozen=True, slots=True)
class DiskInfo:
    """The disk tier of a server, at one moment: chunks that moved to files when their memory was used up."""

    folder: str
    memory_bytes: int
    """Bytes of memory that chunks use."""
    max_memory_bytes: int
    """Bytes of memory that they may use: `Server(memory_bytes=)`."""
    num_chunks: int
    """Chunks on the disk."""
    chunk_bytes: int
    """Their bytes on the disk."""
    shared_bytes: int
    """Of these, bytes that are read where the server's journal or checkpoints have them, and were not written again."""
    file_bytes: int
    """Bytes of the disk's own files, with what is left of chunks that are gone.

    At most 1.5 times `chunk_bytes - shared_bytes`, and a file.
    """
    max_file_bytes: int | None
    """Bytes that the files may have: `Server(disk_bytes=)`."""
    num_moved: int
    """Chunks that were moved to the disk since the start, also those whose bytes were there."""
    compacted_bytes: int
    """Bytes that were written again since the start, to free those of chunks that are gone."""
    error: str | None
    """Why no chunk can be moved now, if one has to be; inserts wait for it, as `client.why` reports."""


@dataclasses.dataclass(frozen=True, slots=True)
class ShardInfo:
    """One of several servers."""

    address: str | None
    """None for a server in this process that does not listen."""
    present: bool
    """False while it cannot be reached."""
    info: Info | None
    """Its own figures; None while it cannot be reached."""
    tables: dict[str, dict[str, Any]]
    """For every table that this client uses: its `mass`; the `chance` that a draw uses this server; its `ration`
    (inserts admitted in total; None if its own limiter decides); `num_inserts`, `num_samples`, `waiting_inserts`;
    `discarded`: those of the samples that were drawn again at other servers, since the masses had changed;
    `clock_ahead`: seconds by which its clock is ahead of this process's."""


@dataclasses.dataclass(frozen=True, slots=True)
class Info:
    """The return value of `client.info()`."""

    transport: str
    """How the client reaches its tables: "in-process", "shared-memory" or "grpc"."""
    reason: str
    """Why it uses this transport."""
    tables: dict[str, TableInfo]
    size_bytes: int
    """Bytes of all chunks of the server, each counted once."""
    max_bytes: int | None
    address: str | None = None
    """The address that the server listens on, `host:port`; None where it does not listen."""
    connected: bool = True
    reconnects: int = 0
    """Connections that were lost and made again."""
    server_restarts: int = 0
    """Restarts of the server that this client noticed; items in no checkpoint were lost."""
    bytes_sent: int = 0
    bytes_received: int = 0
    kept_bytes: int = 0
    """Bytes of confirmed inserts that this client keeps until they are on the server's disk."""
    max_kept_bytes: int = 0
    """The bytes that it keeps at most; see `Client`."""
    max_connections: int | None = None
    """Clients that the server accepts at a time, for each transport; None for a client in the server's process."""
    unheard_errors: int = 0
    """Inserts and updates with `wait=False` that failed."""
    network_bytes: int = 0
    """Bytes that connections make the server hold: batches on their way over gRPC, cells that no item has, inserts that
    wait, answers that were not acknowledged. Shared memory is not counted. 0 of a server in this process."""
    max_network_bytes: int | None = None
    """The bound of these and of shared memory together; None for a server in this process, of which no connection is
    asked."""
    max_memory: int | None = None
    """The limit of the server's memory in total: `Server(max_memory=)`."""
    journal: JournalInfo | None = None
    """The server's journal; None without one, and of several servers, each of which has its own in `shards`."""
    disk: DiskInfo | None = None
    """The server's disk tier; None without one, and of several servers, each of which has its own in `shards`."""
    shards: tuple[ShardInfo, ...] = ()
    """The figures of each server, if the client has several; the others are their sums."""
