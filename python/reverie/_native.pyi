"""The engine, in Rust. Private: only `reverie` imports it."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self, final, overload

import numpy as np
import numpy.typing as npt
from typing_extensions import disjoint_base

from reverie.rate_limiters import RateLimiter
from reverie.tables import Table
from reverie.types import Batch, BatchInfo, Borders, Condition, UpdateResult

__all__ = [
    "CheckpointFolder",
    "Checkpoints",
    "Client",
    "DrawInfo",
    "HistoryColumn",
    "InsertOutcome",
    "Patterns",
    "Prefetch",
    "Server",
    "Structure",
    "StructuredWriter",
    "TrajectoryColumn",
    "TrajectoryWriter",
    "TransitionWriter",
    "_answered_trace",
    "_deliver_logs",
    "_entries",
    "_panic",
    "_set_trace",
    "describe",
    "describe_checkpoint",
    "flatten",
    "latest_checkpoint",
    "list_checkpoints",
    "repair_checkpoint",
    "verify_checkpoint",
    "verify_journal",
]

@final
class Structure:
    """The form of a nest."""

    @property
    def paths(self) -> list[str]:
        """The path of every leaf, in flattening order."""

    def unflatten(self, leaves: Any) -> Any:
        """A nest of this form with the given leaves."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

def flatten(nest: Any) -> tuple[list[Any], Structure]:
    """The leaves of a nest in flattening order, and its form."""

def describe(leaf: Any, path: str) -> tuple[np.dtype[Any], list[int]]:
    """The dtype and the shape that a leaf would have as a column."""

def _panic() -> None: ...
def _deliver_logs() -> None: ...
def _entries() -> int:
    """The number of times that this process has gone through the gate between binding and core."""

def _set_trace(context: tuple[int, int, bool] | None) -> tuple[int, int, bool] | None:
    """Sets the trace of the requests that this thread makes: the ids of trace and span, and whether it is recorded.

    Returns the one before.
    """

def _answered_trace() -> tuple[int, int, bool] | None:
    """The trace of the request for the last batch that this thread took; only the first call has it."""

@final
class Server:
    """The tables of a server that lives in this process."""

    def __new__(
        cls,
        tables: list[Table],
        *,
        max_bytes: int | None,
        disk: tuple[str, int, int | None] | None,
        seed: int,
        shard: int,
    ) -> Self: ...
    @staticmethod
    def of_page() -> Server:
        """A server without tables, whose page shows runs of other processes."""

    def listen(
        self,
        host: str,
        port: int,
        *,
        token: str | None,
        identity: tuple[bytes, bytes] | None,
        client_ca: bytes | None,
        insecure: bool,
        local: bool,
        grace: float,
        memory: tuple[int, int],
        max_connections: int,
        session_timeout: float,
        spans: bool,
    ) -> None:
        """Serves clients of other processes, too; once. `spans` keeps those of traced requests for `take_spans`."""

    def listen_http(
        self,
        host: str,
        port: int,
        *,
        token: str | None,
        identity: tuple[bytes, bytes] | None,
        client_ca: bytes | None,
        insecure: bool,
    ) -> None:
        """Shows metrics and a page over HTTP, too; once, after `listen`."""

    def take_spans(self) -> list[dict[str, Any]]:
        """Takes the spans of traced requests that are done, the oldest first.

        Each has `trace` and `parent`, the ids of the client's span; `verb`, `tables`, `transport`; `began` and `ended`,
        nanoseconds before now; `wait`, None or the reason, its sentence and seconds; and `error`, None or its kind and
        text.
        """

    def drop_spans(self, spans: int) -> None:
        """Counts spans that were taken and could not be exported as dropped."""

    @property
    def span_counts(self) -> tuple[int, int, int] | None:
        """Spans noted and dropped, and requests whose trace was invalid; None where no spans are noted."""

    def publish(self, figures: str) -> None:
        """Shows the figures of a training run, as JSON, over HTTP; does nothing without an HTTP port."""

    @property
    def http_address(self) -> str | None:
        """The address of its HTTP port, `host:port`; None if it has none."""

    @property
    def address(self) -> str | None:
        """The address that it listens on, `host:port`; None if it does not listen."""

    def close(self) -> None:
        """Notifies clients, ends every wait with ClosedError, and refuses later requests. Idempotent.

        Blocks until clients have read what they requested, for the `grace` of `listen` and a few seconds at most.

        Raises:
            ForkedError: in a forked child.
        """

