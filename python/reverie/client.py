"""The client: inserts, samples, priorities, figures."""

from __future__ import annotations

import dataclasses
import enum
import functools
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, cast, final, get_args

import numpy as np

from reverie import _checks, _native, adapters, tls
from reverie.datasets import Batches
from reverie.tables import Compression, Table
from reverie.tls import ClientTLS
from reverie.types import (
    ReplaySample,
    SampleInfo,
    TableInfo,
    UpdateResult,
    Waiting,
    Why,
)
from reverie.writers import Autoreset, TrajectoryWriter, TransitionWriter

__all__ = ["Client", "Info", "Transport"]

Transport = Literal["auto", "in-process", "shared-memory", "grpc"]

#: Draws that `sample` asks for at once.
_SAMPLES_AT_ONCE = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Info:
    """What `client.info()` tells."""

    transport: str
    """How the client reaches its tables: "in-process", "shared-memory" or "grpc"."""
    reason: str
    """Why this way."""
    tables: dict[str, TableInfo]
    size_bytes: int
    """Bytes of all chunks of the server, each once."""
    max_bytes: int | None
    address: str | None = None
    """Where the server listens, `host:port`; None where it does not."""
    connected: bool = True
    reconnects: int = 0
    """Connections that were lost and made again."""
    server_restarts: int = 0
    """How often the server was found to be another one: what its predecessor held is gone."""
    bytes_sent: int = 0
    bytes_received: int = 0
    unheard_errors: int = 0
    """Updates with `wait=False` that failed."""


class Listening(Protocol):
    """What a client of this process needs of a server that listens."""

    @property
    def host(self) -> str: ...
    @property
    def tables(self) -> tuple[Table, ...]: ...
    @property
    def _native(self) -> _native.Server: ...


#: The servers of this process that listen, by port. A forked child has none: their tables stayed behind.
_LISTENING: weakref.WeakValueDictionary[int, Listening] = weakref.WeakValueDictionary()
os.register_at_fork(after_in_child=_LISTENING.clear)

_LOOPBACK = {"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"}


