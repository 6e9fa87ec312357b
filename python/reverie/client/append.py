"""The calls of a client that make writers: of trajectories, patterns, transitions, sequences and episodes."""

from __future__ import annotations

import contextlib
import enum
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar, cast, overload

from reverie import _checks
from reverie.client.signatures import variable_cells, variable_fields
from reverie.client.table import TableCalls
from reverie.selectors import Prioritized
from reverie.structured import Config
from reverie.tables import Compression, Table
from reverie.writers import (
    Autoreset,
    EpisodeWriter,
    Head,
    SequenceWriter,
    StructuredWriter,
    Tail,
    TrajectoryWriter,
    TransitionWriter,
    VectorWriter,
    Writer,
)

StepsT = TypeVar("StepsT", SequenceWriter, EpisodeWriter)


class WriterCalls(TableCalls):
    """The calls of a client that make writers.

    A writer uses one server. With several servers, `shard` is the index of the one to use; None takes the next one that
    can be reached. Actors that each make one writer pass their own index, modulo `num_shards`.

    While its server cannot be reached, a writer keeps unacknowledged data and sends it when the server is back.
    Meanwhile `flush` raises DeadlineExceededError, and `append` waits once `max_in_flight_bytes` are unacknowledged. To
    continue at once on another server, make another writer.
    """

    @contextlib.contextmanager
    def _at(self, shard: int | None, timeout: float | None) -> Iterator[tuple[WriterCalls, float | None]]:
        """The client of a writer's server, and the writer's timeout. A failure there is noted."""
        number = self._place(shard, timeout)
        if not self._shards:
            yield self, timeout
            return
        try:
            yield self._shards[number], self.timeout if timeout is None else timeout
        except Exception as error:
            self._failed(number, error)
            raise

    def trajectory_writer(
        self,
        num_keep_alive_refs: int,
        *,
        validate_items: bool = True,
        chunk_length: int | None = None,
        compression: Compression | None = None,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
        get_signature_timeout_ms: int | None = None,
        shard: int | None = None,
    ) -> TrajectoryWriter:
        """A writer of trajectories; see `reverie.writers.TrajectoryWriter`.

        With `validate_items=False`, items leave out the columns that the table's signature does not name; the other
        columns are checked as usual. `get_signature_timeout_ms` is for code that was written for dm-reverb before 0.8:
        milliseconds in which the server must return its tables' options; None takes `timeout`.
        """
        within = timeout if get_signature_timeout_ms is None else get_signature_timeout_ms / 1e3
        with self._at(shard, timeout) as (client, timeout):
            tables = client._tables(within)
            return TrajectoryWriter(
                client,
                num_keep_alive_refs,
                fit_to=None if validate_items else functools.cache(lambda table: client._structure_of(table, within)),
                chunk_length=chunk_length,
                compression=common_compression(tables) if compression is None else compression,
                max_in_flight_bytes=max_in_flight_bytes,
                timeout=timeout,
                variable=variable_cells(tables),
            )

    def writer(
        self,
        max_sequence_length: int,
        delta_encoded: bool = False,
        chunk_length: int | None = None,
        max_in_flight_items: int | None = 25,
        *,
        timeout: float | None = None,
        shard: int | None = None,
    ) -> Writer:
        """A writer of sequences under dm-reverb's older interface; see `reverie.writers.Writer`."""
        with self._at(shard, timeout) as (client, timeout):
            tables = client._tables(timeout)
            return Writer(
                client,
                max_sequence_length,
                delta_encoded,
                chunk_length,
                max_in_flight_items,
                compression=common_compression(tables),
                timeout=timeout,
                variable=variable_cells(tables),
            )

    def structured_writer(
        self,
        configs: Sequence[Config],
        *,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
        shard: int | None = None,
    ) -> StructuredWriter:
        """A writer that makes items by patterns; see `reverie.writers.StructuredWriter` and `reverie.structured`."""
        with self._at(shard, timeout) as (client, timeout):
            return StructuredWriter(
                client,
                configs,
                max_in_flight_bytes=max_in_flight_bytes,
                timeout=timeout,
                variable=variable_fields(client._tables(timeout), configs),
            )

    @overload
    def sequence_writer(
        self,
        table: str,
        length: int,
        period: int,
        burn_in: int = 0,
        *,
        num_envs: None = None,
        head: Head = "pad",
        tail: Tail = "short",
        priority: float | Literal["max"] | None = None,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
        shard: int | None = None,
    ) -> SequenceWriter: ...

    @overload
    def sequence_writer(
        self,
        table: str,
        length: int,
        period: int,
        burn_in: int = 0,
        *,
        num_envs: int,
        autoreset: Autoreset | enum.Enum | None = None,
        head: Head = "pad",
        tail: Tail = "short",
        priority: float | Literal["max"] | None = None,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
        shard: int | None = None,
    ) -> VectorWriter[SequenceWriter]: ...

    def sequence_writer(
        self,
        table: str,
        length: int,
        period: int,
        burn_in: int = 0,
        *,
        num_envs: int | None = None,
        autoreset: Autoreset | enum.Enum | None = None,
        head: Head = "pad",
        tail: Tail = "short",
        priority: float | Literal["max"] | None = None,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
        shard: int | None = None,
    ) -> SequenceWriter | VectorWriter[SequenceWriter]:
        """A writer of overlapping sequences; see `reverie.writers.SequenceWriter`.

        With `num_envs` a writer for that many environments, which step together; see `reverie.writers.VectorWriter`.
        `priority=None` is "max" if the table's sampler is `Prioritized`, so that each item is soon drawn once (Schaul
        et al. 2016, algorithm 1), else 1.
        """
        make = functools.partial(SequenceWriter, length=length, period=period, burn_in=burn_in, head=head, tail=tail)
        return self._steps_writer(make, table, num_envs, autoreset, priority, max_in_flight_bytes, timeout, shard)

    @overload
    def episode_writer(
        self,
        table: str,
        *,
        num_envs: None = None,
        max_length: int = 1 << 20,
        priority: float | Literal["max"] | None = None,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
        shard: int | None = None,
    ) -> EpisodeWriter: ...

    @overload
    def episode_writer(
        self,
        table: str,
        *,
        num_envs: int,
        autoreset: Autoreset | enum.Enum | None = None,
        max_length: int = 1 << 20,
        priority: float | Literal["max"] | None = None,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
        shard: int | None = None,
    ) -> VectorWriter[EpisodeWriter]: ...

    def episode_writer(
        self,
        table: str,
        *,
        num_envs: int | None = None,
        autoreset: Autoreset | enum.Enum | None = None,
        max_length: int = 1 << 20,
        priority: float | Literal["max"] | None = None,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
        shard: int | None = None,
    ) -> EpisodeWriter | VectorWriter[EpisodeWriter]:
        """A writer of whole episodes; see `reverie.writers.EpisodeWriter`.

        With `num_envs` a writer for that many environments, which step together; see `reverie.writers.VectorWriter`.
        `priority=None` is "max" if the table's sampler is `Prioritized`, so that each item is soon drawn once (Schaul
        et al. 2016, algorithm 1), else 1.
        """
        make = functools.partial(EpisodeWriter, max_length=max_length)
        return self._steps_writer(make, table, num_envs, autoreset, priority, max_in_flight_bytes, timeout, shard)

    def _steps_writer(
        self,
        make: Callable[..., StepsT],
        table: str,
        num_envs: int | None,
        autoreset: Autoreset | enum.Enum | None,
        priority: float | Literal["max"] | None,
        max_in_flight_bytes: int | None,
        timeout: float | None,
        shard: int | None,
    ) -> StepsT | VectorWriter[StepsT]:
        if num_envs is None and autoreset is not None:
            raise ValueError(f"autoreset is {autoreset!r}, and it is for several environments: set num_envs, too")
        with self._at(shard, timeout) as (client, timeout):
            tables = client._tables(timeout)
            make_one = functools.partial(
                make,
                client,
                table,
                priority=_first_priority(tables, table) if priority is None else priority,
                compression=common_compression(tables),
                max_in_flight_bytes=client._share(max_in_flight_bytes, num_envs),
                timeout=timeout,
                variable=variable_cells([of for of in tables if of.name == table]),
            )
            return make_one() if num_envs is None else VectorWriter(make_one, num_envs, timeout, _named(autoreset))

    def transition_writer(
        self,
        table: str,
        *,
        n_step: int = 1,
        discount: float = 0.99,
        num_envs: int | None = None,
        frame_stack: int | None = None,
        stack_axis: int = 0,
        autoreset: Autoreset | enum.Enum | None = None,
        priority_eps: float = 1e-6,
        priority_clip: float | None = None,
        priority: float | Literal["max"] | None = None,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
        shard: int | None = None,
    ) -> TransitionWriter:
        """A writer of n-step transitions; see `reverie.writers.TransitionWriter`.

        `autoreset=None` is "next_step" with `num_envs`, as Gymnasium's vector environments reset by default, and
        "disabled" for one environment, which the program resets. `priority=None` is "max" if the table's sampler is
        `Prioritized`, so that each item is soon drawn once (Schaul et al. 2016, algorithm 1), else 1.
        """
        with self._at(shard, timeout) as (client, timeout):
            tables = client._tables(timeout)
            return TransitionWriter(
                client,
                table,
                n_step=n_step,
                discount=discount,
                num_envs=num_envs,
                frame_stack=frame_stack,
                stack_axis=stack_axis,
                autoreset=_named(autoreset) or ("disabled" if num_envs is None else "next_step"),
                priority_eps=priority_eps,
                priority_clip=priority_clip,
                priority=_first_priority(tables, table) if priority is None else priority,
                max_in_flight_bytes=max_in_flight_bytes,
                timeout=timeout,
                variable=[
                    (path, axes)
                    for path, axes in variable_cells([of for of in tables if of.name == table])
                    # An open axis of a stack leaves open how large frames are, and all of a writer have one size.
                    if frame_stack is None or path.split("/")[0] not in ("obs", "next_obs")
                ],
            )

    def _share(self, max_in_flight_bytes: int | None, num_envs: int | None) -> int | None:
        """The bytes that the writer of each environment may have in flight."""
        if num_envs is None:
            return max_in_flight_bytes
        given = self.max_in_flight_bytes if max_in_flight_bytes is None else max_in_flight_bytes
        return max(1, _checks.count("max_in_flight_bytes", given, 1) // _checks.count("num_envs", num_envs, 1))


def common_compression(tables: Sequence[Table]) -> Compression:
    """The compression that all tables ask for; "auto" where they differ."""
    asked = {table.compression for table in tables}
    return asked.pop() if len(asked) == 1 else "auto"


def _named(autoreset: Autoreset | enum.Enum | None) -> Autoreset | None:
    """The name of a mode, which may be one of Gymnasium's `AutoresetMode`."""
    return cast("Autoreset", autoreset.name.lower()) if isinstance(autoreset, enum.Enum) else autoreset


def _first_priority(tables: Sequence[Table], name: str) -> float | Literal["max"]:
    """The priority of new items of a table: the largest there where items are drawn in proportion to priority."""
    return "max" if any(table.name == name and isinstance(table.sampler, Prioritized) for table in tables) else 1.0