@final
class CheckpointFolder:
    """The folder of one server's checkpoints, which the first checkpoint makes."""

    def __new__(cls, path: str, *, keep: int, max_age: float | None, hold: bool) -> Self:
        """Looks for the newest checkpoint; with `hold`, makes and locks the folder before that."""

    @property
    def newest(self) -> str | None:
        """The newest checkpoint that the folder had; None where there was none.

        The server must start with this one: it does not save where another server takes a newer one.
        """

    def release(self) -> None:
        """Lets another server save in the folder; for a server that could not be made."""

@final
class Checkpoints:
    """Saves the tables of one server in a folder."""

    def __new__(cls, server: Server, folder: CheckpointFolder) -> Self: ...
    def restore(self, path: str) -> dict[str, Any]:
        """Puts a checkpoint's items into the server's tables, which must be unused."""

    def recover(self, *, saved_limits: bool, holds_leases: bool) -> dict[str, Any] | None:
        """Puts the items of the newest checkpoint and of the journal after it into the tables, which must be unused.

        A table that is constructed as before gets the limits that `configure` had left; with `saved_limits`, also one
        that is constructed otherwise. As `restore`, with the number of `commits` after the checkpoint, and in `torn`
        the file and the offset of a last record that is not whole, or None. None if the folder has no checkpoint.
        """

    def recover_copy(self, path: str, *, saved_limits: bool) -> dict[str, Any]:
        """Puts the items of the newest checkpoint of another folder, and of the journal after it, into the tables.

        The tables must be unused. Nothing in the folder changes. As `recover`. StorageError if a server writes a
        journal there.
        """

    def begin_journal(self, sync: str, interval: float, max_unsynced_bytes: int) -> None:
        """Begins a journal in the folder. The content of the folder must have been loaded by `recover` before."""

    def end_journal(self) -> None:
        """Writes what is left of the journal, waits for the disk, and ends it. Idempotent.

        Ctrl-C ends the wait; the journal still ends, in the background.
        """

    def save(self) -> dict[str, Any]:
        """Takes a checkpoint; its path and what it came to, `pause` in seconds.

        `spare_bytes` is the memory that was set aside for what calls change meanwhile, `spare_bytes_used` what of it
        was needed.
        """

    def save_last(self) -> dict[str, Any]:
        """Takes the last checkpoint, of a server that is closed: as `save`.

        Ctrl-C is raised at its end; without a journal a second one ends it.
        """

    def start(self, *, period: float | None = None, log_bytes: int | None = None) -> None:
        """Takes a checkpoint every `period` seconds, and after `log_bytes` bytes of a journal, until `stop`."""

    def release(self) -> None:
        """Lets another server save in the folder, once the journal has ended; for a server that is closed."""

    def stop(self) -> None:
        """Ends the thread, and waits for the checkpoint that it takes. Idempotent."""

def latest_checkpoint(root: str) -> str | None:
    """The newest checkpoint in a folder; None where there is none."""

def list_checkpoints(root: str) -> list[str]:
    """The paths of the checkpoints in a folder, oldest first."""

def describe_checkpoint(path: str) -> dict[str, Any]:
    """The content of a checkpoint, without its items."""

def verify_checkpoint(path: str) -> tuple[int, int, int]:
    """Checks every byte of a checkpoint; its items, chunks and bytes."""

def verify_journal(root: str) -> dict[str, Any] | None:
    """Checks every byte that a server which starts with a journal's folder reads; None if it has no journal.

    Returns the `checkpoint` that the journal continues, `num_commits` after it, `num_items`, `num_chunks`, `size_bytes`
    of the chunks, and `torn`: the file and the offset of a last record that is not whole, or None.
    """

def repair_checkpoint(root: str, to: str) -> dict[str, Any]:
    """Saves what is whole of a folder as a checkpoint in another folder, which must have none.

    Returns the figures of `Checkpoints.save`, and `losses`: a sentence for each part that was left out.
    """

