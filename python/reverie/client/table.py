"""What a client asks of a table: changes by key, figures, reasons."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reverie import _native
from reverie.tables import Table
from reverie.types import Condition, TableInfo, UpdateResult, Waiting, Why

#: A key that no item has: keys are of 63 bits.
_NO_KEY = -1


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
    max_connections: int | None = None
    """Clients that the server takes at a time, by each way; None of a client in the server's own process."""
    unheard_errors: int = 0
    """Inserts and updates with `wait=False` that failed."""
    network_bytes: int = 0
    """Bytes that connections make the server hold: batches on their way over gRPC, cells that no item has, inserts that
    wait, answers that were not acknowledged. Shared memory is not counted. 0 of a server in this process."""
    max_network_bytes: int | None = None
    """The bound of these and of shared memory together; None for a server in this process, of which no connection is
    asked."""
    max_memory: int | None = None
    """What the server keeps to in all: `Server(max_memory=)`."""


class Keeping(_native.Client):
    """The part of a client that looks after tables; the others stand on it."""

    #: Of tables in this process; None where they are asked of the server.
    _own: tuple[Table, ...] | None
    #: What makes another client like this; None where the server does not listen.
    _like: functools.partial[Any] | None

    @property
    def server_address(self) -> str | None:
        """Where the server listens, `host:port`; None where it does not."""
        return None if self._like is None else str(self._like.args[0])

    #: Under which ported code reads it where it should not.
    _server_address = server_address

    def mutate_priorities(
        self,
        table: str,
        updates: Mapping[int, float] | None = None,
        deletes: Sequence[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> tuple[UpdateResult, UpdateResult]:
        """Deletes items, then sets priorities, as one decision. Keys of items that are gone are ignored.

        Args:
            table: the table.
            updates: new priorities by key.
            deletes: keys.
            timeout: seconds that the server may take to answer; in-process there is nothing to wait for.

        Returns:
            what became of the updates, and of the deletes.

        Raises:
            ValueError: for a priority that the table's selectors refuse.
        """
        updates = {} if updates is None else updates
        # Ported code may ask for any 64 bits; those that no key has become one that no item has.
        keys = np.fromiter((key if key < 1 << 63 else _NO_KEY for key in updates), np.int64, len(updates))
        priorities = np.fromiter(updates.values(), np.float64, len(updates))
        return self._mutate(table, keys, priorities, [] if deletes is None else deletes, timeout)

    def delete(
        self,
        table: str,
        keys: Any = None,
        where: Sequence[Condition] | None = None,
        *,
        timeout: float | None = None,
    ) -> UpdateResult:
        """Deletes items, by their keys, by conditions, or both.

        Args:
            table: the table.
            keys: array-like of ints; None is every item that fulfils `where`.
            where: conditions as of `query`; those must hold still when the item's turn comes. A large table is gone
                through a thousand items at a time, so that other calls go on meanwhile.
            timeout: seconds that the server may take to answer; in-process there is nothing to wait for.

        Returns:
            how many were deleted; and, as stale, of how many the item was gone or `where` does not hold (any more).

        Raises:
            ValueError: for neither keys nor conditions: `client.reset(table)` drops all items.
        """
        if where:
            return self._delete_where(table, keys, where, timeout)
        if keys is None:
            raise ValueError(
                "delete needs keys= or at least one condition in where=; client.reset(table) drops all items"
            )
        nothing = np.empty(0, np.int64)
        return self._mutate(table, nothing, np.empty(0), keys, timeout)[1]

    def server_info(self, timeout: float | None = None) -> dict[str, TableInfo]:
        """The figures of every table, by name: `info(timeout).tables`, under the name that ported code uses."""
        return self.info(timeout).tables

    def info(self, timeout: float | None = None) -> Info:
        """The transport in use and why, the tables' figures, and the bytes of the server.

        Args:
            timeout: seconds that the server may take to answer; in-process there is nothing to wait for.
        """
        figures = self._info(timeout)
        size_bytes, max_bytes, unheard_errors = figures.pop("")
        reason = "the client was made by server.client() in the server's process"
        if self._like is not None:
            reason = "the server listens in this process"
        network_bytes, max_network_bytes, max_memory = figures.pop("memory")
        link = figures.pop("link", {"transport": "in-process", "reason": reason})
        tables = self._own or tuple(Table._described(of_table.pop("options")) for of_table in figures.values())
        return Info(
            tables={table.name: table._told(figures[table.name]) for table in tables},
            size_bytes=size_bytes,
            max_bytes=max_bytes,
            network_bytes=network_bytes,
            max_network_bytes=max_network_bytes,
            max_memory=max_memory,
            address=self.server_address,
            unheard_errors=unheard_errors,
            **link,
        )

    def why(self, table: str, *, timeout: float | None = None) -> Why:
        """Which calls wait at the table, since when, for what, and what would free them.

        Args:
            table: the table.
            timeout: seconds that the server may take to answer; in-process there is nothing to wait for.
        """
        figures = self._why(table, timeout)
        for queue in ("inserts", "samples"):
            figures[queue] = tuple(Waiting(*waiting) for waiting in figures[queue])
        return Why(**figures)

    def _tables(self, timeout: float | None) -> tuple[Table, ...]:
        if self._own is not None:
            return self._own
        return tuple(Table._described(options) for options in self._describe(timeout))

    def _consumes(self, table: str, timeout: float | None = None) -> bool:
        figures = self._info(timeout)
        return table in figures and figures[table]["max_times_sampled"] > 0
