"""The base class of the writers of sequences and episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from reverie import _checks, _native
from reverie.writers.context import WriterContext
from reverie.writers.trajectory import TrajectoryWriter

__all__ = ["StepsWriter"]


class StepsWriter(WriterContext):
    """Makes items from the latest steps of an episode, with the structure of a step."""

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
        variable: Sequence[tuple[str, int]],
    ) -> None:
        _checks.priority(priority)
        client.can_insert(table, timeout=timeout)  # Raises UnknownTableError now, and not at the first item.
        self._table, self._priority = table, priority
        self._num_sent = 0
        self._writer = TrajectoryWriter(
            client,
            num_keep_alive_refs,
            compression=compression,
            max_in_flight_bytes=max_in_flight_bytes,
            timeout=timeout,
            alike=True,
            variable=variable,
        )

    @property
    def episode_steps(self) -> int:
        """The number of steps in the current episode."""
        return self._writer.episode_steps

    @property
    def _timeout(self) -> float | None:
        return self._writer._timeout

    @property
    def num_in_flight(self) -> int:
        """The number of items that are not in the table yet."""
        return self._writer.num_in_flight

    @property
    def num_dropped(self) -> int:
        """Steps of ended episodes that are in no item."""
        return 0

    @property
    def num_sent(self) -> int:
        """The number of items that were made so far."""
        return self._num_sent

    def _write(self, data: Any) -> bool:
        """`append` without the wait for room, and without errors of items that were sent before.

        An error without `step_written` means that the step was refused.
        """
        raise NotImplementedError

    def _end(self) -> None:
        """`end_episode` without the wait. The episode ends in any case."""
        raise NotImplementedError

    def _check_room(self) -> None:
        """Raises ValueError where the writer cannot keep one more step of this episode."""

    def _send(self, steps: int, priority: float | Literal["max"] | None = None) -> None:
        columns, structure = _native.flatten(self._writer.history)
        trajectory = structure.unflatten([self._slice_of(column, steps) for column in columns])
        self._writer.create_item(self._table, self._priority if priority is None else priority, trajectory)
        self._num_sent += 1

    def _slice_of(self, column: Any, steps: int) -> Any:
        """The latest `steps` steps of a column of the history."""
        return column[-steps:]

    def flush(self, block_until_num_items: int = 0, *, timeout: float | None = None, durable: bool = False) -> None:
        """Waits until at most `block_until_num_items` items are not in the table yet.

        Args:
            block_until_num_items: the number of items that may remain.
            timeout: seconds to wait; None takes the writer's default.
            durable: True also waits until the items in the table are on the disk, at any `sync` of the server's
                journal.

        Raises:
            DeadlineExceededError: the insert continues in the background.
            ValueError: for `durable=True` if the server has no journal.
            StorageError: for `durable=True` if the journal has stopped.
        """
        self._writer.flush(block_until_num_items, timeout=timeout, durable=durable)

    def close(self) -> None:
        """Closes the writer without a last item. Items that were sent still go to the table. Idempotent."""
        self._writer.close()
