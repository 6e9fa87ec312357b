"""The writer of overlapping sequences."""

from __future__ import annotations

from typing import Any, Literal, final, get_args

from reverie import _checks, _native
from reverie.errors import DeadlineExceededError
from reverie.writers.steps import StepsWriter

__all__ = ["SequenceWriter", "Tail"]

#: How the steps after an episode's last whole sequence are handled.
Tail = Literal["short", "shift", "drop"]


@final
class SequenceWriter(StepsWriter):
    """Makes overlapping sequences of fixed length from each episode; `client.sequence_writer(...)` makes it.

    An item has the structure of a step, with arrays `[burn_in + length, ...]`. Its first `burn_in` steps warm up a
    recurrent state, the others are to learn from (Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed
    Reinforcement Learning", sections 2.3 and 3). The first item begins at the episode's first step, each other item
    `period` steps after the one before. No item crosses the end of an episode. Items that overlap share their bytes.
    Each environment needs its own writer; `num_envs=` makes one writer for many environments.

    One thread at a time may use it. Leaving the `with` block waits until all items are in the table, except after an
    error of Reverie. An episode that was not ended has no tail.

    Args:
        table: the table that the items go into.
        length: the number of steps of an item to learn from.
        period: the number of steps between the beginnings of two items; at most `length`, so that no step is left out.
        burn_in: the number of steps of an item before these.
        tail: how the steps after the last whole item are handled at an episode's end. "short" makes a shorter item that
            begins where the next one would (read it with `ragged="pad"`, which pads and masks it). "shift" makes an
            item of full length that begins earlier. "drop" makes none. There is also no item where the episode has no
            step to learn from or, with "shift", is shorter than an item. `num_dropped` counts these steps.
        priority: the priority of every item; "max" is the largest priority in the table.
        max_in_flight_bytes: `append` waits while items with more bytes than this are not in the table yet; None takes
            the client's limit.
        timeout: seconds that calls may wait; None takes the client's default.

    Raises:
        ValueError: for counts that can never work, or an unknown tail.
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
        #: The number of steps in the episode, and of those up to the end of the last whole item.
        self._steps = self._reached = 0
        self._num_dropped = 0

    @property
    def num_dropped(self) -> int:
        """Steps of ended episodes that are in no item."""
        return self._num_dropped

    def append(self, data: Any) -> bool:
        """Appends a step; True where it completed an item, which was sent.

        Args:
            data: a nest of arrays and numbers, with the structure of the first step; no leaf is None.

        Raises:
            SignatureError: for another dtype or shape than the column had before, or an item that the table refuses.
            ValueError: for an item with a leaf that is None.
            DeadlineExceededError: too many bytes were in flight for the timeout; the step was written.
            ClosedError, and any other error of an item that was sent before.
        """
        try:
            self._writer.append(data)
        except DeadlineExceededError:
            # The step was written: the item that it completes must not be lost.
            self._count()
            raise
        return self._count()

    def _count(self) -> bool:
        """Counts a step that was written, and sends the item that it completes."""
        self._steps += 1
        whole = self._steps_per_item
        if self._steps < whole or (self._steps - whole) % self._period:
            return False
        self._send(whole)
        self._reached = self._steps
        return True

    def end_episode(self, timeout: float | None = None) -> None:
        """Ends the episode, makes an item from its tail, and waits until all items are in the table.

        Args:
            timeout: seconds to wait; None takes the writer's default.

        Raises:
            DeadlineExceededError: the insert continues in the background.
            SignatureError: for a tail that the table refuses.
            ClosedError, and any other error of an item that was sent before. The episode ends in any case.
        """
        self._end()
        self.flush(timeout=timeout)

    def _end(self) -> None:
        """`end_episode` without the wait."""
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
