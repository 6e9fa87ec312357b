"""The figures of tables, limiters and servers: `client.info()`, `Table.info` and `client.why()`.

Loaded when it is first used: making these classes takes a tenth of the package's import.
"""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = [
    "CallStats",
    "CopyStats",
    "DiskInfo",
    "Info",
    "JournalInfo",
    "RateLimiterInfo",
    "ShardInfo",
    "TableInfo",
    "TableWorkerTime",
    "Waiting",
    "Why",
]


@dataclasses.dataclass(frozen=True, slots=True)
class CallStats:
    """Calls of one kind that a table admitted."""

    completed: int
    """Items inserted, or draws made."""
    pending: int
    """Items or draws that wait now."""
    blocked_time: float
    """Seconds during which at least one item or draw waited."""


@dataclasses.dataclass(frozen=True, slots=True)
class CopyStats:
    """The copies of one `insert_on_sample`, counted since the start or the last reset of its table."""

    target: str
    """The table that the copies go into."""
    timeout: float | None
    """Seconds that a copy may wait; None means no limit."""
    inserted: int
    """Copies that were inserted."""
    dropped: int
    """Copies that were dropped: they timed out, too many waited, or the other table refused them."""
    waiting: int
    """Copies that wait now."""


@dataclasses.dataclass(frozen=True, slots=True)
class RateLimiterInfo:
    """A rate limiter's settings, and the inserts and samples that it admitted."""

    samples_per_insert: float
    min_diff: float
    max_diff: float
    min_size_to_sample: int
    insert_stats: CallStats
    sample_stats: CallStats


@dataclasses.dataclass(frozen=True, slots=True)
class TableWorkerTime:
    """How a table spent its time, in milliseconds. Work is measured for one operation in 64, and scaled up."""

    running_ms: int
    sampling_ms: int
    inserting_ms: int
    sleeping_ms: int
    waiting_for_sampling_ms: int
    waiting_for_inserts_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class TableInfo:
    """A table's settings and figures at one moment."""

    name: str
    sampler_options: Any
    """The sampler; answers `WhichOneof("distribution")`, `.prioritized.priority_exponent` and the like."""
    remover_options: Any
    max_size: int
    max_times_sampled: int
    """0 means no limit."""
    rate_limiter_info: RateLimiterInfo
    signature: Any
    """The nest of specs that the table was made with, or None."""
    current_size: int
    num_episodes: int
    """Episodes of which the table holds cells; a step of `insert` is an episode of its own."""
    num_deleted_episodes: int
    num_unique_samples: int
    table_worker_time: TableWorkerTime
    num_inserts: int
    """Items inserted since the start or the last reset."""
    num_samples: int
    """Draws since then."""
    num_deletes: int
    """Items that left the table since then, for any reason."""
    num_evicted: int
    """The items among `num_deletes` that the remover evicted."""
    num_updates: int
    """Priorities that were set."""
    num_stale_updates: int
    """Updates that were ignored: the item was gone or had been updated since."""
    size_bytes: int
    """Bytes of the chunks that items refer to, each chunk counted once."""
    max_bytes: int | None
    max_priority: float
    """The largest priority in the table; 1 for an empty table."""
    age_histogram: tuple[int, ...]
    """Draws by the age of the item: bucket b counts ages in [2**(b-1), 2**b) nanoseconds."""
    shard: int = 0
    """The server's shard number, `Server(..., shard=)`, which is part of every key."""
    num_leased: int = 0
    """Draws that no client has acknowledged yet. An item whose draw does not reach its client returns to the table."""
    copies: tuple[CopyStats, ...] = ()
    """The copies of each `reverie.extensions.insert_on_sample` of the table."""
    age_sum: float = 0.0
    """Seconds: the sum of the ages that `age_histogram` counts; divided by its sum it is the mean age at a draw."""
    sample_times: tuple[int, ...] = ()
    """Items that left the table, for any reason but a reset, by their draws: bucket 0 counts items that were never
    drawn, bucket 1 those drawn once, and bucket b those drawn up to 2**(b-1) times; the last one has no upper bound."""
    sample_times_sum: int = 0
    """The draws of these items: divided by `sum(sample_times)` it is the mean number of draws of an item."""


@dataclasses.dataclass(frozen=True, slots=True)
class JournalInfo:
    """The journal of a server, at one moment."""

    sync: str
    """When it waits for the disk: "os", "interval" or "always"."""
    rounds: int
    """Groups of requests that were written together."""
    syncs: int
    """The number of times that it waited for the disk."""
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
    """The bytes among `chunk_bytes` that are in the server's journal or checkpoints, and were not written again."""
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
    """The server's address; None for a server in this process that does not listen."""
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
    unawaited_errors: int = 0
    """Inserts and updates with `wait=False` that failed."""
    network_bytes: int = 0
    """Bytes that connections make the server hold: batches on their way over gRPC, cells that no item has, inserts that
    wait, answers that were not acknowledged. Shared memory is not counted. 0 for a server in this process."""
    max_network_bytes: int | None = None
    """The bound of these and of shared memory together; None for a server in this process, which has no
    connections."""
    max_memory: int | None = None
    """The limit of the server's memory in total: `Server(max_memory=)`."""
    journal: JournalInfo | None = None
    """The server's journal; None without one, and of several servers, each of which has its own in `shards`."""
    disk: DiskInfo | None = None
    """The server's disk tier; None without one, and of several servers, each of which has its own in `shards`."""
    shards: tuple[ShardInfo, ...] = ()
    """The figures of each server, if the client has several; the others are their sums."""


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
    """A request that waits at a table."""

    since: float
    """Seconds since it began to wait."""
    wanted: int
    """Items or draws that it requested."""
    done: int
    """Items or draws of these that are done."""


@dataclasses.dataclass(frozen=True, slots=True)
class Why:
    """The requests that wait at a table, why they wait, and what would free them. `str()` gives it as text."""

    table: str
    size: int
    max_size: int
    num_inserts: int
    num_samples: int
    num_deletes: int
    inserts: tuple[Waiting, ...]
    """Inserts that wait, in order of arrival: at most the first 1000. `str()` counts all."""
    samples: tuple[Waiting, ...]
    """Requests for samples that wait, in order of arrival: at most the first 1000."""
    insert_reason: str | None
    """Why one more insert would wait now; None where it would be admitted."""
    sample_reason: str | None
    """Why one more draw would wait now; None where it would be admitted."""
    stuck: bool
    """True where inserts and samples are both held back, also if none waits, and no request that waits can end that."""
    text: str
    num_leased: int = 0
    """Draws that no client has acknowledged yet. An item whose draw does not reach its client returns to the table."""
    num_waiting_inserts: int = 0
    """All inserts that wait."""
    num_waiting_samples: int = 0
    """All requests for samples that wait."""

    def __str__(self) -> str:
        return self.text
