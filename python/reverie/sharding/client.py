"""The client of several servers that hold one replay."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from reverie import _checks
from reverie.client import Client
from reverie.errors import UnavailableError
from reverie.rate_limiters import RateLimiter
from reverie.selectors import Prioritized
from reverie.sharding import figures, routing, tables
from reverie.sharding.figures import ShardedInfo, ShardInfo
from reverie.sharding.members import LOST
from reverie.sharding.reading import Reading
from reverie.sharding.writing import Writing
from reverie.types import Condition, UpdateResult, Why

__all__ = ["ShardInfo", "ShardedClient", "ShardedInfo"]


@final
class ShardedClient(Writing, Reading):
    """A client of one replay that is spread over several servers, with the calls of a `Client`. Thread-safe.

    An item is drawn with the probability that it would have if all items were in one table: a shard is chosen by its
    mass (the sum of its weights; for uniform tables the size), and then draws one of its items.
    `Batch.info.probability` is the product of both probabilities, and `table_size` the number of items of all shards,
    so that `Batch.weights` are those of one table. Draws are distributed by the masses that the shards last reported,
    and each response reports the mass again: if a shard received too many draws, the surplus is drawn again from other
    shards, so that all draws follow the present masses. The reported probability is the one that was used. The rows of
    a batch are grouped by shard: shuffle them before splitting it.

    Every server has a number (`Server(..., shard=i)`), which is part of its items' keys. Its tables have
    `rate_limiters.Rationed` or `MinSize(1)`; the client that samples keeps the limits over all shards.

    When a call fails because a shard cannot be reached, the shard is left out, with a warning, until it answers again;
    the others go on. Keys of a lost shard, or of one that came back without its items, are stale.

    Args:
        shards: addresses, or `Client`s, in the same order for all clients that choose shards by index.
        rate_limiter: the limits over all shards, for the one client that samples (the learner's): it gives every shard
            a ration of inserts, which the shard enforces for all writers. Without one, draws wait for the first item,
            and this client does not limit inserts. Pickled copies have none.
        among: `(i, n)`: this is number i of n clients that sample by these limits: learners that share one replay. All
            of them get `rate_limiter`, and number 0 hands out the rations. Together they may exceed the limits by a
            batch each, since a draw is allowed by the counts that its client last received. Later changes (`configure`)
            must be made at each of them.
        seed: fixes the choice of shards; None takes a random one.
        timeout: the default of every `timeout=`, in seconds.
        transport, token, tls, patience: as for `Client`; for addresses. A shard is lost after `patience` seconds.

    Raises:
        ValueError: for no shards or more than 64, two shards with the same number, or tables with their own limits.
        UnavailableError: no shard answers within `patience` seconds.
    """

    def update_priorities(
        self,
        table: str,
        keys: npt.ArrayLike,
        priorities: npt.ArrayLike,
        *,
        if_version: npt.ArrayLike | None = None,
        neighbours: tuple[int, float] | None = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> UpdateResult | None:
        """Sets priorities at the shards of their keys; see `Client.update_priorities`.

        Keys of shards that cannot be reached are counted as stale. `timeout` applies to the response of each shard.

        Raises:
            ValueError: for arrays of different lengths, or a priority that the table's selectors refuse (then nothing
                was updated).
        """
        sampler = self._sampler(table)
        keys, priorities, versions = routing.arrays(keys, priorities, if_version)
        if any(isinstance(selector, Prioritized) for selector in self._selectors(table)):
            routing.refuse_negative(priorities)
        applied = 0
        options: dict[str, Any] = {"neighbours": neighbours, "timeout": self._or_own(timeout), "wait": wait}
        for shard, places in self._members.by_key(keys):
            some = None if versions is None else versions[places]
            try:
                result = self.clients[shard].update_priorities(
                    table, keys[places], priorities[places], if_version=some, **options
                )
            except LOST as error:
                sampler.lose(shard, error)
                continue
            applied += 0 if result is None else result.applied
        return UpdateResult(applied, len(keys) - applied) if wait else None

    def _selectors(self, table: str) -> tuple[Any, Any]:
        info = self._members.table(table)
        return info.sampler_options, info.remover_options

    def mutate_priorities(
        self,
        table: str,
        updates: Mapping[int, float] | None = None,
        deletes: Sequence[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> tuple[UpdateResult, UpdateResult]:
        """Deletes items, then sets priorities, not atomically over shards. See `Client.mutate_priorities`."""
        deleted = self.delete(table, [] if deletes is None else deletes, timeout=timeout)
        updates = {} if updates is None else updates
        keys = np.fromiter(updates.keys(), np.int64, len(updates))
        priorities = np.fromiter(updates.values(), np.float64, len(updates))
        updated = self.update_priorities(table, keys, priorities, timeout=timeout)
        return UpdateResult(0, 0) if updated is None else updated, deleted

    def delete(
        self,
        table: str,
        keys: npt.ArrayLike | None = None,
        where: Sequence[Condition] | None = None,
        *,
        timeout: float | None = None,
    ) -> UpdateResult:
        """Deletes items by their keys, by conditions, or both; see `Client.delete`.

        Keys of items that are gone, or of shards that cannot be reached, are counted as stale. Each shard checks the
        conditions for its items; items of lost shards stay.
        """
        sampler, timeout = self._sampler(table), self._or_own(timeout)
        if keys is None:
            if not where:
                raise ValueError(
                    "delete needs keys= or at least one condition in where=; client.reset(table) drops all items"
                )
            found = self._members.each(lambda client: client.delete(table, where=where, timeout=timeout)).values()
            sampler.forget()
            return UpdateResult(sum(one.applied for one in found), sum(one.stale for one in found))
        keys, applied = routing.keys(keys), 0
        for shard, places in self._members.by_key(keys):
            try:
                applied += self.clients[shard].delete(table, keys[places], where, timeout=timeout).applied
            except LOST as error:
                sampler.lose(shard, error)
        sampler.forget()
        return UpdateResult(applied, len(keys) - applied)

    def configure(
        self,
        table: str,
        *,
        max_size: int | None = None,
        rate_limiter: RateLimiter | None = None,
        max_times_sampled: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Changes limits of a running table; None leaves a limit as it is.

        Args:
            table: the table.
            max_size: items of all shards together; each shard gets a part. A shard with more items evicts at once, by
                its remover.
            rate_limiter: the limits over all shards; only at a client that was given `rate_limiter`. Counts go on.
            max_times_sampled: must be 0 or None: see `shard_table`.
            timeout: seconds that each shard may take to answer.

        Raises:
            ValueError: for limits that can never work.
            UnavailableError: a lost shard would keep its part of the old `max_size`; nothing was changed.
        """
        sampler = self._sampler(table)
        if max_times_sampled:
            tables.refuse_unfit(f"table '{table}' of all shards", max_times_sampled, sampler.limiter)
        if max_size is not None and _checks.count("max_size", max_size, 1) < self.num_shards:
            raise ValueError(f"max_size must be at least {self.num_shards}, an item for each shard, got {max_size}")
        if rate_limiter is not None:
            tables.refuse_no_limits(rate_limiter)
            if sampler.limiter is None:
                raise ValueError(
                    f"this client does not limit table '{table}': configure it at the one that was given rate_limiter"
                )
        self._refuse_unsampled(table, max_size, rate_limiter or sampler.limiter)
        if max_size is not None:
            self._refuse_lost("a new max_size would not reach its part")
            for shard in range(self.num_shards):
                part = tables.part(max_size, self.num_shards, shard)
                self._at(shard, operator.methodcaller("configure", table, max_size=part, timeout=self._or_own(timeout)))
            sampler.forget()
        if rate_limiter is not None:
            sampler.limit(rate_limiter)
            sampler.refresh(self._or_own(timeout))

    def _refuse_unsampled(self, table: str, max_size: int | None, limiter: RateLimiter | None) -> None:
        """Raises ValueError for a table that can never hold as many items as the limiter waits for."""
        if limiter is None:
            return
        size = self.info().tables[table].max_size if max_size is None else max_size
        if limiter.min_size_to_sample > size:
            raise ValueError(
                f"table '{table}' over all shards: max_size {size} is below min_size_to_sample"
                f" {limiter.min_size_to_sample}: nothing could ever be sampled"
            )

    def can_sample(self, table: str, num_samples: int = 1, *, timeout: float | None = None) -> bool:
        """True if this number of draws is allowed now. Asks the shards, and hands out rations."""
        sampler = self._sampler(table)
        sampler.refresh(self._or_own(timeout))
        return sampler.allowed(_checks.count("num_samples", num_samples, 0))

    def can_insert(self, table: str, num_inserts: int = 1, *, timeout: float | None = None) -> bool:
        """True if this number of inserts is allowed now. Asks the shards, and hands out rations.

        Counts over all shards if this client has their limiter; otherwise each shard must allow the number.
        """
        num_inserts = _checks.count("num_inserts", num_inserts, 0)
        sampler, timeout = self._sampler(table), self._or_own(timeout)
        if sampler.limiter is None:
            can = self._members.each(lambda client: client.can_insert(table, num_inserts, timeout=timeout))
            return all(can.values())
        sampler.refresh(timeout)
        left = sampler.inserts_left
        return left is None or left >= num_inserts

    def why(self, table: str, *, timeout: float | None = None) -> Why:
        """Which calls wait, at each shard and here, since when, for what, and what would free them."""
        sampler, timeout = self._sampler(table), self._or_own(timeout)
        known = sampler.refresh(timeout)
        told = self._members.each(lambda client: client.why(table, timeout=timeout))
        return figures.why(sampler, known, told, self._members)

    def info(self, timeout: float | None = None) -> ShardedInfo:
        """The figures of all shards, in total and of each."""
        timeout = self._or_own(timeout)
        infos = self._members.each(lambda client: client.info(timeout))
        return figures.info(infos, self._samplers, self._members)

    def server_info(self, timeout: float | None = None) -> dict[str, Any]:
        """The figures of every table over all shards, by name."""
        return self.info(timeout).tables

    def reset(self, table: str, *, timeout: float | None = None) -> None:
        """Drops all items of a table at all shards, and sets its counts to 0."""
        sampler, timeout = self._sampler(table), self._or_own(timeout)
        self._members.each(lambda client: client.reset(table, timeout=timeout))
        sampler.begin(timeout)

    def checkpoint(self, *, timeout: float | None = None) -> list[str]:
        """Takes a checkpoint at every shard, one after the other; returns their paths.

        Args:
            timeout: seconds that each may take.

        Raises:
            DeadlineExceededError: a checkpoint is not finished; its shard continues, later shards were not asked.
            UnavailableError: a shard cannot be reached; the shards before it were saved.
        """
        self._refuse_lost("a checkpoint would miss its items")
        return [client.checkpoint(timeout=self._or_own(timeout)) for client in self.clients]

    def _refuse_lost(self, why: str) -> None:
        lost = self._members.lost_names()
        if lost:
            raise UnavailableError(f"{', '.join(lost)} cannot be reached: {why}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _copy, (list(self.clients), self.timeout)

    def __repr__(self) -> str:
        limiter = "" if self._limiter is None else f", rate_limiter={self._limiter!r}"
        return f"ShardedClient({[client.server_address or client for client in self.clients]}{limiter})"


def _copy(clients: list[Client], timeout: float | None) -> ShardedClient:
    return ShardedClient(clients, timeout=timeout)
