"""The base of a sharded client: its connections to the shards, and a sampler for each table."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from reverie import _checks, _native, rate_limiters
from reverie.client import Client, Transport
from reverie.errors import ClosedError
from reverie.sharding import tables
from reverie.sharding.members import Members
from reverie.sharding.sampler import Sampler
from reverie.tls import ClientTLS
from reverie.tokens import Token

__all__ = ["Reach"]


class Reach:
    """The shards, and a sampler for each table in use. Base of `ShardedClient`, which documents the arguments."""

    def __init__(
        self,
        shards: Sequence[str | Client],
        *,
        rate_limiter: rate_limiters.RateLimiter | None = None,
        among: tuple[int, int] = (0, 1),
        seed: int | None = None,
        timeout: float | None = None,
        transport: Transport = "auto",
        token: str | Token | None = None,
        tls: ClientTLS | None = None,
        patience: float = 10.0,
    ) -> None:
        if isinstance(shards, str) or not isinstance(shards, Sequence):
            raise TypeError(f"shards must be a list of addresses or clients, got {shards!r}")
        if not 1 <= len(shards) <= tables.MAX_SHARDS:
            raise ValueError(f"shards must be 1 to {tables.MAX_SHARDS}, got {len(shards)}")
        if rate_limiter is not None:
            tables.refuse_no_limits(rate_limiter)
        self.timeout = None if timeout is None else _checks.number("timeout", timeout)
        self._limiter, self._among = rate_limiter, _among(among, rate_limiter)
        self._seed = int.from_bytes(os.urandom(8), "little") if seed is None else _checks.count("seed", seed, 0)
        self._samplers: dict[str, Sampler] = {}
        #: Guards `_samplers`; held while a sampler is made.
        self._making = threading.RLock()
        self._closed = threading.Event()
        options: dict[str, Any] = {"transport": transport, "token": token, "tls": tls, "patience": patience}
        clients = [
            shard if isinstance(shard, _native.Client) else Client(shard, timeout=timeout, **options)
            for shard in shards
        ]
        self._members = Members(clients, self._is_back)
        self._members.connect()
        if rate_limiter is not None:
            self._begin_rations()

    def _begin_rations(self) -> None:
        names = {name for info in self._members.infos if info is not None for name in info.tables}
        infos = {name: self._members.table(name) for name in sorted(names)}
        rationed = [name for name, table in infos.items() if tables.is_rationed(table.rate_limiter_info)]
        if not rationed:
            raise ValueError(
                f"rate_limiter limits nothing: no table of {sorted(names)} has rate_limiters.Rationed();"
                " reverie.sharding.shard_table makes such tables"
            )
        for name in rationed:
            self._sampler(name)

    def _sampler(self, table: str) -> Sampler:
        known = self._samplers.get(table)
        if known is not None and not self._closed.is_set():
            return known
        with self._making:
            if self._closed.is_set():
                raise ClosedError("this client is closed", name="client")
            if table not in self._samplers:
                info = self._members.table(table)
                rationed = tables.is_rationed(info.rate_limiter_info)
                # A different seed for every table, or all would choose the same shards.
                seed = (self._seed + 0x9E3779B97F4A7C15 * len(self._samplers)) % 2**64
                limiter = self._limiter if rationed else None
                independent = tables.draws_independently(info.sampler_options)
                sampler = Sampler(self._members, table, limiter, seed, self._closed, independent, self._among)
                sampler.begin(self.timeout)
                self._samplers[table] = sampler
            return self._samplers[table]

    def _lose(self, shard: int, error: BaseException) -> None:
        """Marks a shard as lost, until it is back."""
        for sampler in list(self._samplers.values()):
            sampler.lose(shard, error)
        self._members.lose(shard, error)

    def _is_back(self, shard: int) -> None:
        for sampler in list(self._samplers.values()):
            sampler.join(shard)

    @property
    def num_shards(self) -> int:
        """The number of shards, lost ones included."""
        return len(self._members.clients)

    @property
    def clients(self) -> tuple[Client, ...]:
        """A client of each shard."""
        return tuple(self._members.clients)

    def close(self) -> None:
        """Ends waiting calls with ClosedError, and closes the shards' clients; tables and writers stay. Idempotent."""
        self._closed.set()
        self._members.close()
        for sampler in list(self._samplers.values()):
            sampler.ring()
        for client in self.clients:
            client.close()

    def _or_own(self, timeout: float | None) -> float | None:
        return self.timeout if timeout is None else timeout

    def _own(self) -> dict[str, Any]:
        return {} if self.timeout is None else {"timeout": self.timeout}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _among(among: tuple[int, int], limiter: rate_limiters.RateLimiter | None) -> tuple[int, int]:
    """Checks `among`. Raises ValueError if it is invalid, and for several clients without a limiter."""
    index, count = among
    index, count = _checks.count("among[0]", index, 0), _checks.count("among[1]", count, 1)
    if index >= count:
        raise ValueError(f"among is {among}, and must be (i, n): number i of n clients, i below n")
    if count > 1 and limiter is None:
        raise ValueError(f"among is {among}, of clients that keep limits together: give each of them rate_limiter, too")
    return index, count
