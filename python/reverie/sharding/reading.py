"""The reads of a sharded client: draws over all shards, items by key, and queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reverie import _checks, adapters
from reverie.client.sample import SAMPLES_AT_ONCE, samples_of
from reverie.datasets import Batches
from reverie.datasets.batches import checked_windows
from reverie.errors import UnknownKeyError
from reverie.sharding import routing
from reverie.sharding.ahead import Prefetch
from reverie.sharding.members import LOST
from reverie.sharding.reach import Reach
from reverie.sharding.sampler import How, Ragged, Until
from reverie.types import Batch, BatchInfo, Borders, Condition, ReplaySample


class Reading(Reach):
    """The part of a sharded client that reads."""

    def sample_batch(
        self,
        table: str,
        batch_size: int,
        *,
        timeout: float | None = None,
        columns: list[str] | None = None,
        ragged: Ragged | None = None,
        without_replacement: bool = False,
    ) -> Batch:
        """Draws items of all shards and gathers them into one array per column; see `Client.sample_batch`.

        Times in `Batch.info.inserted_at` are from the clock of each item's shard. `without_replacement=True` makes all
        draws or none: every shard makes as many draws as the batch has, and those are kept that would be drawn from one
        table of all items (Efraimidis and Spirakis 2006). This sends up to `num_shards` times the batch over the
        network.

        Raises:
            DeadlineExceededError: `.partial` is a Batch of the draws already made, or None.
            UnavailableError: no shard can be reached.
            RaggedError, UnknownTableError, ClosedError, ValueError.
        """
        count = _checks.count("batch_size", batch_size, 1)
        how = _how(columns, ragged, without_replacement)
        return self._sampler(table).batch(count, self._or_own(timeout), how)

    def batches(
        self,
        table: str | Mapping[str, float],
        batch_size: int,
        *,
        prefetch: int | None = None,
        columns: list[str] | None = None,
        ragged: Ragged | None = None,
        max_samples: int | None = None,
        timeout: float | None = None,
        without_replacement: bool = False,
        as_: adapters.As = "numpy",
        device: Any = None,
        pinned: bool | None = None,
    ) -> Batches:
        """Batches for a training loop, up to `prefetch` drawn ahead by a thread; see `Client.batches`.

        In a mixture of tables without replacement no item of a table occurs twice.
        """
        _how(columns, ragged, without_replacement)
        return Batches(
            self,
            table,
            batch_size,
            # Draws delete nothing from the tables of shards.
            prefetch=2 if prefetch is None else prefetch,
            columns=columns,
            ragged=ragged,
            max_samples=max_samples,
            timeout=self._or_own(timeout),
            without_replacement=without_replacement,
            convert=adapters.converter(as_, device, pinned),
            make_ahead=self._make_ahead,
        )

    def windows(
        self,
        table: str | Mapping[str, float],
        batch_size: int,
        length: int,
        burn_in: int = 0,
        borders: Borders = "drop",
        timeout: float | None = None,
        *,
        prefetch: int | None = None,
        columns: list[str] | None = None,
        max_samples: int | None = None,
        as_: adapters.As = "numpy",
        device: Any = None,
        pinned: bool | None = None,
    ) -> Batches:
        """Batches of fixed-length windows of the items of all shards; see `Client.windows`.

        Items that a window fits into are drawn as from one table of all items: a draw of an item that is too short is
        made again over all shards, not only its own. "cross" continues in items of the same writer, which are on the
        same shard.
        """
        return Batches(
            self,
            table,
            batch_size,
            prefetch=2 if prefetch is None else prefetch,
            columns=columns,
            max_samples=max_samples,
            timeout=self._or_own(timeout),
            windows=checked_windows(length, burn_in, borders),
            convert=adapters.converter(as_, device, pinned),
            make_ahead=self._make_ahead,
        )

    def _make_ahead(self, _: Any, parts: list[tuple[str, int]], **options: Any) -> Prefetch:
        return Prefetch(self._sampler, parts, **options)

    def _sample_windows(
        self,
        table: str,
        batch_size: int,
        windows: tuple[int, int, Borders],
        timeout: float | None,
        columns: list[str] | None,
    ) -> Batch:
        return self._sampler(table).batch(batch_size, self._or_own(timeout), How(columns, windows=windows))

    def sample(
        self,
        table: str,
        num_samples: int = 1,
        *,
        emit_timesteps: bool = True,
        unpack_as_table_signature: bool = False,
        timeout: float | None = None,
    ) -> Iterator[list[ReplaySample] | ReplaySample]:
        """Draws items of all shards one by one, in an order that is independent of shards; see `Client.sample`.

        Up to 64 draws are requested together, and never more than `num_samples`.
        """
        left = _checks.count("num_samples", num_samples, 1)
        sampler, timeout = self._sampler(table), self._or_own(timeout)
        return self._sample(sampler, left, timeout, emit_timesteps, unpack_as_table_signature)

    def _sample(
        self, sampler: Any, left: int, timeout: float | None, timesteps: bool, unpack: bool
    ) -> Iterator[list[ReplaySample] | ReplaySample]:
        while left > 0:
            runs = sampler.runs(min(left, SAMPLES_AT_ONCE), Until(timeout))
            # Shuffled, so that a loop that stops early has not seen items of one shard only.
            rows = [sample for batch, step in runs for sample in samples_of(batch, step, timesteps, unpack)]
            left -= len(rows)
            for row in sampler.order(len(rows)):
                yield rows[row]

    def query(
        self,
        table: str,
        where: Sequence[Condition] | None = None,
        *,
        limit: int | None = None,
        order: str | None = None,
        timeout: float | None = None,
    ) -> BatchInfo:
        """Finds items of all shards by conditions on their metadata; see `Client.query`.

        Each shard answers atomically; the shards are asked one after the other. `limit` and `order` apply to the items
        of all shards together. The order of insertion, and "age", compare times of different clocks: they are as exact
        as the estimates of the shards' clocks, whose error is at most a round trip. Times in `inserted_at` are from the
        clock of each item's shard; `table_size` is the number of items of all shards.

        Raises:
            as `Client.query`, and UnavailableError: no shard can be reached. Items of lost shards are left out.
        """
        sampler, timeout = self._sampler(table), self._or_own(timeout)
        found = self._members.each(lambda client: client.query(table, where, limit=limit, order=order, timeout=timeout))
        # For the clocks.
        known = sampler.refresh(timeout)
        ahead = {shard: known["shards"][shard]["clock_ahead"] for shard in found}
        return routing.merged(found, ahead, known["size"], order, limit)

    def get(
        self,
        table: str,
        keys: npt.ArrayLike,
        *,
        columns: list[str] | None = None,
        ragged: Ragged | None = None,
        timeout: float | None = None,
    ) -> Batch:
        """Reads items by their keys, in the order of the keys. Not counted as samples; the probabilities are 0.

        Args:
            table, keys, columns: as for `Client.get`.
            timeout: seconds that each shard may take to answer.
            ragged: as there; "values" raises ValueError if the items are on more than one shard.

        Raises:
            UnknownKeyError: one of the items is gone, or of a shard that cannot be reached.
        """
        sampler, keys = self._sampler(table), routing.keys(keys)
        order, parts = [], []
        for shard, places in self._members.by_key(keys):
            try:
                parts.append(
                    self.clients[shard].get(table, keys[places], columns=columns, ragged=ragged, timeout=timeout)
                )
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
        return routing.in_order(parts, np.argsort(found, kind="stable"), ragged)


def _how(columns: list[str] | None, ragged: Ragged | None, without_replacement: bool) -> How:
    if without_replacement and ragged == "values":
        raise ValueError(
            'ragged="values" has no row for each draw, of which draws without replacement over several shards leave'
            ' some out: pass ragged="pad", or draw with replacement'
        )
    return How(columns, ragged, without_replacement)
