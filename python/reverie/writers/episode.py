"""The writer of whole episodes."""

from __future__ import annotations

from typing import Any, Literal, final

from reverie import _checks, _native
from reverie.writers.steps import StepsWriter

__all__ = ["EpisodeWriter"]


@final
class EpisodeWriter(StepsWriter):
    """Makes one item of every episode; `client.episode_writer(...)` makes it.

    An item is a nest of the step's structure, `[T, ...]` each, T the episode's steps. One thread at a time may use it;
    each environment has a writer of its own (`num_envs=` makes one of many). Leaving the `with` block waits until all
    items are in the table, unless an error of the replay itself passes through; an episode that was not ended gives no
    item.

    Args:
        table: where the items go.
        max_length: steps that an episode may have.
        priority: of every item; "max" takes the largest that the table holds.
        max_in_flight_bytes: `append` waits while more bytes of items are not in the table yet; None takes the
            client\'s.
        timeout: seconds that calls may wait; None takes the client's.

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
        )

    def append(self, data: Any) -> None:
        """Appends a step.

        Args:
            data: a nest of arrays and numbers, of one structure; every leaf has a value.

        Raises:
            SignatureError: for a dtype or shape other than the column's before.
            ValueError: the episode has `max_length` steps already; nothing was written.
            DeadlineExceededError: too much was in flight for too long; this step was written all the same.
            ClosedError, and any other error of items sent before.
        """
        self._check_room()
        self._writer.append(data)

    def _check_room(self) -> None:
        if self.episode_steps >= self._max_length:
            raise ValueError(
                f"the episode has {self._max_length} steps, as many as the writer keeps; end it, or make the writer "
                "with a larger max_length"
            )

    def end_episode(self, timeout: float | None = None, *, priority: float | Literal["max"] | None = None) -> None:
        """Makes an item of the episode, and waits until all items are in the table. Without steps there is none.

        Args:
            timeout: seconds to wait; None takes the writer's.
            priority: of this item; None takes the writer's.

        Raises:
            DeadlineExceededError: the insertion goes on in the background.
            SignatureError: for an item that the table refuses.
            ValueError: for a leaf that was None in a step.
            ClosedError, and any other error of items sent before. The episode has ended all the same.
        """
        self._end(priority)
        self.flush(timeout=timeout)

    def _end(self, priority: float | Literal["max"] | None = None) -> None:
        """The same without the wait."""
        try:
            if self.episode_steps:
                self._send(self.episode_steps, priority)
        finally:
            self._writer._end_episode(True)
