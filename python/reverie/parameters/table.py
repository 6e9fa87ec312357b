"""Parameters over a server: a table of one item, whose priority is the version."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from reverie import selectors
from reverie._late_types import late
from reverie.client import Client
from reverie.errors import UnknownKeyError
from reverie.parameters.ends import Channel, ParameterCarrier
from reverie.parameters.record import MAX_NUMBER, Arrays, Parameters, Version, arrays_of, require_newer
from reverie.specs import TensorSpec
from reverie.tables import Table
from reverie.types import BatchInfo

if TYPE_CHECKING:
    from reverie.info import TableInfo
else:
    TableInfo = late("reverie.info", "TableInfo")


def table(name: str = "parameters", like: Mapping[str, Any] | None = None) -> Table:
    """A table for a `TableChannel`: it holds the item of the highest priority, which is the newest version.

    Args:
        name: of the table.
        like: arrays or tensors by name. The server refuses parameters with other names, dtypes or shapes. None accepts
            any.
    """
    signature = None if like is None else {name: TensorSpec(a.shape, a.dtype) for name, a in arrays_of(like).items()}
    return Table(name, selectors.MaxHeap(), selectors.MinHeap(), max_size=1, signature=signature, compression="none")


@final
@dataclass(frozen=True)
class TableChannel(Channel):
    """Parameters over a server, in the table that `reverie.parameters.table` made. Can be pickled if the client can.

    An item of the table is one version, so that a subscriber never receives parts of two. The table keeps the newest
    version, whichever publisher inserts last. A server that restarts without a checkpoint has none until the next
    publication.

    Args:
        client: a client of the one server with the table.
        table: the name of the table.

    Raises:
        ValueError: for a client of several servers. The first call at an end raises it if the table was not made by
            `reverie.parameters.table`, and UnknownTableError if there is no such table.
    """

    client: Client
    table: str = "parameters"

    def __post_init__(self) -> None:
        if not isinstance(self.client, Client):
            raise TypeError(f"client must be a reverie.Client, got a {type(self.client).__name__}")
        if self.client.num_shards != 1:
            raise ValueError(
                f"client must be of one server, got {self.client.num_shards}: pass the client of the one that has the "
                "parameters, for example client.clients[0]"
            )

    def carrier(self) -> _TableCarrier:
        """A carrier for one end."""
        return _TableCarrier(self.client, self.table)


class _TableCarrier(ParameterCarrier):
    def __init__(self, client: Client, table: str) -> None:
        self._client, self._table, self._checked = client, table, False
        self.where = f"table '{table}'"

    def put(self, version: Version, arrays: Arrays, timeout: float | None) -> None:
        end = None if timeout is None else time.monotonic() + timeout
        self._check(timeout)
        require_newer(version, self.newest(_rest(end)), self.where)
        # `insert_batch` would refuse another network than the first; subscribers report the difference.
        self._client.insert(arrays, {self._table: _priority(version)}, timeout=_rest(end))
        found = self._client.query(self._table, timeout=_rest(end))
        # If another publisher is newer, the table has evicted this item at once. It may also have been deleted.
        if len(found) and _version(found) != version:
            require_newer(version, _version(found), self.where)

    def fetch(self, above: Version | None, timeout: float | None) -> Parameters | Version | None:
        end = None if timeout is None else time.monotonic() + timeout
        self._check(timeout)
        while True:
            found = self._client.query(self._table, timeout=_rest(end))
            if not len(found):
                return None
            version = _version(found)
            if above is not None and version <= above:
                return version
            # Read by key: a draw would wait if the table was emptied meanwhile.
            with suppress(UnknownKeyError):  # a newer version has replaced it
                data = self._client.get(self._table, found.key, timeout=_rest(end)).data
                return Parameters(version, {name: column[0, ...] for name, column in data.items()})

    def _check(self, timeout: float | None) -> None:
        """Raises ValueError if the table is not one of `reverie.parameters.table`. Asks the server once."""
        if self._checked:
            return
        self._client.query(self._table, limit=1, timeout=timeout)  # its error names the known tables
        info: TableInfo = self._client.info(timeout).tables[self._table]
        kept = info.sampler_options, info.remover_options, info.max_size, info.max_times_sampled
        if kept != (selectors.MaxHeap(), selectors.MinHeap(), 1, 0):
            raise ValueError(
                f"table '{self._table}' does not keep the newest version: make it with "
                f"reverie.parameters.table({self._table!r})"
            )
        self._checked = True


def _priority(version: Version) -> float:
    return float(version.generation * (MAX_NUMBER + 1) + version.number)


def _version(info: BatchInfo) -> Version:
    return Version(*divmod(int(info.priority[0]), MAX_NUMBER + 1))


def _rest(end: float | None) -> float | None:
    return None if end is None else max(0.0, end - time.monotonic())
