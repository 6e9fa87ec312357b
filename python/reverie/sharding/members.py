"""The servers of a sharded replay: which can be reached, and which one a key belongs to."""

from __future__ import annotations

import itertools
import logging
import math
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from reverie.client import Client, Info
from reverie.errors import ClosedError, ReplayError, UnavailableError, UnknownTableError
from reverie.sharding import tables
from reverie.types import TableInfo

__all__ = ["LOST", "Members"]

_LOG = logging.getLogger("reverie")

#: Errors after which a shard counts as lost.
LOST = (UnavailableError, ClosedError)
#: A key's bits below those of its shard.
_SHARD_AT = 57
#: Seconds between two attempts to reach a lost shard: at first, and at most.
_FIRST_LOOK, _LAST_LOOK = 0.1, 2.0

_T = TypeVar("_T")


class Members:
    """The shards in the given order, lost ones included.

    A shard that fails is marked as lost, with one warning; a thread polls it until it is back.
    """

    def __init__(self, clients: Sequence[Client], is_back: Callable[[int], None]) -> None:
        self.clients = list(clients)
        self.infos: list[Info | None] = [None] * len(self.clients)
        self._numbers: list[int | None] = [None] * len(self.clients)
        self._is_back = is_back
        self._lost: set[int] = set()
        #: Shards that are being asked whether they can be reached.
        self._doubted: set[int] = set()
        #: Guards the sets of lost and doubted shards, and the numbers.
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._turns = itertools.count(random.SystemRandom().randrange(len(self.clients)))

    def connect(self) -> None:
        """Asks every shard for its tables. Shards without an answer are lost; raises ValueError for invalid ones."""
        import concurrent.futures  # Imported here to keep `import reverie` fast.

        with concurrent.futures.ThreadPoolExecutor(len(self.clients)) as threads:
            asked = [threads.submit(client.info) for client in self.clients]
        for shard, answer in enumerate(asked):
            try:
                self.admit(shard, answer.result())
            except LOST as error:
                self.lose(shard, error)
        self.refuse_nobody()

    def admit(self, shard: int, info: Info) -> None:
        """Admits a shard. Raises ValueError if another has its number."""
        numbers = {table.shard for table in info.tables.values()}
        with self._lock:
            number = numbers.pop()
            for other, taken in enumerate(self._numbers):
                if taken == number and other != shard:
                    raise ValueError(
                        f"{self.name(other)} and {self.name(shard)} are both shard {number}: their keys cannot be told"
                        " apart; start each with a number of its own, Server(..., shard=i) or `reverie serve --shard i`"
                    )
            self._numbers[shard], self.infos[shard] = number, info

    def name(self, shard: int) -> str:
        """The name of a shard in messages."""
        return f"shard {shard} ({self.clients[shard].server_address or 'in this process'})"

    def table(self, name: str) -> TableInfo:
        """A table as the first shard describes it.

        Raises UnknownTableError, UnavailableError without a reachable shard, and ValueError if it cannot be sharded.
        """
        found: TableInfo | None = None
        for shard, info in enumerate(self.infos):
            if info is None:
                continue
            if name not in info.tables:
                known = list(info.tables)
                raise UnknownTableError(
                    f"{self.name(shard)} has no table '{name}', it has {known}", name=name, known=known
                )
            table = info.tables[name]
            where = f"table '{name}' of {self.name(shard)}"
            tables.refuse_unfit(where, table.max_times_sampled, table.rate_limiter_info)
            if found is not None and self._differ(found, table):
                raise ValueError(
                    f"{where} and that of the first shard have other samplers or limiters; make them alike"
                )
            found = table if found is None else found
        if found is None:
            raise UnavailableError(f"no shard can be reached: {', '.join(self.lost_names())}")
        return found

    @staticmethod
    def _differ(one: TableInfo, other: TableInfo) -> bool:
        def kind(table: TableInfo) -> tuple[Any, ...]:
            sampler = table.sampler_options
            return sampler.WhichOneof(), sampler.prioritized, tables.is_rationed(table.rate_limiter_info)

        return kind(one) != kind(other)

    @property
    def present(self) -> list[int]:
        """Shards that can be reached."""
        with self._lock:
            return [shard for shard in range(len(self.clients)) if shard not in self._lost]

    def lost_names(self) -> list[str]:
        """The names of lost shards in messages."""
        with self._lock:
            return [self.name(shard) for shard in sorted(self._lost)]

    def refuse_nobody(self) -> None:
        """Raises UnavailableError if no shard can be reached."""
        if not self.present:
            raise UnavailableError(f"no shard can be reached: {', '.join(self.lost_names())}")

    def lose(self, shard: int, error: BaseException) -> None:
        """Marks a shard as lost: warns once, and polls it until it is back."""
        with self._lock:
            if shard in self._lost or self._closed.is_set():
                return
            self._lost.add(shard)
            left = len(self.clients) - len(self._lost)
        _LOG.warning("%s is lost, %d of %d go on: %s", self.name(shard), left, len(self.clients), error)
        look = threading.Thread(target=self._look, args=(shard,), name=f"reverie-shard-{shard}", daemon=True)
        look.start()

    def doubt(self, shard: int, lose: Callable[[int, BaseException], None]) -> None:
        """Checks in a thread, after a call timed out, whether a shard can be reached; calls `lose` if not."""
        with self._lock:
            if shard in self._lost or shard in self._doubted or self._closed.is_set():
                return
            self._doubted.add(shard)
        ask = threading.Thread(target=self._ask_after, args=(shard, lose), name=f"reverie-ask-{shard}", daemon=True)
        ask.start()

    def _ask_after(self, shard: int, lose: Callable[[int, BaseException], None]) -> None:
        try:
            # Without the client's default timeout, which may be shorter than its patience.
            self.clients[shard].info(math.inf)
        except LOST as error:
            lose(shard, error)
        except ReplayError:
            pass
        finally:
            with self._lock:
                self._doubted.discard(shard)

    def _look(self, shard: int) -> None:
        pause = _FIRST_LOOK
        while not self._closed.wait(pause):
            pause = min(2 * pause, _LAST_LOOK)
            try:
                self.admit(shard, self.clients[shard].info(_LAST_LOOK))
                self._is_back(shard)
            except ReplayError:
                continue
            except ValueError as error:
                _LOG.error("%s stays out: %s", self.name(shard), error)
                return
            _LOG.warning("%s is back", self.name(shard))
            with self._lock:
                self._lost.discard(shard)
            return

    def each(self, call: Callable[[Client], _T]) -> dict[int, _T]:
        """The results of a call at every reachable shard; a shard that fails is marked as lost."""
        given = {}
        for shard in self.present:
            try:
                given[shard] = call(self.clients[shard])
            except LOST as error:
                self.lose(shard, error)
        self.refuse_nobody()
        return given

    def next(self) -> int:
        """The next reachable shard, in turns."""
        present = self.present
        self.refuse_nobody()
        return present[next(self._turns) % len(present)]

    def chosen(self, shard: int | None) -> int:
        """The shard that the caller chose, or for None the next. Raises ValueError for an invalid index."""
        if shard is None:
            return self.next()
        if not 0 <= shard < len(self.clients):
            raise ValueError(f"shard must be below {len(self.clients)}, the number of shards, got {shard}")
        return shard

    def by_key(self, keys: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
        """The shards of the keys, each with the places of its keys.

        Keys of no shard or of a lost shard are left out.
        """
        numbers = keys >> _SHARD_AT
        for shard in self.present:
            places = np.flatnonzero(numbers == self._numbers[shard])
            if len(places):
                yield shard, places

    def close(self) -> None:
        """Stops polling lost shards."""
        self._closed.set()
