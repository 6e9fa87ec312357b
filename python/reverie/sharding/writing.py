"""The inserts and writers of a sharded client; each uses one shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from reverie import _native
from reverie.client import Client
from reverie.errors import DeadlineExceededError
from reverie.sharding.members import LOST
from reverie.sharding.reach import Reach
from reverie.sharding.sampler import Sampler
from reverie.structured import Config
from reverie.writers import (
    EpisodeWriter,
    SequenceWriter,
    StructuredWriter,
    TrajectoryWriter,
    TransitionWriter,
    VectorWriter,
    Writer,
)

_W = TypeVar("_W")


class Writing(Reach):
    """The part of a sharded client that inserts.

    A writer uses one shard: `shard` is its index; None takes the next reachable shard. Actors that each make one writer
    pass their own index, modulo `num_shards`. Other options and errors are those of `Client`'s method of that name.

    While its shard cannot be reached, a writer keeps unacknowledged data and sends it when the shard is back. Meanwhile
    `flush` raises DeadlineExceededError, and `append` waits once `max_in_flight_bytes` are unacknowledged. To continue
    at once, make another writer. `insert` and `insert_batch` also wait for their shard until their timeout; the next
    call goes to a reachable shard.
    """

    def insert(
        self,
        data: Any,
        priorities: dict[str, float | Literal["max"]],
        *,
        timeout: float | None = None,
        shard: int | None = None,
    ) -> None:
        """Inserts one step into one or more tables of one shard; see `Client.insert`.

        Args:
            data, priorities, timeout: as there; "max" is the largest priority of that shard.
            shard: which; None takes the shards in turns.
        """
        chosen = self._members.chosen(shard)
        for table in priorities:
            self._want(self._sampler(table), chosen, 1, timeout)
        self._at(chosen, lambda client: client.insert(data, priorities, timeout=self._or_own(timeout)))

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
        leaves, _ = _native.flatten(data)
        # The insert itself raises for data without rows.
        rows = (*np.shape(leaves[0]), 0)[0] if leaves else 0
        self._want(self._sampler(table), chosen, rows, timeout)
        timeout = self._or_own(timeout)
        return self._at(chosen, lambda client: client.insert_batch(table, data, priorities, timeout=timeout, wait=wait))

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all inserts and updates with `wait=False` are done or have failed; see `Client.flush`."""
        timeout = self._or_own(timeout)
        self._members.each(lambda client: client.flush(timeout))

    def _want(self, sampler: Sampler, shard: int, rows: int, timeout: float | None) -> None:
        """Gives the shard a ration for these rows, as far as the limiter allows, if this client hands out rations."""
        if not sampler.hands_out:
            return
        wants = [0] * self.num_shards
        wants[shard] = rows
        # The second exchange gives this shard the rations that the first took back from others.
        for _ in range(2):
            sampler.refresh(self._or_own(timeout), wants)

    def _at(self, shard: int, call: Callable[[Client], _W]) -> _W:
        """The result of a call at a shard; marks the shard as lost if it cannot be reached."""
        try:
            return call(self.clients[shard])
        except LOST as error:
            self._lose(shard, error)
            raise
        except DeadlineExceededError:
            # An insert never fails for lack of a connection: it waits for the shard.
            self._members.doubt(shard, self._lose)
            raise

    def _writer(self, shard: int | None, make: Callable[[Client], _W]) -> _W:
        return self._at(self._members.chosen(shard), make)

    def transition_writer(self, table: str, *, shard: int | None = None, **options: Any) -> TransitionWriter:
        """A writer of n-step transitions to one shard; see `Client.transition_writer`."""
        return self._writer(shard, lambda client: client.transition_writer(table, **{**self._own(), **options}))

    def trajectory_writer(
        self, num_keep_alive_refs: int, *, shard: int | None = None, **options: Any
    ) -> TrajectoryWriter:
        """A writer of trajectories to one shard; see `Client.trajectory_writer`."""
        return self._writer(
            shard, lambda client: client.trajectory_writer(num_keep_alive_refs, **{**self._own(), **options})
        )

    def sequence_writer(
        self, table: str, length: int, period: int, burn_in: int = 0, *, shard: int | None = None, **options: Any
    ) -> SequenceWriter | VectorWriter[SequenceWriter]:
        """A writer of overlapping sequences to one shard; see `Client.sequence_writer`."""
        writer: SequenceWriter | VectorWriter[SequenceWriter] = self._writer(
            shard,
            lambda client: client.sequence_writer(table, length, period, burn_in, **{**self._own(), **options}),
        )
        return writer

    def episode_writer(
        self, table: str, *, shard: int | None = None, **options: Any
    ) -> EpisodeWriter | VectorWriter[EpisodeWriter]:
        """A writer of whole episodes to one shard; see `Client.episode_writer`."""
        writer: EpisodeWriter | VectorWriter[EpisodeWriter] = self._writer(
            shard, lambda client: client.episode_writer(table, **{**self._own(), **options})
        )
        return writer

    def structured_writer(
        self, configs: Sequence[Config], *, shard: int | None = None, **options: Any
    ) -> StructuredWriter:
        """A writer of items by patterns to one shard; see `Client.structured_writer`."""
        return self._writer(shard, lambda client: client.structured_writer(configs, **{**self._own(), **options}))

    def writer(
        self,
        max_sequence_length: int,
        delta_encoded: bool = False,
        chunk_length: int | None = None,
        max_in_flight_items: int | None = 25,
        *,
        shard: int | None = None,
        timeout: float | None = None,
    ) -> Writer:
        """A writer under dm-reverb's older interface to one shard; see `Client.writer`."""
        options: dict[str, Any] = {"timeout": self._or_own(timeout)}
        return self._writer(
            shard,
            lambda client: client.writer(
                max_sequence_length, delta_encoded, chunk_length, max_in_flight_items, **options
            ),
        )
