"""The client of several servers that hold one replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from reverie import _checks, _native, adapters
from reverie.client import Client
from reverie.datasets import Batches
from reverie.errors import UnavailableError, UnknownKeyError
from reverie.selectors import Prioritized
from reverie.sharding import figures, routing
from reverie.sharding.ahead import Prefetch
from reverie.sharding.figures import ShardedInfo, ShardInfo
from reverie.sharding.members import LOST
from reverie.sharding.reach import Reach
from reverie.sharding.sampler import Ragged, Sampler
from reverie.types import Batch, UpdateResult, Why
from reverie.writers import TrajectoryWriter, TransitionWriter

__all__ = ["ShardInfo", "ShardedClient", "ShardedInfo"]


@final
class ShardedClient(Reach):
    """Reaches one replay that is spread over several servers, with the calls of a `Client`. Safe to share by threads.

    An item is drawn with the probability that it would have if all items were in one table: shards are chosen by their
    mass (the sum of their weights; of uniform tables the size), then each draws by itself. `Batch.info.probability` is
    the product of both probabilities, and `table_size` the items of all shards, so that `Batch.weights` are those of
    one table. Every batch asks the shards for their masses first, then for draws: where items come or priorities change
    in between, shards are chosen by what they said, and the reported probability is still the one that was used. The
    rows of a batch come shard by shard: shuffle before cutting it.

    Every server has a number (`Server(..., shard=i)`), which the keys of its items carry. Its tables have
    `rate_limiters.Rationed` or `MinSize(1)`; the limits over all shards are those of the one client that samples.

    A shard that cannot be reached is left out, with a warning; the others go on, and it is taken back in when it
    answers again. Keys of a shard that is out, or that came back without its items, are stale.

    Args:
        shards: addresses, or `Client`s, in an order that is the same for all who choose shards by index.
        rate_limiter: the limits over all shards, for the one client that samples, the learner's: it hands every shard
            a number of inserts that may go in, which the shard holds all writers to. Without one, draws wait for the
            first item, and inserts are not this client's business. Pickled copies have none.
        seed: fixes which shards are drawn from; None takes a fresh one.
        timeout: the default of every `timeout=`, in seconds.
        transport, token, tls, patience: as for `Client`; for addresses. A shard is lost after `patience` seconds.

    Raises:
        ValueError: for no shards or more than 64, two of one number, tables with limits of their own.
        UnavailableError: no shard answers; it waits for that at most for `patience` seconds.
    """

    def sample_batch(
        self,
        table: str,
        batch_size: int,
        *,
        timeout: float | None = None,
        columns: list[str] | None = None,
        ragged: Ragged | None = None,
    ) -> Batch:
        """Draws items of all shards and gathers them into one array per column; see `Client.sample_batch`.

        Times in `Batch.info.inserted_at` are of the clock of each item's shard.

        Raises:
            DeadlineExceededError: `.partial` is a Batch of the draws already made, or None.
            UnavailableError: no shard can be reached.
            RaggedError, UnknownTableError, ClosedError, ValueError.
        """
        count = _checks.count("batch_size", batch_size, 1)
        return self._sampler(table).batch(count, self._or_own(timeout), columns, ragged)

    def batches(
        self,
        table: str | Mapping[str, float],
        batch_size: int,
        *,
        prefetch: int = 2,
        columns: list[str] | None = None,
        ragged: Ragged | None = None,
        max_samples: int | None = None,
        timeout: float | None = None,
        as_: adapters.As = "numpy",
        device: Any = None,
        pinned: bool | None = None,
    ) -> Batches:
        """The read path of a training loop, as `Client.batches`: a thread draws up to `prefetch` batches ahead."""

        def make_ahead(_: Any, parts: list[tuple[str, int]], *, without_replacement: bool, **options: Any) -> Prefetch:
            del without_replacement  # No argument of this method sets it.
            return Prefetch(self._sampler, parts, **options)

        return Batches(
            self,
            table,
            batch_size,
            prefetch=prefetch,
            columns=columns,
            ragged=ragged,
            max_samples=max_samples,
            timeout=self._or_own(timeout),
            convert=adapters.converter(as_, device, pinned),
            make_ahead=make_ahead,
        )

    def insert_batch(
        self,
        table: str,
        data: Any,
        priorities: npt.ArrayLike | Literal["max"] | None = None,
        *,
        timeout: float | None = None,
        wait: bool = True,
        shard: int | None = None,
    ) -> npt.NDArray[np.int64] | None:
        """Inserts rows into one shard; see `Client.insert_batch`.

        Args:
            table, data, priorities, timeout, wait: as there; "max" is the largest priority of that shard.
            shard: which; None takes the shards in turns.
        """
        chosen = self._members.chosen(shard)
        sampler = self._sampler(table)
        if sampler.limiter is not None:
            self._want(sampler, chosen, data, timeout)
        try:
            insert = self.clients[chosen].insert_batch
            return insert(table, data, priorities, timeout=self._or_own(timeout), wait=wait)
        except LOST as error:
            sampler.lose(chosen, error)
            raise

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all that was sent with `wait=False` is done, or has failed; see `Client.flush`."""
        timeout = self._or_own(timeout)
        self._members.each(lambda client: client.flush(timeout))

    def _want(self, sampler: Sampler, shard: int, data: Any, timeout: float | None) -> None:
        """Sees to it that the shard has what the limiter allows for these rows."""
        leaves, _ = _native.flatten(data)
        wants = [0] * self.num_shards
        # What has no rows is for the insert to refuse.
        wants[shard] = (*np.shape(leaves[0]), 0)[0] if leaves else 0
        # What another shard has to give up is given here by the second exchange.
        for _ in range(2):
            sampler.refresh(self._or_own(timeout), wants)

    def transition_writer(self, table: str, *, shard: int | None = None, **options: Any) -> TransitionWriter:
        """A writer of n-step transitions to one shard; see `Client.transition_writer` for the options.

        Args:
            table: the table.
            shard: its index; None takes the next that can be reached. Actors that each make one writer give their own
                index, modulo `num_shards`. When its shard is lost the writer fails; make another.
            options: as for `Client.transition_writer`.
        """
        return self.clients[self._members.chosen(shard)].transition_writer(table, **{**self._own(), **options})

    def trajectory_writer(
        self, num_keep_alive_refs: int, *, shard: int | None = None, **options: Any
    ) -> TrajectoryWriter:
        """A writer of trajectories to one shard; see `Client.trajectory_writer`, `shard` as above."""
        writer = self.clients[self._members.chosen(shard)].trajectory_writer
        return writer(num_keep_alive_refs, **{**self._own(), **options})

    def update_priorities(
        self,
        table: str,
        keys: npt.ArrayLike,
        priorities: npt.ArrayLike,
        *,
        if_version: npt.ArrayLike | None = None,
        neighbours: tuple[int, float] | None = None,
        wait: bool = True,
    ) -> UpdateResult | None:
        """Sets priorities, each at the shard that its key names; see `Client.update_priorities`.

        Keys of shards that cannot be reached are counted as stale.

        Raises:
            ValueError: for arrays of different lengths, or a priority that the table's selectors refuse (then nothing
                was updated).
        """
        sampler = self._sampler(table)
        keys, priorities, versions = routing.arrays(keys, priorities, if_version)
        if any(isinstance(selector, Prioritized) for selector in self._selectors(table)):
            routing.refuse_negative(priorities)
        applied = 0
        for shard, places in self._members.by_key(keys):
            some = None if versions is None else versions[places]
            try:
                result = self.clients[shard].update_priorities(
                    table, keys[places], priorities[places], if_version=some, neighbours=neighbours, wait=wait
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
        self, table: str, updates: Mapping[int, float] | None = None, deletes: Sequence[int] | None = None
    ) -> tuple[UpdateResult, UpdateResult]:
        """Deletes items, then sets priorities; a decision at each shard. See `Client.mutate_priorities`."""
        deleted = self.delete(table, [] if deletes is None else deletes)
        updates = {} if updates is None else updates
        keys = np.fromiter(updates.keys(), np.int64, len(updates))
        updated = self.update_priorities(table, keys, np.fromiter(updates.values(), np.float64, len(updates)))
        return UpdateResult(0, 0) if updated is None else updated, deleted

    def delete(self, table: str, keys: npt.ArrayLike) -> UpdateResult:
        """Deletes items by their keys; keys of items that are gone, or out of reach, are counted as stale."""
        sampler, keys = self._sampler(table), routing.keys(keys)
        applied = 0
        for shard, places in self._members.by_key(keys):
            try:
                applied += self.clients[shard].delete(table, keys[places]).applied
            except LOST as error:
                sampler.lose(shard, error)
        return UpdateResult(applied, len(keys) - applied)

    def get(self, table: str, keys: npt.ArrayLike, *, columns: list[str] | None = None) -> Batch:
        """Reads items by their keys, in the order of the keys. It counts as no sample, and the probabilities are 0.

        Raises:
            UnknownKeyError: one of the items is gone, or of a shard that cannot be reached.
        """
        sampler, keys = self._sampler(table), routing.keys(keys)
        order, parts = [], []
        for shard, places in self._members.by_key(keys):
            try:
                parts.append(self.clients[shard].get(table, keys[places], columns=columns))
            except LOST as error:
                sampler.lose(shard, error)
                continue
            order.append(places)
        found = np.concatenate(order) if order else np.empty(0, np.intp)
        if len(found) < len(keys) or not len(keys):
            missing = int(np.delete(keys, found)[0]) if len(keys) else 0
            raise UnknownKeyError(
                f"no shard that can be reached has an item of table '{table}' with the key {missing}",
                table=table,
                key=missing,
            )
        return routing.in_order(parts, np.argsort(found, kind="stable"))

    def can_sample(self, table: str, num_samples: int = 1) -> bool:
        """True where so many draws could go on now. Asks the shards, and hands out rations."""
        sampler = self._sampler(table)
        sampler.refresh(self.timeout)
        return sampler.allowed(_checks.count("num_samples", num_samples, 0))

    def can_insert(self, table: str, num_inserts: int = 1) -> bool:
        """True where so many inserts could go on now, over all shards where this client has their limiter, else at each
        of them. Asks the shards, and hands out rations."""
        num_inserts = _checks.count("num_inserts", num_inserts, 0)
        sampler = self._sampler(table)
        if sampler.limiter is None:
            return all(self._members.each(lambda client: client.can_insert(table, num_inserts)).values())
        sampler.refresh(self.timeout)
        left = sampler.inserts_left
        return left is None or left >= num_inserts

    def why(self, table: str) -> Why:
        """Who waits at the table, at each shard and here, since when, for what, and what would free them."""
        sampler = self._sampler(table)
        known = sampler.refresh(self.timeout)
        return figures.why(sampler, known, self._members.each(lambda client: client.why(table)), self._members)

    def info(self, timeout: float | None = None) -> ShardedInfo:
        """The figures of all shards together, and of each."""
        timeout = self._or_own(timeout)
        infos = self._members.each(lambda client: client.info(timeout))
        return figures.info(infos, self._samplers, self._members)

    def server_info(self, timeout: float | None = None) -> dict[str, Any]:
        """The figures of every table over all shards, by name."""
        return self.info(timeout).tables

    def reset(self, table: str) -> None:
        """Drops all items of a table at all shards, and starts its counts anew."""
        sampler = self._sampler(table)
        self._members.each(lambda client: client.reset(table))
        sampler.begin(self.timeout)

    def checkpoint(self) -> list[str]:
        """Takes a checkpoint at every shard, one after the other; where they are.

        Raises:
            UnavailableError: a shard cannot be reached; those before it were saved.
        """
        lost = self._members.lost_names()
        if lost:
            raise UnavailableError(f"{', '.join(lost)} cannot be reached: a checkpoint would miss their items")
        return [client.checkpoint() for client in self.clients]

    def __reduce__(self) -> tuple[Any, ...]:
        return _copy, (list(self.clients), self.timeout)

    def __repr__(self) -> str:
        limiter = "" if self._limiter is None else f", rate_limiter={self._limiter!r}"
        return f"ShardedClient({[client.server_address or client for client in self.clients]}{limiter})"


def _copy(clients: list[Client], timeout: float | None) -> ShardedClient:
    return ShardedClient(clients, timeout=timeout)
