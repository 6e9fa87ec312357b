"""The calls of a client that make writers: of trajectories, patterns, transitions, sequences and episodes."""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from typing import Literal, cast, overload

from reverie import _checks, _native
from reverie.client.table import TableCalls
from reverie.structured import Config
from reverie.tables import Compression
from reverie.writers import (
    Autoreset,
    EpisodeWriter,
    SequenceWriter,
    StructuredWriter,
    Tail,
    TrajectoryWriter,
    TransitionWriter,
    VectorWriter,
    Writer,
)


class WriterCalls(TableCalls):
    """The calls of a client that make writers."""

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
    ) -> TrajectoryWriter:
        """A writer of trajectories; see `reverie.writers.TrajectoryWriter`.

        With `validate_items=False`, items leave out the columns that the table's signature does not name; the other
        columns are checked as usual. `get_signature_timeout_ms` is for code that was written for dm-reverb before 0.8:
        milliseconds in which the server must return its tables' options; None takes `timeout`.
        """
        within = timeout if get_signature_timeout_ms is None else get_signature_timeout_ms / 1e3
        return TrajectoryWriter(
            self,
            num_keep_alive_refs,
            fit_to=None if validate_items else functools.cache(functools.partial(self._signature, within)),
            chunk_length=chunk_length,
            compression=self._compression(within) if compression is None else compression,
            max_in_flight_bytes=max_in_flight_bytes,
            timeout=timeout,
        )

    def writer(
        self,
        max_sequence_length: int,
        delta_encoded: bool = False,
        chunk_length: int | None = None,
        max_in_flight_items: int | None = 25,
        *,
        timeout: float | None = None,
    ) -> Writer:
        """A writer of sequences under dm-reverb's older interface; see `reverie.writers.Writer`."""
        return Writer(
            self,
            max_sequence_length,
            delta_encoded,
            chunk_length,
            max_in_flight_items,
            compression=self._compression(timeout),
            timeout=timeout,
        )

    def _signature(self, timeout: float | None, table: str) -> _native.Structure | None:
        """The structure of the table's signature; None where there is no signature, or no such table."""
        [signature] = [of.signature for of in self._tables(timeout) if of.name == table] or [None]
        return None if signature is None else _native.flatten(signature)[1]

    def _compression(self, timeout: float | None) -> Compression:
        """The compression that all tables ask for; "auto" where they differ."""
        asked = {table.compression for table in self._tables(timeout)}
        return asked.pop() if len(asked) == 1 else "auto"

    def structured_writer(
        self, configs: Sequence[Config], *, max_in_flight_bytes: int | None = None, timeout: float | None = None
    ) -> StructuredWriter:
        """A writer that makes items by patterns; see `reverie.writers.StructuredWriter` and `reverie.structured`."""
        return StructuredWriter(self, configs, max_in_flight_bytes=max_in_flight_bytes, timeout=timeout)

    @overload
    def sequence_writer(
        self,
        table: str,
        length: int,
        period: int,
        burn_in: int = 0,
        *,
        num_envs: None = None,
        tail: Tail = "short",
        priority: float | Literal["max"] = 1.0,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
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
        tail: Tail = "short",
        priority: float | Literal["max"] = 1.0,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
    ) -> VectorWriter[SequenceWriter]: ...

    def sequence_writer(
        self,
        table: str,
        length: int,
        period: int,
        burn_in: int = 0,
        *,
        num_envs: int | None = None,
        tail: Tail = "short",
        priority: float | Literal["max"] = 1.0,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
    ) -> SequenceWriter | VectorWriter[SequenceWriter]:
        """A writer of overlapping sequences; see `reverie.writers.SequenceWriter`.

        With `num_envs` a writer for that many environments, which step together; see `reverie.writers.VectorWriter`.
        """
        make = functools.partial(
            SequenceWriter,
            self,
            table,
            length,
            period,
            burn_in,
            tail=tail,
            priority=priority,
            compression=self._compression(timeout),
            max_in_flight_bytes=self._share(max_in_flight_bytes, num_envs),
            timeout=timeout,
        )
        return make() if num_envs is None else VectorWriter(make, num_envs, timeout)

    @overload
    def episode_writer(
        self,
        table: str,
        *,
        num_envs: None = None,
        max_length: int = 1 << 20,
        priority: float | Literal["max"] = 1.0,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
    ) -> EpisodeWriter: ...

    @overload
    def episode_writer(
        self,
        table: str,
        *,
        num_envs: int,
        max_length: int = 1 << 20,
        priority: float | Literal["max"] = 1.0,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
    ) -> VectorWriter[EpisodeWriter]: ...

    def episode_writer(
        self,
        table: str,
        *,
        num_envs: int | None = None,
        max_length: int = 1 << 20,
        priority: float | Literal["max"] = 1.0,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
    ) -> EpisodeWriter | VectorWriter[EpisodeWriter]:
        """A writer of whole episodes; see `reverie.writers.EpisodeWriter`.

        With `num_envs` a writer for that many environments, which step together; see `reverie.writers.VectorWriter`.
        """
        make = functools.partial(
            EpisodeWriter,
            self,
            table,
            max_length=max_length,
            priority=priority,
            compression=self._compression(timeout),
            max_in_flight_bytes=self._share(max_in_flight_bytes, num_envs),
            timeout=timeout,
        )
        return make() if num_envs is None else VectorWriter(make, num_envs, timeout)

    def transition_writer(
        self,
        table: str,
        *,
        n_step: int = 1,
        discount: float = 0.99,
        num_envs: int | None = None,
        frame_stack: int | None = None,
        stack_axis: int = 0,
        autoreset: Autoreset | enum.Enum = "next_step",
        priority_eps: float = 1e-6,
        priority_clip: float | None = None,
        priority: float | Literal["max"] = 1.0,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
    ) -> TransitionWriter:
        """A writer of n-step transitions from vector environments; see `reverie.writers.TransitionWriter`."""
        return TransitionWriter(
            self,
            table,
            n_step=n_step,
            discount=discount,
            num_envs=num_envs,
            frame_stack=frame_stack,
            stack_axis=stack_axis,
            # Gymnasium's AutoresetMode.NEXT_STEP is accepted for its name, "next_step".
            autoreset=cast("Autoreset", autoreset.name.lower()) if isinstance(autoreset, enum.Enum) else autoreset,
            priority_eps=priority_eps,
            priority_clip=priority_clip,
            priority=priority,
            max_in_flight_bytes=max_in_flight_bytes,
            timeout=timeout,
        )

    def _share(self, max_in_flight_bytes: int | None, num_envs: int | None) -> int | None:
        """The bytes that the writer of each environment may have in flight."""
        if num_envs is None:
            return max_in_flight_bytes
        given = self.max_in_flight_bytes if max_in_flight_bytes is None else max_in_flight_bytes
        return max(1, _checks.count("max_in_flight_bytes", given, 1) // _checks.count("num_envs", num_envs, 1))
