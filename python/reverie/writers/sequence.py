"""The writer of overlapping sequences."""

from __future__ import annotations

from typing import Any, Literal, final, get_args

from reverie import _checks, _native
from reverie.errors import DeadlineExceededError
from reverie.writers.steps import StepsWriter

__all__ = ["SequenceWriter", "Tail"]

#: What becomes of the steps at an episode's end that no whole sequence has.
Tail = Literal["short", "shift", "drop"]


@final
class SequenceWriter(StepsWriter):
    """Makes an item of every so many steps of an episode; `client.sequence_writer(...)` makes it.

    An item is a nest of the step's structure, `[burn_in + length, ...]` each: the first `burn_in` steps are there to
    warm a recurrent state up, the others to learn from (Kapturowski et al. 2019, "Recurrent Experience Replay in
    Distributed Reinforcement Learning", sections 2.3 and 3). The first item of an episode begins with it, the next
    `period` steps later; none crosses an episode's end. Items that overlap share their bytes. Each environment has a
    writer of its own (`num_envs=` makes one of many).

    One thread at a time may use it. Leaving the `with` block waits until all items are in the table, unless an error of
    the replay itself passes through; an episode that was not ended gives no tail.

    Args:
        table: where the items go.
        length: steps of an item to learn from.
        period: steps from one item's begin to the next one's; at most `length`, so that no step is left out.
        burn_in: steps of an item before those.
        tail: of the steps behind the last whole item, at an episode's end: "short" makes an item that begins where the
            next would and is as long as there are steps (read with `ragged="pad"` it is padded and masked), "shift"
            a whole one that begins earlier, "drop" none. Episodes without a step to learn from, and with "shift" those
            shorter than an item, give none; `num_dropped` counts the steps.
        priority: of every item; "max" takes the largest that the table holds.
        max_in_flight_bytes: `append` waits while more bytes of items are not in the table yet; None takes the
            client\'s.
        timeout: seconds that calls may wait; None takes the client's.

    Raises:
        ValueError: for counts that can never work, or another tail.
        UnknownTableError.
    """

    def __init__(
        self,
        client: _native.Client,
        table: str,
        length: int,
        period: int,
        burn_in: int = 0,
        *,
        tail: Tail = "short",
        priority: float | Literal["max"] = 1.0,
        compression: str = "auto",
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
    ) -> None:
        length = _checks.count("length", length, 1)
        self._period = _checks.count("period", period, 1)
        self._burn_in = _checks.count("burn_in", burn_in, 0)
        if self._period > length:
            raise ValueError(f"period must be at most length ({length}), got {period}: steps would be left out")
        if tail not in get_args(Tail):
            raise ValueError(f"tail must be one of {', '.join(map(repr, get_args(Tail)))}, got {tail!r}")
        self._tail, self._steps_per_item = tail, self._burn_in + length
        super().__init__(
            client,
            table,
            self._steps_per_item,
            priority=priority,
            compression=compression,
            max_in_flight_bytes=max_in_flight_bytes,
            timeout=timeout,
        )
        #: Steps of the episode, and how many of them the whole items reach.
        self._steps = self._reached = 0
        self._num_dropped = 0

    @property
    def num_dropped(self) -> int:
        """Steps that went into no item, and never will."""
        return self._num_dropped

    def append(self, data: Any) -> bool:
        """Appends a step; True where an item was complete with it and sent.

        Args:
            data: a nest of arrays and numbers, of one structure; every leaf has a value.

        Raises:
            SignatureError: for a dtype or shape other than the column's before, or an item that the table refuses.
            ValueError: for an item with a leaf that is None.
            DeadlineExceededError: too much was in flight for too long; this step was written all the same.
            ClosedError, and any other error of items sent before.
        """
        try:
            self._writer.append(data)
        except DeadlineExceededError:
            # The step was written: what it completes must not be lost.
            self._count()
            raise
        return self._count()

    def _count(self) -> bool:
        """Counts the step that was written; sends the item that is complete with it."""
        self._steps += 1
        whole = self._steps_per_item
        if self._steps < whole or (self._steps - whole) % self._period:
            return False
        self._send(whole)
        self._reached = self._steps
        return True

    def end_episode(self, timeout: float | None = None) -> None:
        """Ends the episode, makes an item of its tail, and waits until all items are in the table.

        Args:
            timeout: seconds to wait; None takes the writer's.

        Raises:
            DeadlineExceededError: the insertion goes on in the background.
            SignatureError: for a tail that the table refuses.
            ClosedError, and any other error of items sent before. The episode has ended all the same.
        """
        self._end()
        self.flush(timeout=timeout)

    def _end(self) -> None:
        """The same without the wait."""
        left, whole = self._steps - self._reached, self._steps_per_item
        steps = 0
        if left and self._tail == "short":
            steps = left if not self._reached else left + whole - self._period
        elif left and self._tail == "shift":
            steps = whole
        try:
            if self._burn_in < steps <= self._steps:
                self._send(steps)
            else:
                self._num_dropped += left
        finally:
            self._steps = self._reached = 0
            self._writer._end_episode(True)
