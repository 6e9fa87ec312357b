"""The calls of a client about tables: updates and deletes by key, figures, and why requests wait."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reverie import _native
from reverie._late_types import late
from reverie.client.signatures import structure_of
from reverie.tables import Table
from reverie.types import Condition, UpdateResult

if TYPE_CHECKING:
    from reverie.info import Info, TableInfo, Why
else:
    Info = late("reverie.info", "Info")
    TableInfo = late("reverie.info", "TableInfo")
    Why = late("reverie.info", "Why")

#: A key that no item has: keys have 63 bits.
_NO_KEY = -1


class TableCalls(_native.Client):
    """The calls of a client about tables; the base of its other calls."""

    #: The tables, where they are in this process; None where the server has to be asked.
    _own: tuple[Table, ...] | None
    #: Makes an equal client; None where the server does not listen.
    _like: functools.partial[Any] | None
    #: A client of each server, if there are several.
    _shards: tuple[Any, ...] = ()

    @property
    def server_address(self) -> str | None:
        """The address that the server listens on, `host:port`; None where it does not listen, and for several servers.

        The addresses of several are those of `clients`.
        """
        return None if self._like is None or self._shards else str(self._like.args[0])

    #: Ported code reads this private attribute of dm-reverb's client.
    _server_address = server_address

    def mutate_priorities(
        self,
        table: str,
        updates: Mapping[int, float] | None = None,
        deletes: Sequence[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> tuple[UpdateResult, UpdateResult]:
        """Deletes items, then sets priorities, atomically on each server. Keys of items that are gone are ignored.

        Args:
            table: the table.
            updates: new priorities by key.
            deletes: keys.
            timeout: seconds to wait for the server's response; an in-process call does not wait.

        Returns:
            the outcome of the updates, and that of the deletes.

        Raises:
            ValueError: for a priority that the table's selectors refuse.
        """
        updates = {} if updates is None else updates
        # Ported code may pass keys of 64 bits: they become a key that no item has.
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

        With several servers, each checks the conditions for its items. Items of a server that cannot be reached stay,
        and their keys are stale.

        Args:
            table: the table.
            keys: array-like of ints; None means every item for which `where` holds.
            where: conditions as for `query`. A large table is searched a thousand items at a time, while other calls
                run; an item is deleted where the conditions hold when it is reached.
            timeout: seconds to wait for the server's response; an in-process call does not wait.

        Returns:
            the number of items that were deleted; `stale` is the number of keys whose item has left, or for which
            `where` does not hold.

        Raises:
            ValueError: for neither keys nor conditions: `client.reset(table)` drops all items.
            UnavailableError: the server cannot be reached, or, without `keys`, was restarted before it answered: what
                was deleted is not known.
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
        """The figures of every table, by name: `info(timeout).tables`, under dm-reverb's name."""
        return self.info(timeout).tables

    def info(self, timeout: float | None = None) -> Info:
        """The transport in use and why, the tables' figures, and the server's memory.

        Args:
            timeout: seconds to wait for the server's response; an in-process call does not wait.
        """
        # A client in the server's process has the tables themselves.
        return self._made(self._info(timeout, options=self._own is None))

    def _made(self, figures: dict[str, Any]) -> Info:
        """The Info of figures of the engine."""
        from reverie.info import DiskInfo, Info, JournalInfo, ShardInfo

        reason = "the client was made by server.client() in the server's process"
        if self._like is not None:
            reason = "the server listens in this process"
        link = figures.pop("link", {"transport": "in-process", "reason": reason})
        shards, of_tables = figures.pop("shards", ()), figures.pop("tables")
        journal, disk = figures.pop("journal"), figures.pop("disk")
        options = [of_table.pop("options", None) for of_table in of_tables.values()]
        tables = self._own or tuple(Table._described(of_table) for of_table in options if of_table is not None)
        return Info(
            tables={table.name: table._info_from(of_tables[table.name]) for table in tables},
            address=self.server_address,
            journal=None if journal is None else JournalInfo(**journal),
            disk=None if disk is None else DiskInfo(**disk),
            shards=tuple(
                ShardInfo(client.server_address, present, None if own is None else client._made(own), of_shard)
                for client, (present, own, of_shard) in zip(self._shards, shards, strict=True)
            ),
            **figures,
            **link,
        )

    def why(self, table: str, *, timeout: float | None = None) -> Why:
        """Which calls wait at the table, since when, for what, and what would free them.

        Args:
            table: the table.
            timeout: seconds to wait for the server's response; an in-process call does not wait.
        """
        from reverie.info import Waiting, Why

        figures = self._why(table, timeout)
        for queue in ("inserts", "samples"):
            figures[queue] = tuple(Waiting(*waiting) for waiting in figures[queue])
        return Why(**figures)

    def _tables(self, timeout: float | None) -> tuple[Table, ...]:
        if self._own is not None:
            return self._own
        return tuple(Table._described(options) for options in self._describe(timeout))

    def _structure_of(self, table: str, timeout: float | None) -> _native.Structure | None:
        """The structure of the table's signature; None where there is no signature, or no such table."""
        of_table = self.server_info(timeout).get(table)
        return None if of_table is None else structure_of(of_table.signature)

    def _consume(self, tables: Iterable[str], timeout: float | None = None) -> bool:
        """Whether one of the tables deletes sampled items: one request for all of them."""
        figures = self._info(timeout)["tables"]
        return any(figures[table]["max_times_sampled"] > 0 for table in tables if table in figures)
