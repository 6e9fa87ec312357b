"""The servers of a sharded replay: who is there, and which of them a key is of."""

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
#: Seconds between two looks for a lost shard: at first, and at most.
_FIRST_LOOK, _LAST_LOOK = 0.1, 2.0

_T = TypeVar("_T")


class Members:
    """The shards in the order in which they were given, those that are lost included.

    A shard that fails is lost, with one warning; a thread looks for it until it is back.
    """

    def __init__(self, clients: Sequence[Client], is_back: Callable[[int], None]) -> None:
        self.clients = list(clients)
        self.infos: list[Info | None] = [None] * len(self.clients)
        self._numbers: list[int | None] = [None] * len(self.clients)
        self._is_back = is_back
        self._lost: set[int] = set()
        #: Shards that are being asked whether they can be reached.
        self._doubted: set[int] = set()
        #: Guards what is lost, and the numbers.
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._turns = itertools.count(random.SystemRandom().randrange(len(self.clients)))

    def connect(self) -> None:
        """Asks every shard what it is. Those that do not answer are lost; ValueError for those that do not fit."""
        import concurrent.futures  # Here: `import reverie` shall not pay for it.

        with concurrent.futures.ThreadPoolExecutor(len(self.clients)) as threads:
            asked = [threads.submit(client.info) for client in self.clients]
        for shard, answer in enumerate(asked):
            try:
                self.admit(shard, answer.result())
            except LOST as error:
                self.lose(shard, error)
        self.refuse_nobody()

    def admit(self, shard: int, info: Info) -> None:
        """Takes a shard in. ValueError where another has its number."""
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
        """A shard, for people."""
        return f"shard {shard} ({self.clients[shard].server_address or 'in this process'})"

    def table(self, name: str) -> TableInfo:
        """A table as the first shard told it. UnknownTableError; ValueError where it cannot be a shard's."""
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
        """Shards that cannot be reached, for people."""
        with self._lock:
            return [self.name(shard) for shard in sorted(self._lost)]

    def refuse_nobody(self) -> None:
        """UnavailableError where no shard can be reached."""
        if not self.present:
            raise UnavailableError(f"no shard can be reached: {', '.join(self.lost_names())}")

    def lose(self, shard: int, error: BaseException) -> None:
        """A shard failed: warns once, and looks for it from now on."""
        with self._lock:
            if shard in self._lost or self._closed.is_set():
                return
            self._lost.add(shard)
            left = len(self.clients) - len(self._lost)
        _LOG.warning("%s is lost, %d of %d go on: %s", self.name(shard), left, len(self.clients), error)
        look = threading.Thread(target=self._look, args=(shard,), name=f"reverie-shard-{shard}", daemon=True)
        look.start()

    def doubt(self, shard: int, lose: Callable[[int, BaseException], None]) -> None:
        """A call was late at a shard: finds out whether it can be reached, and tells `lose` if not. Does not wait."""
        with self._lock:
            if shard in self._lost or shard in self._doubted or self._closed.is_set():
                return
            self._doubted.add(shard)
        ask = threading.Thread(target=self._ask_after, args=(shard, lose), name=f"reverie-ask-{shard}", daemon=True)
        ask.start()

    def _ask_after(self, shard: int, lose: Callable[[int, BaseException], None]) -> None:
        try:
            # Not for the client's own time, which may be shorter than its patience.
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
        """What a call gives at every shard that can be reached; one that fails by it is lost."""
        given = {}
        for shard in self.present:
            try:
                given[shard] = call(self.clients[shard])
            except LOST as error:
                self.lose(shard, error)
        self.refuse_nobody()
        return given

    def next(self) -> int:
        """A shard that can be reached, in turns."""
        present = self.present
        self.refuse_nobody()
        return present[next(self._turns) % len(present)]

    def chosen(self, shard: int | None) -> int:
        """The shard that a caller chose, or the next."""
        if shard is None:
            return self.next()
        if not 0 <= shard < len(self.clients):
            raise ValueError(f"shard must be below {len(self.clients)}, the number of shards, got {shard}")
        return shard

    def by_key(self, keys: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
        """Which of the keys are of which shard: shards that have some, and the keys' places. Keys of no shard, and
        those of shards that are lost, are left out."""
        numbers = keys >> _SHARD_AT
        for shard in self.present:
            places = np.flatnonzero(numbers == self._numbers[shard])
            if len(places):
                yield shard, places

    def close(self) -> None:
        """Looks for nobody any more."""
        self._closed.set()