@final
class Client(_native.Client):
    """Reaches a server's tables. Safe to share between threads, and between processes by pickling.

    Every call that can wait takes `timeout=`: seconds, 0 tries, None takes the client's own default, which is to wait
    unless `timeout=` said otherwise here. A wait without end logs what it waits for after 10 s and then sparsely, ends
    with KeyboardInterrupt at Ctrl-C, and with ClosedError when the server stops. The connection is made at the first
    call, and made again where it was lost; in a forked child the first call makes one of its own.

    Args:
        address: `host:port` of the server.
        transport: "auto" takes the shortest way: straight to the tables where the server is in this process, shared
            memory where it is on this host, else "grpc". The others insist.
        token: what the server asks for.
        tls: certificates; None sends plain text.
        timeout: the default of every `timeout=` of this client and of its writers, in seconds.
        patience: seconds that a connection may take to be made, or to be made again, before calls fail.
        grace: seconds beyond a call's timeout in which the server's answer may come in: at the deadline the server says
            what was done and why not more. Longer than a round trip, and than a batch takes to arrive.

    Raises:
        ValueError: for an address that is none, or "in-process" without a server there.
        Later, by every call over a network: UnavailableError, UnauthenticatedError, ProtocolError.
    """

    #: Of tables in this process; None where they are asked of the server.
    _own: tuple[Table, ...] | None
    #: What makes another client like this; None where the server does not listen.
    _like: functools.partial[Client] | None

    def __new__(
        cls,
        address: str,
        *,
        transport: Transport = "auto",
        token: str | None = None,
        tls: ClientTLS | None = None,
        timeout: float | None = None,
        patience: float = 10.0,
        grace: float = 0.05,
    ) -> Client:
        """Checks the options; see the class."""
        if not isinstance(address, str):
            raise TypeError(f'address must be a str, "host:port", got {address!r}')
        if transport not in get_args(Transport):
            raise ValueError(f"transport must be one of {get_args(Transport)}, got {transport!r}")
        like = functools.partial(
            cls,
            address,
            transport=transport,
            token=token,
            tls=tls,
            timeout=timeout,
            patience=patience,
            grace=grace,
        )
        host, _, port = address.rpartition(":")
        server = _LISTENING.get(int(port)) if port.isdecimal() else None
        here = server is not None and (host == server.host or {host.strip("[]"), server.host} <= _LOOPBACK)
        if server is not None and here and transport in ("auto", "in-process"):
            return cls._of(server._native, server.tables, timeout, like)
        if transport == "in-process":
            raise ValueError(f"no server of this process listens at '{address}'; server.client() needs no address")
        self = super().__new__(
            cls,
            timeout=timeout,
            address=address,
            transport=transport,
            token=token,
            tls=None if tls is None else _files(tls),
            patience=patience,
            grace=grace,
        )
        self._own, self._like = None, like
        return self

    @classmethod
    def _of(
        cls,
        server: _native.Server,
        tables: Sequence[Table],
        timeout: float | None,
        like: functools.partial[Client] | None,
    ) -> Client:
        """A client of tables in this process."""
        self = super().__new__(cls, server, timeout=timeout)
        self._own, self._like = tuple(tables), like
        return self

    @property
    def server_address(self) -> str | None:
        """Where the server listens, `host:port`; None where it does not."""
        return None if self._like is None else str(self._like.args[0])

    def sample(
        self,
        table: str,
        num_samples: int = 1,
        *,
        emit_timesteps: bool = True,
        unpack_as_table_signature: bool = False,
        timeout: float | None = None,
    ) -> Iterator[list[ReplaySample] | ReplaySample]:
        """Draws items one by one.

        Draws are made ahead, as many as the table gives at once and never more than are asked for; one by one where
        draws consume the table's items, so that a loop may end early. Items that were drawn together are views of one
        allocation.

        Args:
            table: the table.
            num_samples: items to draw.
            emit_timesteps: True gives, for every item, a list with one sample per step; False one sample per item.
            unpack_as_table_signature: True gives data in the structure that was stored; False the flat list of its
                leaves in flattening order.
            timeout: seconds that each item may take.

        Raises:
            DeadlineExceededError, UnknownTableError, ClosedError.
            ValueError: for `num_samples` below 1, or timesteps of an item whose columns differ in length.
        """
        num_samples = _checks.count("num_samples", num_samples, 1)
        return self._sample(table, num_samples, emit_timesteps, unpack_as_table_signature, timeout, _SAMPLES_AT_ONCE)

    def _sample(
        self, table: str, num_samples: int, timesteps: bool, unpack: bool, timeout: float | None, at_once: int
    ) -> Iterator[list[ReplaySample] | ReplaySample]:
        left = num_samples
        at_once = 1 if self._consumes(table) else at_once
        while left > 0:
            for batch, step in self._sample_some(table, min(left, at_once), timeout=timeout):
                left -= len(batch)
                columns, structure = _native.flatten(batch.data)
                info = batch.info
                fields = zip(
                    info.key.tolist(),
                    info.probability.tolist(),
                    info.table_size.tolist(),
                    info.priority.tolist(),
                    info.times_sampled.tolist(),
                    strict=True,
                )
                for row, values in enumerate(fields):
                    sampled = SampleInfo(*values)
                    cells = [column[row, ...] for column in columns]
                    if step and not timesteps:
                        cells = [cell[np.newaxis] for cell in cells]
                    if not timesteps:
                        yield ReplaySample(sampled, structure.unflatten(cells) if unpack else cells)
                        continue
                    steps = [cells] if step else _steps(cells, structure.paths)
                    yield [ReplaySample(sampled, structure.unflatten(one) if unpack else one) for one in steps]

    def trajectory_writer(
        self,
        num_keep_alive_refs: int,
        *,
        validate_items: bool = True,
        chunk_length: int | None = None,
        compression: Compression | None = None,
        max_in_flight_bytes: int = 64 << 20,
        timeout: float | None = None,
    ) -> TrajectoryWriter:
        """A writer of trajectories; see `reverie.writers.TrajectoryWriter`."""
        if compression is None:
            asked = {table.compression for table in self._tables(timeout)}
            compression = asked.pop() if len(asked) == 1 else "auto"
        return TrajectoryWriter(
            self,
            num_keep_alive_refs,
            validate_items=validate_items,
            chunk_length=chunk_length,
            compression=compression,
            max_in_flight_bytes=max_in_flight_bytes,
            timeout=timeout,
        )

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
        priority: float | Literal["max"] = 1.0,
        max_in_flight_bytes: int = 64 << 20,
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
            # Gymnasium's own AutoresetMode.NEXT_STEP is as good as its name.
            autoreset=cast("Autoreset", autoreset.name.lower()) if isinstance(autoreset, enum.Enum) else autoreset,
            priority_eps=priority_eps,
            priority=priority,
            max_in_flight_bytes=max_in_flight_bytes,
            timeout=timeout,
        )

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

    def _consumes(self, table: str) -> bool:
        figures = self._info()
        return table in figures and figures[table]["max_times_sampled"] > 0

    def mutate_priorities(
        self, table: str, updates: Mapping[int, float] | None = None, deletes: Sequence[int] | None = None
    ) -> tuple[UpdateResult, UpdateResult]:
        """Deletes items, then sets priorities, as one decision. Keys of items that are gone are ignored.

        Returns:
            what became of the updates, and of the deletes.

        Raises:
            ValueError: for a priority that the table's selectors refuse.
        """
        updates = {} if updates is None else updates
        keys = np.fromiter(updates.keys(), np.int64, len(updates))
        priorities = np.fromiter(updates.values(), np.float64, len(updates))
        return self._mutate(table, keys, priorities, [] if deletes is None else deletes)

    def delete(self, table: str, keys: Any) -> UpdateResult:
        """Deletes items by their keys (array-like of ints); keys of items that are gone are counted as stale."""
        nothing = np.empty(0, np.int64)
        return self._mutate(table, nothing, np.empty(0), keys)[1]

    def server_info(self, timeout: float | None = None) -> dict[str, TableInfo]:
        """The figures of every table, by name. In-process, it is never late."""
        return self.info(timeout).tables

    def info(self, timeout: float | None = None) -> Info:
        """The transport in use and why, the tables' figures, and the bytes of the server."""
        figures = self._info(timeout)
        size_bytes, max_bytes, unheard_errors = figures.pop("")
        reason = "the client was made by server.client() in the server's process"
        if self._like is not None:
            reason = "the server listens in this process"
        link = figures.pop("link", {"transport": "in-process", "reason": reason})
        tables = self._own or tuple(Table._described(of_table.pop("options")) for of_table in figures.values())
        return Info(
            tables={table.name: table._told(figures[table.name]) for table in tables},
            size_bytes=size_bytes,
            max_bytes=max_bytes,
            address=self.server_address,
            unheard_errors=unheard_errors,
            **link,
        )

    def _tables(self, timeout: float | None) -> tuple[Table, ...]:
        if self._own is not None:
            return self._own
        return tuple(Table._described(options) for options in self._describe(timeout))

    def why(self, table: str) -> Why:
        """Who waits at the table, since when, for what, and what would free them."""
        figures = self._why(table)
        for queue in ("inserts", "samples"):
            figures[queue] = tuple(Waiting(*waiting) for waiting in figures[queue])
        return Why(**figures)

    def close(self) -> None:
        """Lets go of the chunks that this client was filling, and of its connection. The tables stay; idempotent.

        Writers have their own hold on the connection, and what was sent goes on; a later call makes a new connection.
        """
        self._close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._like is None:
            raise TypeError(
                "a client of a server that does not listen cannot be pickled: its tables live in this process; share "
                "it between threads, or make the server with listen=True"
            )
        return self._like, ()

    def __repr__(self) -> str:
        if self._own is None:
            return f"Client({self.server_address!r})"
        names = ", ".join(repr(table.name) for table in self._own)
        at = "" if self._like is None else f", address={self.server_address!r}"
        return f"Client(in-process, tables=[{names}]{at})"


def _files(options: ClientTLS) -> tuple[bytes | None, tuple[bytes, bytes] | None, str | None]:
    identity = None
    if options.cert is not None and options.key is not None:
        identity = (tls.read("certificate", options.cert), tls.read("key", options.key))
    ca = None if options.ca is None else tls.read("ca", options.ca)
    return ca, identity, options.server_name


def _steps(cells: list[Any], paths: list[str]) -> list[list[Any]]:
    lengths = {len(cell) if cell.ndim else 1 for cell in cells}
    if len(lengths) > 1 or any(cell.ndim == 0 for cell in cells):
        shapes = ", ".join(f"'{path}' {cell.shape}" for path, cell in zip(paths, cells, strict=True))
        raise ValueError(f"the columns of this item have no common time axis ({shapes}); pass emit_timesteps=False")
    return [[cell[step] for cell in cells] for step in range(lengths.pop())]
