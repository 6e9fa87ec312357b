"""The writer of overlapping sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, final, get_args

import numpy as np

from reverie import _checks, _native
from reverie._log import logger
from reverie.errors import SignatureError, _mark_step_written
from reverie.writers.steps import StepsWriter

__all__ = ["MASK", "Head", "SequenceWriter", "Tail"]


#: The column that is false at the padding of `head="pad"`, and true at steps.
MASK = "mask"
#: How the first steps of an episode, which have no burn-in of full length before them, are handled.
Head = Literal["pad", "drop"]

#: How the steps after an episode's last whole sequence are handled.
Tail = Literal["short", "shift", "drop"]


@final
class SequenceWriter(StepsWriter):
    """Makes overlapping sequences of fixed length from each episode; `client.sequence_writer(...)` makes it.

    An item has the structure of a step, with arrays `[burn_in + length, ...]`. Its first `burn_in` steps warm up a
    recurrent state, the others are to learn from (Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed
    Reinforcement Learning", sections 2.3 and 3). The first item learns from the episode's first step on, and each other
    item begins `period` steps after the one before. No item crosses an end of an episode: with a burn-in, the first
    items begin with padding, and a bool column "mask" is true at steps and false at padding (see `head`). Items that
    overlap share their bytes. Each environment needs its own writer; `num_envs=` makes one writer for many
    environments.

    One thread at a time may use it. Leaving the `with` block waits until all items are in the table, except after an
    error of Reverie, Ctrl-C or an exit. An episode that was not ended has no tail.

    Args:
        table: the table that the items go into.
        length: the number of steps of an item to learn from.
        period: the number of steps between the beginnings of two items; at most `length`, so that no step is left out.
        burn_in: the number of steps of an item before these.
        head: how the first steps of an episode are handled where there is a burn-in. "pad" puts steps of zeros before
            them, so that every step is learnt from, and adds the bool column "mask" `[T]` to every item; steps are then
            dicts without that name, and the table's signature has it. "drop" begins the first item at the episode's
            first step, adds no column, and nothing learns from the first `burn_in` steps. With `burn_in=0` both are the
            same, and add no column.
        tail: how the steps after the last whole item are handled at an episode's end. "short" makes a shorter item that
            begins where the next one would (read it with `ragged="pad"`, which pads and masks it). "shift" makes an
            item of full length that begins earlier. "drop" makes none. There is also no item where the episode has no
            step to learn from (with `head="drop"`) or, with "shift", is shorter than an item. `num_dropped` counts
            these steps, and the first episode that is in no item at all is logged.
        priority: the priority of every item; "max" is the largest priority in the table.
        max_in_flight_bytes: `append` waits while items with more bytes than this are not in the table yet; None takes
            the client's limit.
        timeout: seconds that calls may wait; None takes the client's default.
        variable: columns whose cells may differ in the size of their first axis, with the number of a cell's axes; the
            client takes them from the table's signature.

    Raises:
        ValueError: for counts that can never work, or an unknown head or tail.
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
        head: Head = "pad",
        tail: Tail = "short",
        priority: float | Literal["max"] = 1.0,
        compression: str = "auto",
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
        variable: Sequence[tuple[str, int]] = (),
    ) -> None:
        length = _checks.count("length", length, 1)
        self._period = _checks.count("period", period, 1)
        self._burn_in = _checks.count("burn_in", burn_in, 0)
        if self._period > length:
            raise ValueError(f"period must be at most length ({length}), got {period}: steps would be left out")
        for name, value, known in (("head", head, get_args(Head)), ("tail", tail, get_args(Tail))):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
        self._pads = self._burn_in > 0 and head == "pad"
        self._tail, self._steps_per_item = tail, self._burn_in + length
        super().__init__(
            client,
            table,
            self._steps_per_item,
            priority=priority,
            compression=compression,
            max_in_flight_bytes=max_in_flight_bytes,
            timeout=timeout,
            variable=variable,
        )
        #: The number of steps in the episode, padding included, and of those up to the end of the last whole item.
        self._steps = self._reached = 0
        self._num_dropped = 0
        self._reported = False

    @property
    def episode_steps(self) -> int:
        """The number of steps in the current episode."""
        return self._writer.episode_steps - (self._pads and self._writer.episode_steps > 0)

    @property
    def num_dropped(self) -> int:
        """Steps of ended episodes that are in no item."""
        return self._num_dropped

    def append(self, data: Any) -> bool:
        """Appends a step; True where it completed an item, which was sent.

        Args:
            data: a nest of arrays and numbers, with the structure of the first step; no leaf is None.

        Raises:
            SignatureError: for another dtype or shape than the column had before, an item that the table refuses, or a
                step to which no column "mask" can be added (`head="pad"` with a burn-in).
            ValueError: for an item with a leaf that is None.
            DeadlineExceededError: too many bytes were in flight for the timeout; the step was written.
            ClosedError: the writer was closed.
            Any other error of an item that was sent before; the step was written, and the item that it completes was
            sent. Never append a step again after an error: it was written (`error.step_written`), or it is refused
            again.
        """
        sent = self._write(data)
        self._writer._make_room()
        return sent

    def _write(self, data: Any) -> bool:
        steps = self._writer._store(self._with_mask(data) if self._pads else data)
        try:
            return self._count(steps + self._burn_in - 1 if self._pads else steps)
        except BaseException as error:
            _mark_step_written(error)
            raise

    def _with_mask(self, data: Any) -> dict[str, Any]:
        """The step with the mask's column. Before an episode's first step, the step of the padding is appended.

        It is appended once, and items refer to it as often as they need it.
        """
        if not isinstance(data, Mapping) or MASK in data:
            got = f"a dict with '{MASK}'" if isinstance(data, Mapping) else f"a {type(data).__name__}"
            want = f'a dict without it: head="pad" adds the column \'{MASK}\' for its padding; head="drop" adds none'
            raise SignatureError(f"column '{MASK}': got {got}, want {want}", path=MASK, got=got, want=want)
        if not self._writer.episode_steps:
            leaves, structure = _native.flatten(data)
            zeros = [_zeros_like(leaf, path) for leaf, path in zip(leaves, structure.paths, strict=True)]
            self._writer._store({**structure.unflatten(zeros), MASK: False})
            self._steps = self._burn_in
        return {**data, MASK: True}

    def _count(self, steps: int) -> bool:
        """Counts the episode's steps after one was written, and sends the item that it completes."""
        self._steps, whole = steps, self._steps_per_item
        if steps < whole or (steps - whole) % self._period:
            return False
        # Also of an item that is refused: the next one begins a period later.
        self._reached = steps
        self._send(whole)
        return True

    def _slice_of(self, column: Any, steps: int) -> Any:
        real = self.episode_steps
        return column[-steps:] if steps <= real else column[[0] * (steps - real) + list(range(1, real + 1))]

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
        left, whole, real = self._steps - self._reached, self._steps_per_item, self.episode_steps
        steps = 0
        if left and self._tail == "short":
            steps = left if not self._reached else left + whole - self._period
        elif left and self._tail == "shift":
            steps = whole
        try:
            if self._burn_in < steps <= self._steps:
                self._send(steps)
            else:
                self._num_dropped += min(left, real)
                self._report_loss(real)
        finally:
            self._steps = self._reached = 0
            self._writer._end_episode(True)

    def _report_loss(self, steps: int) -> None:
        """Logs the first episode with steps that is in no item."""
        if self._reached or not steps or self._reported:
            return
        self._reported = True
        length = self._steps_per_item - self._burn_in
        remedy = 'tail="short"' if self._pads or not self._burn_in else 'head="pad" and tail="short"'
        logger().warning(
            "an episode of %d steps is in no item of table '%s' (burn_in %d, length %d); %s keeps every step, and"
            " num_dropped counts those that are lost; this writer logs no later ones",
            steps, self._table, self._burn_in, length, remedy,
        )  # fmt: skip


def _zeros_like(leaf: Any, path: str) -> Any:
    """A leaf of zeros that the same column takes."""
    if leaf is None or type(leaf) in (bool, int, float, complex):
        return None if leaf is None else type(leaf)(0)
    dtype, shape = _native.describe(leaf, path)
    return np.zeros(shape, dtype)