@disjoint_base
class Client:
    """The base class of `reverie.Client`: the calls that are made often."""

    def __new__(
        cls,
        server: Server | None = None,
        *,
        timeout: float | None = None,
        address: str | None = None,
        shards: tuple[list[Client], list[str], RateLimiter | None, tuple[int, int], int] | None = None,
        transport: str = "auto",
        token: str | None = None,
        tls: tuple[bytes | None, tuple[bytes, bytes] | None, str | None] | None = None,
        patience: float = 10.0,
        grace: float = 0.05,
        max_in_flight_bytes: int | None = None,
        max_kept_bytes: int | None = None,
    ) -> Self: ...
    @property
    def timeout(self) -> float | None:
        """The default of `timeout=`, in seconds; None waits."""

    @property
    def max_in_flight_bytes(self) -> int:
        """Bytes that may be on their way while no caller waits for them; see `reverie.Client`."""

    def checkpoint(self, *, timeout: float | None = None) -> str | list[str]:
        """Takes a checkpoint of all tables of the server, which goes on meanwhile.

        Blocks until it is on the disk, and while another is being taken; `timeout` seconds at most. The tables stand
        still together only while their page lists are copied; chunks that are on the disk already are not written
        again.

        Returns:
            the checkpoint's path; its folder can be given to a `DefaultCheckpointer`. With several servers, a list with
            the path at each.

        Raises:
            DeadlineExceededError: it is not written yet; it goes on.
            StorageError: the file system refused; the checkpoints that were there are as they were.
            ClosedError: the server was stopped.
            UnavailableError: one of several servers cannot be reached: its items would be missing.
        """

    def insert(
        self,
        data: Any,
        priorities: dict[str, float | Literal["max"]],
        *,
        timeout: float | None = None,
        shard: int | None = None,
    ) -> None:
        """Inserts one step into one or more tables; its bytes are stored once. Blocks until it is in all of them.

        Args:
            data: a nest of arrays and numbers.
            priorities: the priority in each table, by name; "max" takes the largest that the table holds.
            timeout: seconds to wait for the tables' limiters.
            shard: the index of the server, of several; None takes those that can be reached in turns. "max" is the
                largest priority of that server.

        Raises:
            DeadlineExceededError: a table did not take the item in time. `.partial` names those that did; no other
                takes it any more. With a journal also if all took it and it is not in the journal: it is in the tables,
                and a kill of the server before it is in the journal loses it.
            UnknownOutcomeError: over a network, the server has not reported by then whether a table took it. `.partial`
                names those that are known to have it, and `.outcome.wait()` finds out; none takes it after that.
            SignatureError: for data that a column or a table cannot hold.
            UnknownTableError, ClosedError, ResourceExhaustedError.
            ValueError: for no table, or a priority that the table's selectors refuse.
        """

    @overload
    def insert_batch(
        self,
        table: str,
        data: Any,
        priorities: npt.ArrayLike | Literal["max"] | None = None,
        *,
        timeout: float | None = None,
        wait: Literal[True] = True,
        shard: int | None = None,
    ) -> npt.NDArray[np.int64]:
        """Inserts rows, each an item of its own.

        Args:
            table: the table.
            data: a nest of arrays, all `[N, ...]`.
            priorities: `[N]`, or one for all; "max" takes the largest that the table holds; None is
                "max" if the table's sampler is `Prioritized`, else 1.
            timeout: seconds to wait for the table's limiter, which admits row by row.
            wait: False returns None once the rows are copied: over a network several calls are then under way, where
                each would take a round trip for its keys. Rows go in in the order of the calls. The client's
                `max_in_flight_bytes` or 4,096 calls may be unanswered; the next then waits for room, `timeout` seconds
                at most, and inserts nothing where that is too short. Later failures are counted
                (`client.info().unawaited_errors`), and the first one is logged. `flush` waits for all.
            shard: the index of the server, of several; None takes those that can be reached in turns. "max" is the
                largest priority of that server. A call whose server is lost while it waits goes on until its `timeout`;
                the next call uses another.

        Returns:
            the keys, int64 `[N]`; None with `wait=False`.

        Raises:
            DeadlineExceededError: the rows whose keys are in `.partial` went in, in order; the others did not, and do
                not later. With a journal also if all went in and are not in the journal: `.partial` has all keys, and a
                kill of the server before they are in the journal loses them.
            UnknownOutcomeError: over a network, the server has not reported by then which rows are in, except those
                whose keys are in `.partial`. `.outcome.wait()` finds out; none goes in after that.
            SignatureError, UnknownTableError, ClosedError, ResourceExhaustedError, ValueError.
        """

    @overload
    def insert_batch(
        self,
        table: str,
        data: Any,
        priorities: npt.ArrayLike | Literal["max"] | None = None,
        *,
        timeout: float | None = None,
        wait: bool,
        shard: int | None = None,
    ) -> npt.NDArray[np.int64] | None: ...
    def flush(self, timeout: float | None = None, *, durable: bool = False) -> None:
        """Waits until all that this client sent with `wait=False` is done, or has failed.

        Failures are not raised here: they are counted (`client.info().unawaited_errors`) and logged as ever.

        Args:
            timeout: seconds to wait; None takes the client's default.
            durable: True also waits until everything that this client's calls have done, new priorities too, is on the
                disk of each server, at any `sync` of its journal.

        Raises:
            DeadlineExceededError: it is not; it goes on.
            ValueError: for `durable=True` if a server has no journal.
            StorageError: for `durable=True` if a journal has stopped.
        """

    def sample_batch(
        self,
        table: str,
        batch_size: int,
        *,
        timeout: float | None = None,
        columns: list[str] | None = None,
        ragged: Literal["pad", "values"] | None = None,
        without_replacement: bool = False,
    ) -> Batch:
        """Draws items and gathers them into one array per column.

        Args:
            table: the table.
            batch_size: how many draws; each is a draw of its own to the table's limiter.
            timeout: seconds to wait for the table's limiter.
            columns: paths to read (`obs/pixels`, or `obs` for all below it); None reads all. Columns of a named tuple
                or a dataclass come back in a generated named tuple.
            ragged: what becomes of a column whose items differ in length: None refuses, "pad" pads with zeros and gives
                `Batch.mask`, "values" puts all cells behind one another and gives `Batch.lengths`.
            without_replacement: no item twice in the batch. The probabilities, and so the weights, stay those of draws
                from the whole table: approximate. Items that are drawn only once no others are left (those of priority
                0) have their probability among themselves. Several servers make all draws or none: each makes as many
                as the batch has, and those are kept that would be drawn from one table of all items (Efraimidis and
                Spirakis 2006). ragged="values" is refused with it.

        Returns:
            `.data` has the structure that was stored, its leaves contiguous arrays `[B, ...]` (`[B, T, ...]` of
            trajectories) of the stored dtypes, writable and the caller's own; `.info` an array `[B]` per field.

        Raises:
            DeadlineExceededError: `.partial` is a Batch of the draws already made, or None. Draws of a table that
                deletes sampled items are in it, or back in their table.
            KeyboardInterrupt: at Ctrl-C, with the same `.partial`.
            RaggedError: the items cannot be one array per column. `.drawn` has the draws, each as a Batch, where the
                table deletes sampled items.
            ResourceExhaustedError: over a network, the batch is larger than the server sends or unpacks at a time; with
                the same `.drawn`.
            MemoryError: the batch does not fit into memory. In one process, `.drawn` is an iterator over the draws,
                each as a Batch of its own. A pickled copy of the error has those that fit into 64 MiB.
            UnknownTableError, ClosedError, ValueError.
        """

    @overload
    def update_priorities(
        self,
        table: str,
        keys: npt.ArrayLike,
        priorities: npt.ArrayLike,
        *,
        if_version: npt.ArrayLike | None = None,
        neighbours: tuple[int, float] | None = None,
        timeout: float | None = None,
        wait: Literal[True] = True,
    ) -> UpdateResult:
        """Sets priorities. Keys of items that are gone are counted as stale, and ignored. Waits for no limiter.

        With several servers, so are the keys of servers that cannot be reached.

        Args:
            table: the table.
            keys: `[N]`, ints.
            priorities: `[N]`, numbers; where a key occurs twice the last one counts.
            if_version: `[N]`: only where the item's version (`BatchInfo.version`) is still this one before the call, so
                that a key that occurs twice is changed twice, too.
            neighbours: `(k, decay)` also raises what led there: where an item is given the priority p, the i-th item
                before it gets `max(own, p * decay**i)`, for i from 1 to k (Brittain et al. 2019, prioritized sequence
                experience replay, section 4). Before it are the items that are still in the table, of the same writer
                (of a vector writer: of the same environment) and of the same episode; rows of `insert` and
                `insert_batch` have no episodes. A raise counts as an update of the item's version, not in the result.
                k is at most 1024, decay in (0, 1].
            timeout: seconds that the server may take to answer, or with `wait=False` to answer earlier ones while 1,024
                of them are under way; in-process there is nothing to wait for.
            wait: False waits for no answer, and returns None: a learner needs none, and over a network it takes a
                round trip. Failures are then counted (`client.info().unawaited_errors`), and the first one is logged.

        Raises:
            ValueError: for arrays of different lengths, or a priority that the table's selectors refuse (then nothing
                was updated).
            DeadlineExceededError: the server did not answer in time, and may still do it; with `wait=False` it was not
                asked.
        """

    @overload
    def update_priorities(
        self,
        table: str,
        keys: npt.ArrayLike,
        priorities: npt.ArrayLike,
        *,
        if_version: npt.ArrayLike | None = None,
        neighbours: tuple[int, float] | None = None,
        timeout: float | None = None,
        wait: bool,
    ) -> UpdateResult | None: ...
    def query(
        self,
        table: str,
        where: Sequence[Condition] | None = None,
        *,
        limit: int | None = None,
        order: str | None = None,
        timeout: float | None = None,
    ) -> BatchInfo:
        """Looks for items by priority, age and counts, as they are at one moment. It does not count as a sample.

        Other calls go on meanwhile: the table stands still only for a copy of its page list.

        With several servers, each answers for one moment of its own; `limit` and `order` apply to the items of all. The
        order of insertion, and "age", compare times of different clocks: the client knows their difference to half of a
        round trip. Items of servers that cannot be reached are left out.

        Args:
            table: the table.
            where: conditions `(field, op, number)`, at most 64, which must all hold: field is "priority",
                "times_sampled", "version" (updates of the priority) or "age" (seconds since the insertion), op one of
                `< <= == != >= >`. None, or none of them: every item.
            limit: items at most, the first in the order; None gives all.
            order: a field to sort by, smallest first; with a "-" before it, largest first. None means the order of
                insertion, which also decides between equals.
            timeout: seconds that the server may take to answer; in-process there is nothing to wait for.

        Returns:
            the fields of the items that the table has, an array `[N]` per field; N may be 0. The probabilities are 0:
            nothing was drawn. `client.get(table, found.key)` reads the items.

        Raises:
            ValueError, TypeError: for invalid conditions. UnknownTableError, ClosedError, DeadlineExceededError.
            ResourceExhaustedError: more items than the server sends at once (56 bytes each): pass limit.
        """

    def get(
        self,
        table: str,
        keys: npt.ArrayLike,
        *,
        columns: list[str] | None = None,
        ragged: Literal["pad", "values"] | None = None,
        timeout: float | None = None,
    ) -> Batch:
        """Reads items by their keys. It counts as no sample, and the probabilities are 0: nothing was drawn.

        Args:
            table: the table.
            keys: `[N]`, ints.
            columns, ragged: as for `sample_batch`; "values" raises ValueError for items of more than one server.
            timeout: seconds that the server may take to answer; in-process there is nothing to wait for.

        Returns:
            the items in the order of the keys: arrays `[N, ...]`, as of `sample_batch`.

        Raises:
            UnknownKeyError: one of the items is gone.
            RaggedError, UnknownTableError, ClosedError, DeadlineExceededError.
        """

    def reset(self, table: str, *, timeout: float | None = None) -> None:
        """Drops all items of a table and sets its counts to 0. Calls that wait keep their places.

        Args:
            table: the table.
            timeout: seconds that the server may take to answer; in-process there is nothing to wait for.

        Raises:
            UnavailableError: one of several servers cannot be reached: its items would stay. The others may be empty.
                Also where the server was restarted before it answered: it is not known whether the table was emptied.
        """

    def configure(
        self,
        table: str,
        *,
        max_size: int | None = None,
        rate_limiter: RateLimiter | None = None,
        max_times_sampled: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Changes limits of a running table; None keeps one. A smaller `max_size` evicts by the remover at once.

        With several servers, each gets a part of `max_size`; `rate_limiter` replaces the limits over all of them, at a
        client that was given `rate_limiter`, and the counts go on; `max_times_sampled` must be 0 or None.

        Args:
            table: the table.
            max_size, rate_limiter, max_times_sampled: as for `Table`; 0 times means no limit.
            timeout: seconds that the server may take to answer; in-process there is nothing to wait for.

        Raises:
            ValueError: for limits that can never work.
            UnavailableError: one of several servers cannot be reached and would keep its part of the old `max_size`.
        """

    def can_sample(self, table: str, num_samples: int = 1, *, timeout: float | None = None) -> bool:
        """True if the table's limiter would admit `num_samples` samples now; False once its server stops.

        Does not wait for the limiter; `timeout` is for the answer of a server over a network.
        """

    def can_insert(self, table: str, num_inserts: int = 1, *, timeout: float | None = None) -> bool:
        """True if the table's limiter would admit `num_inserts` inserts now; False once its server stops.

        With several servers, the limits over all of them decide, at a client that has them; elsewhere, each server must
        allow the number. Does not wait for the limiter; `timeout` is for the answer of a server over a network.
        """

    def _sample_windows(
        self,
        table: str,
        batch_size: int,
        windows: tuple[int, int, Borders],
        timeout: float | None,
        columns: list[str] | None,
    ) -> Batch: ...
    def _sample_available(
        self, table: str, at_most: int, *, timeout: float | None = None
    ) -> list[tuple[Batch, bool]]: ...
    def _mutate(
        self,
        table: str,
        keys: npt.ArrayLike,
        priorities: npt.ArrayLike,
        deletes: npt.ArrayLike,
        timeout: float | None,
    ) -> tuple[UpdateResult, UpdateResult]: ...
    def _delete_where(
        self, table: str, keys: npt.ArrayLike | None, conditions: Sequence[Condition], timeout: float | None
    ) -> UpdateResult: ...
    def _close(self) -> None: ...
    def _reconnects(self) -> tuple[int, int]: ...
    def _place(self, shard: int | None, timeout: float | None) -> int: ...
    def _failed(self, shard: int, error: Exception) -> None: ...
    def _info(self, timeout: float | None = None, *, options: bool = False) -> dict[str, Any]: ...
    def _why(self, table: str, timeout: float | None) -> dict[str, Any]: ...
    def _describe(self, timeout: float | None = None) -> list[dict[str, Any]]: ...

@disjoint_base
class TransitionWriter:
    """The base class of `reverie.writers.TransitionWriter`."""

    def __new__(
        cls,
        client: Client,
        table: str,
        *,
        n_step: int,
        discount: float,
        num_envs: int | None,
        frame_stack: int | None,
        stack_axis: int,
        autoreset: Literal["next_step", "same_step", "disabled"],
        priority_eps: float,
        priority_clip: float | None,
        priority: float | Literal["max"],
        max_in_flight_bytes: int | None,
        timeout: float | None,
        variable: Sequence[tuple[str, int]] = ...,
    ) -> Self: ...
    def append(
        self,
        obs: Any,
        action: Any,
        reward: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        *,
        final_obs: Any = None,
        q_taken: npt.ArrayLike | None = None,
        bootstrap_value: npt.ArrayLike | None = None,
        final_value: npt.ArrayLike | None = None,
        extras: dict[str, Any] | None = None,
        priority_unit: float = 1.0,
    ) -> int:
        """Appends one step of every environment, and sends the items that are complete with it.

        Every array has one row per environment (none where the writer was made with `num_envs=None`). Nothing is
        written where an argument is refused. After any other error the step was written (`error.step_written`): never
        append it again. Waits while more than `max_in_flight_bytes` are unconfirmed, and over a
        network pauses for up to a second where the server lags behind.

        Args:
            obs: the observations in which the actions were taken; with `frame_stack` the newest frame alone.
            action: the actions.
            reward: what they earned.
            terminated: the episode ended in a terminal state: nothing is bootstrapped through it.
            truncated: the episode was cut off: items bootstrap from its true last observation.
            final_obs: with autoreset "same_step" or "disabled" the observations after the actions; read where an
                episode ended, and needed there.
            q_taken: q(obs, action); with the values below, items get the priority
                `|reward + discount * value - q_taken| + priority_eps` (Horgan et al. 2018, section 3).
            bootstrap_value: the value of `obs`, for items that end in it; together with `q_taken` or not at all.
            final_value: the value of `final_obs`; with `q_taken` needed where an episode was truncated.
            extras: further columns of the item that starts here, in every append or in none.
            priority_unit: `priority_eps` and `priority_clip` are multiplied by it: for values whose unit changes, such
                as those of normalised rewards.

        Returns:
            how many items were sent.

        Raises:
            SignatureError: for rows that do not fit, or forms other than in the first append.
            ValueError: for numbers that are not finite, a missing `final_obs`, one that autoreset "next_step"
                does not read, or values of which others are missing.
            DeadlineExceededError: too much was in flight for too long; this step was written all the same.
            ClosedError: the writer was closed.
            ResourceExhaustedError, and any other error of items, sent before or with this step; this step was written
            all the same.
        """

    def end_episodes(self, *, bootstrap_value: npt.ArrayLike | None = None) -> int:
        """Ends all episodes as they are, when the loop stops in the middle of them.

        Items end in the observation of the last append at the latest, whose value is `bootstrap_value`. That append's
        own step has no right end: it is dropped, and counted in `num_dropped`.

        Returns:
            how many items were sent.
        """

    def flush(self, block_until_num_items: int = 0, *, timeout: float | None = None, durable: bool = False) -> None:
        """Waits until at most `block_until_num_items` items are not in the table yet.

        Args:
            block_until_num_items: the number of items that may remain.
            timeout: seconds to wait; None takes the writer's default.
            durable: True also waits until the items in the table are on the disk, at any `sync` of the server's
                journal.

        Raises:
            DeadlineExceededError: the insert continues in the background.
            ValueError: for `durable=True` if the server has no journal.
            StorageError: for `durable=True` if the journal has stopped.
        """

    @property
    def _timeout(self) -> float | None: ...
    def _close(self) -> None: ...
    @property
    def num_in_flight(self) -> int:
        """Items that are not in the table yet."""

    @property
    def num_dropped(self) -> int:
        """Steps that could not become items because their right end never came."""

@disjoint_base
class StructuredWriter:
    """The base class of `reverie.writers.StructuredWriter`."""

    def __new__(
        cls,
        client: Client,
        paths: list[str],
        configs: list[tuple[Any, ...]],
        *,
        max_in_flight_bytes: int | None,
        timeout: float | None,
        variable: Sequence[tuple[str, int]] = ...,
    ) -> Self: ...
    def append(self, data: Any, *, partial_step: bool = False) -> None:
        """Appends a step, or a part of one, and sends the items that are complete with it.

        Never append a step again after an error: it was written (`error.step_written`), or it is refused again.

        Args:
            data: a nest of arrays and numbers with the fields that the configs were made for, whatever its containers;
                None where a field holds no value in this step. A part of a step may leave fields out. Fields that no
                config refers to may hold anything.
            partial_step: leaves the step open for more fields.

        Raises:
            SignatureError: for a field that the configs do not know, a whole step that lacks one, a dtype or shape
                other than the field's before, or one that a condition or a priority cannot be made of; the error
                names the path, and nothing was written.
            ValueError: for a field that this step has already, or a td error that is not finite; nothing was written.
            DeadlineExceededError: too much was in flight for too long; this step was written all the same.
            ClosedError: the writer was closed.
            Any other error of items, sent before or with this step; this step was written all the same, and its other
            items were sent.
        """

    @property
    def step_is_open(self) -> bool:
        """True between a partial append and the end of its step."""

    @property
    def num_in_flight(self) -> int:
        """Items that are not in their tables yet."""

    def _flush(self, block_until_num_items: int, timeout: float | None, durable: bool = False) -> None: ...
    def _end_episode(self, clear_buffers: bool) -> None: ...
    @property
    def _timeout(self) -> float | None: ...
    def _close(self) -> None: ...

@final
class Patterns:
    """The items of configs as arrays, without tables."""

    def __new__(cls, paths: list[str], configs: list[tuple[Any, ...]]) -> Self: ...
    def append(self, data: Any) -> list[Any]:
        """Appends a whole step; the trajectories that are complete with it."""

    def end_episode(self, clear_buffers: bool) -> list[Any]:
        """Ends the episode; the trajectories that are complete with that."""

@disjoint_base
class TrajectoryWriter:
    """The base class of `reverie.writers.TrajectoryWriter`."""

    def __new__(
        cls,
        client: Client,
        num_keep_alive_refs: int,
        *,
        chunk_length: int | None,
        compression: str,
        max_in_flight_bytes: int | None,
        timeout: float | None,
        timesteps: bool = False,
        alike: bool = False,
        variable: list[tuple[str, int]] = ...,
    ) -> Self: ...
    def append(self, data: Any, *, partial_step: bool = False) -> None:
        """Appends a step, or a part of one.

        Never append a step again after an error: it was written (`error.step_written`), or it is refused again.

        Args:
            data: a nest of arrays and numbers; None where a column holds no value in this step. A field that is new
                has None in all steps before.
            partial_step: leaves the step open for more fields.

        Raises:
            SignatureError: for a dtype or shape other than the column's, or a structure that cannot be merged with
                the one before; the error names the path.
            ValueError: for a field that this step has already.
            DeadlineExceededError: too much was in flight for too long; this step was written all the same.
            ClosedError: the writer was closed.
            Any other error of items sent before; this step was written all the same.
        """

    def _store(self, data: Any) -> int: ...
    def _make_room(self) -> None: ...
    @property
    def history(self) -> Any:
        """Everything that was appended since the history was cleared, as a nest of `HistoryColumn`s.

        Raises:
            RuntimeError: before the first append.
        """

    def create_item(self, table: str, priority: float | Literal["max"], trajectory: Any) -> None:
        """Sends an item over steps that were appended. Does not wait.

        Args:
            table: where it goes.
            priority: its priority; "max" takes the largest that the table holds.
            trajectory: a nest of `TrajectoryColumn`s: slices of `history`. They may differ in length; a single step
                (`history["obs"][-1]`) has no time axis.

        Raises:
            TypeError: for leaves that are not TrajectoryColumns.
            ValueError: for steps that have expired, or columns of another writer.
            SignatureError: for an item that the table cannot hold.
            UnknownTableError, ClosedError.
        """

    @property
    def episode_steps(self) -> int:
        """Whole steps since the last `end_episode`."""

    @property
    def step_is_open(self) -> bool:
        """True between a partial append and the end of its step."""

    @property
    def num_in_flight(self) -> int:
        """Items that are not in their tables yet."""

    def _flush(self, block_until_num_items: int, timeout: float | None, durable: bool = False) -> None: ...
    def _end_episode(self, clear_buffers: bool) -> None: ...
    def _configure(self, path: str, num_keep_alive_refs: int, max_chunk_length: int | None) -> None: ...
    @property
    def _timeout(self) -> float | None: ...
    def _close(self) -> None: ...

@final
class HistoryColumn:
    """All steps of one column of a writer; a slice of it is a TrajectoryColumn.

    Indices count from the last clearing of the history, and negative ones from its end. Steps that have expired count
    and cannot be touched (ValueError).
    """

    def __len__(self) -> int: ...
    def __getitem__(self, key: int | slice | list[int], /) -> TrajectoryColumn: ...
    def __iter__(self) -> Iterator[TrajectoryColumn | None]:
        """Every step as a column of one cell; None where there is no value, or none any more."""

@final
class TrajectoryColumn:
    """Some steps of one column of a writer."""

    def __new__(
        cls, data_references: Sequence[TrajectoryColumn], *, squeeze: bool = False, path: Any = None
    ) -> TrajectoryColumn:
        """A column of single cells, such as iterating over columns gives; `path` is for ported code.

        Raises:
            TypeError: for a column that is not a single cell of a history.
            ValueError: for None, no cells, several with `squeeze`, or cells of different columns or writers.
        """

    def __len__(self) -> int: ...
    def __getitem__(self, key: int | slice | list[int], /) -> TrajectoryColumn: ...
    @property
    def path(self) -> str:
        """The column's path."""

    @property
    def expired(self) -> bool:
        """True where the writer keeps one of the steps no more."""

    @property
    def is_squeezed(self) -> bool:
        """True for one step without a time axis."""

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape, with a time axis unless squeezed; None for a size that differs from step to step."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype; for bytes and str without a width."""

    def numpy(self) -> npt.NDArray[Any]:
        """The steps as an array. RuntimeError where they have expired."""

@final
class InsertOutcome:
    """The outcome of an insert whose caller received that it is not known; `UnknownOutcomeError.outcome`."""

    def wait(self, timeout: float | None = None) -> npt.NDArray[np.int64]:
        """The keys of what is in, once the server was reached again; waits for that.

        The insert was withdrawn: what is not in does not go in any more.

        Args:
            timeout: seconds; None waits for as long as it takes.

        Raises:
            UnknownOutcomeError: the timeout passed.
            DeadlineExceededError: the items whose keys are in `.partial` are in, but not in the server's journal.
            UnavailableError: the server no longer knows the client.
            ClosedError: the client was closed.
            ValueError: more than 4,096 outcomes were found out since, and this one is forgotten.
        """

@disjoint_base
class DrawInfo:
    """The fields of `reverie.BatchInfo`, each an array that is made when it is first read."""

    key: Any
    probability: Any
    priority: Any
    table_size: Any
    times_sampled: Any
    version: Any
    inserted_at: Any

    def __new__(cls, *_args: Any, **_keywords: Any) -> Self: ...
    def _weights(self, beta: float, bound: float | None) -> npt.NDArray[np.float64]: ...

@final
class Prefetch:
    """A thread that makes batches ahead, for `reverie.datasets.Batches`."""

    def __new__(
        cls,
        client: Client,
        parts: list[tuple[str, int]],
        *,
        ahead: int,
        columns: list[str] | None,
        ragged: Literal["pad", "values"] | None,
        max_samples: int | None,
        without_replacement: bool,
        windows: tuple[int, int, Borders] | None = None,
        widens: bool = False,
        mixture: tuple[int, list[tuple[float, float, int, int]]] | None = None,
    ) -> Self: ...
    def next(self, timeout: float | None) -> Batch | None:
        """The next batch, or None at the end. Blocks for `timeout` seconds at most; None takes the client's default.

        Raises:
            ValueError: for an invalid timeout.
            DeadlineExceededError, UnknownTableError, ClosedError, RaggedError, ResourceExhaustedError, MemoryError: as
                for `Client.sample_batch`.
            KeyboardInterrupt: at Ctrl-C.
            ForkedError: in a forked child.
        """

    def close(self) -> list[Batch]:
        """Stops drawing; returns the batches that were drawn and not delivered. Idempotent: a second call returns none.

        Blocks until a gather in progress ends; over a network, until the server has answered the requests under way,
        for the client's `grace` at most. Draws that cannot be one batch are returned one by one.

        Raises:
            ForkedError: in a forked child.
        """
