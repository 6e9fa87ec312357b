"""The writer of whole episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, final

from reverie import _checks, _native
from reverie.writers.steps import StepsWriter

__all__ = ["EpisodeWriter"]


@final
class EpisodeWriter(StepsWriter):
    """Makes one item from each episode; `client.episode_writer(...)` makes it.

    An item has the structure of a step, with arrays `[T, ...]` where the episode has T steps. One thread at a time may
    use a writer. Each environment needs its own; `num_envs=` makes one writer for many environments. Leaving the `with`
    block waits until all items are in the table, except after an error of Reverie, Ctrl-C or an exit. An episode that
    was not ended makes no item.

    Args:
        table: the table that the items go into.
        max_length: the largest number of steps in an episode.
        priority: the priority of every item; "max" is the largest priority in the table.
        max_in_flight_bytes: `append` waits while items with more bytes than this are not in the table yet; None takes
            the client's limit.
        timeout: seconds that calls may wait; None takes the client's default.
        variable: columns whose cells may differ in the size of their first axis, with the number of a cell's axes; the
            client takes them from the table's signature.

    Raises:
        ValueError: for a `max_length` below 1.
        UnknownTableError.
    """

    def __init__(
        self,
        client: _native.Client,
        table: str,
        *,
        max_length: int = 1 << 20,
        priority: float | Literal["max"] = 1.0,
        compression: str = "auto",
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
        variable: Sequence[tuple[str, int]] = (),
    ) -> None:
        self._max_length = _checks.count("max_length", max_length, 1)
        super().__init__(
            client,
            table,
            self._max_length,
            priority=priority,
            compression=compression,
            max_in_flight_bytes=max_in_flight_bytes,
            timeout=timeout,
            variable=variable,
        )

    def append(self, data: Any) -> None:
        """Appends a step.

        Args:
            data: a nest of arrays and numbers, with the structure of the first step; no leaf is None.

        Raises:
            SignatureError: for another dtype or shape than the column had before.
            ValueError: the episode already has `max_length` steps; the step was not written.
            DeadlineExceededError: too many bytes were in flight for the timeout; the step was written.
            ClosedError: the writer was closed.
            Any other error of an item that was sent before; the step was written. Never append a step again after an
            error: it was written (`error.step_written`), or it is refused again.
        """
        self._write(data)
        self._writer._make_room()

    def _write(self, data: Any) -> bool:
        self._check_room()
        self._writer._store(data)
        return False

    def _check_room(self) -> None:
        if self.episode_steps >= self._max_length:
            raise ValueError(
                f"the episode has {self._max_length} steps, the writer's max_length; end it, or make the writer with a "
                "larger max_length"
            )

    def end_episode(self, timeout: float | None = None, *, priority: float | Literal["max"] | None = None) -> None:
        """Makes an item from the episode, and waits until all items are in the table.

        An episode without steps makes no item.

        Args:
            timeout: seconds to wait; None takes the writer's default.
            priority: the priority of this item; None takes the writer's.

        Raises:
            DeadlineExceededError: the insert continues in the background.
            SignatureError: for an item that the table refuses.
            ValueError: for a leaf that was None in a step.
            ClosedError, and any other error of an item that was sent before. The episode ends in any case.
        """
        self._end(priority)
        self.flush(timeout=timeout)

    def _end(self, priority: float | Literal["max"] | None = None) -> None:
        """`end_episode` without the wait."""
        try:
            if self.episode_steps:
                self._send(self.episode_steps, priority)
        finally:
            self._writer._end_episode(True)
