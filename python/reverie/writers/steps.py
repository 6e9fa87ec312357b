"""What writers share that make items of the latest steps of an episode."""

from __future__ import annotations

from typing import Literal

from reverie import _checks, _native
from reverie.writers.context import WriterContext
from reverie.writers.trajectory import TrajectoryWriter

__all__ = ["StepsWriter"]


class StepsWriter(WriterContext):
    """A trajectory writer, and items that are the latest so many steps, in the structure of the steps."""

    def __init__(
        self,
        client: _native.Client,
        table: str,
        num_keep_alive_refs: int,
        *,
        priority: float | Literal["max"],
        compression: str,
        max_in_flight_bytes: int | None,
        timeout: float | None,
    ) -> None:
        _checks.priority(priority)
        client.can_insert(table, timeout=timeout)  # UnknownTableError now, not at the first item.
        self._table, self._priority = table, priority
        self._num_sent = 0
        self._writer = TrajectoryWriter(
            client,
            num_keep_alive_refs,
            compression=compression,
            max_in_flight_bytes=max_in_flight_bytes,
            timeout=timeout,
        )

    @property
    def episode_steps(self) -> int:
        """Steps of the episode so far."""
        return self._writer.episode_steps

    @property
    def num_in_flight(self) -> int:
        """Items that are not in the table yet."""
        return self._writer.num_in_flight

    def _check_room(self) -> None:
        """Refuses a step that the writer could not keep; writes nothing."""

    def _send(self, steps: int, priority: float | Literal["max"] | None = None) -> None:
        columns, structure = _native.flatten(self._writer.history)
        trajectory = structure.unflatten([column[-steps:] for column in columns])
        self._writer.create_item(self._table, self._priority if priority is None else priority, trajectory)
        self._num_sent += 1

    def flush(self, block_until_num_items: int = 0, *, timeout: float | None = None) -> None:
        """Waits until at most so many items are not in the table yet.

        Raises:
            DeadlineExceededError: the insertion goes on in the background.
        """
        self._writer.flush(block_until_num_items, timeout=timeout)

    def close(self) -> None:
        """Ends the writer without a last item; what was sent goes on into the table. Idempotent."""
        self._writer.close()
