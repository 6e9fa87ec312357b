"""What a sharded client reads: draws over all shards, items by key or by what is known of them."""

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

        Times in `Batch.info.inserted_at` are of the clock of each item's shard. `without_replacement=True` takes all
        draws or none: every shard makes as many as the batch has, and those stay that would be drawn from one table of
        all items (Efraimidis and Spirakis 2006). It so moves up to `num_shards` times the batch over the network.

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
        """The read path of a training loop, as `Client.batches`: a thread draws up to `prefetch` batches ahead.

        A mixture of tables without replacement has no item of a table twice.
        """
        _how(columns, ragged, without_replacement)
        return Batches(
            self,
            table,
            batch_size,
            # No table of shards is consumed by draws.
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

        An item that a window fits into is drawn as from one table of all items: a draw of one that is too short is
        made again by any shard, and not by its own. "cross" goes on in items of the same writer, which are of the same
        shard.
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
        """Draws items of all shards one by one, in an order that says nothing of their shards; see `Client.sample`.

        Up to 64 draws are made at once, and never more than are asked for.
        """
        left = _checks.count("num_samples", num_samples, 1)
        sampler, timeout = self._sampler(table), self._or_own(timeout)
        return self._sample(sampler, left, timeout, emit_timesteps, unpack_as_table_signature)

    def _sample(
        self, sampler: Any, left: int, timeout: float | None, timesteps: bool, unpack: bool
    ) -> Iterator[list[ReplaySample] | ReplaySample]:
        while left > 0:
            runs = sampler.runs(min(left, SAMPLES_AT_ONCE), Until(timeout))
            # Whoever stops early has not seen one shard only.
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
        """Looks for items of all shards by what their tables know of them; see `Client.query`.

        Each shard answers as it is at one moment; they are asked one after the other. `limit` and `order` are of all
        items together, whatever their shard. The order of insertion, and "age", compare times of different clocks: they
        are as exact as it is known what each shard's clock shows, to a round trip at worst. Times in `inserted_at` are
        of the clock of each item's shard, `table_size` is the items of all shards.

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
        """Reads items by their keys, in the order of the keys. It counts as no sample, and the probabilities are 0.

        Args:
            table, keys, columns: as for `Client.get`.
            timeout: seconds that each shard may take to answer.
            ragged: as there; "values" is refused where the items are of more than one shard.

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
