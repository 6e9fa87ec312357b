"""What a sharded client reads: draws over all shards, items by key or by what is known of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reverie import _checks, adapters
from reverie.client.sample import SAMPLES_AT_ONCE, samples_of
from reverie.datasets import Batches
from reverie.errors import UnknownKeyError
from reverie.sharding import routing
from reverie.sharding.ahead import Prefetch
from reverie.sharding.members import LOST
from reverie.sharding.reach import Reach
from reverie.sharding.sampler import Ragged, Until
from reverie.types import Batch, BatchInfo, Condition, ReplaySample


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

        Times in `Batch.info.inserted_at` are of the clock of each item's shard. `without_replacement=True` is refused:
        every draw would change the masses of all shards for the next one, which is a round trip for each.

        Raises:
            DeadlineExceededError: `.partial` is a Batch of the draws already made, or None.
            UnavailableError: no shard can be reached.
            RaggedError, UnknownTableError, ClosedError, ValueError.
        """
        _refuse_distinct(without_replacement)
        count = _checks.count("batch_size", batch_size, 1)
        return self._sampler(table).batch(count, self._or_own(timeout), columns, ragged)

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

        `without_replacement=True` is refused, as by `sample_batch`.
        """
        _refuse_distinct(without_replacement)

        def make_ahead(_: Any, parts: list[tuple[str, int]], *, without_replacement: bool, **options: Any) -> Prefetch:
            del without_replacement  # Refused above.
            return Prefetch(self._sampler, parts, **options)

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
            convert=adapters.converter(as_, device, pinned),
            make_ahead=make_ahead,
        )

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
    ) -> BatchInfo:
        """Looks for items of all shards by what their tables know of them; see `Client.query`.

        Each shard answers as it is at one moment; they are asked one after the other. `limit` and `order` are of all
        items together, whatever their shard. The order of insertion, and "age", compare times of different clocks: they
        are as exact as it is known what each shard's clock shows, to a round trip at worst. Times in `inserted_at` are
        of the clock of each item's shard, `table_size` is the items of all shards.

        Raises:
            as `Client.query`, and UnavailableError: no shard can be reached. Items of lost shards are left out.
        """
        sampler = self._sampler(table)
        found = self._members.each(lambda client: client.query(table, where, limit=limit, order=order))
        # For the clocks.
        known = sampler.refresh(self.timeout)
        ahead = {shard: known["shards"][shard]["clock_ahead"] for shard in found}
        return routing.merged(found, ahead, known["size"], order, limit)

    def get(
        self,
        table: str,
        keys: npt.ArrayLike,
        *,
        columns: list[str] | None = None,
        ragged: Ragged | None = None,
    ) -> Batch:
        """Reads items by their keys, in the order of the keys. It counts as no sample, and the probabilities are 0.

        Args:
            table, keys, columns: as for `Client.get`.
            ragged: as there; "values" is refused where the items are of more than one shard.

        Raises:
            UnknownKeyError: one of the items is gone, or of a shard that cannot be reached.
        """
        sampler, keys = self._sampler(table), routing.keys(keys)
        order, parts = [], []
        for shard, places in self._members.by_key(keys):
            try:
                parts.append(self.clients[shard].get(table, keys[places], columns=columns, ragged=ragged))
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


def _refuse_distinct(without_replacement: bool) -> None:
    if without_replacement:
        raise ValueError(
            "without_replacement=True has no meaning that several shards could keep together: every draw changes the"
            " masses that the next one is spread by; draw more and drop what came twice, or use a Client of one server"
        )
