"""The base classes of writers: a `with` block that waits for items, and no pickling."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from reverie.errors import DeadlineExceededError, ReplayError

__all__ = ["EpisodeContext", "WriterContext"]

ERROR_SECONDS = 5.0
"""The longest wait for items once an error of the program leaves the block of a writer without a timeout.

The thread that would make room for them may be the one that waits, and its error would never be seen.
"""


class WriterContext:
    """The base class of every writer. A writer with a native base class names that one first: its methods apply."""

    __slots__ = ()

    @property
    def _timeout(self) -> float | None:
        """The seconds that its calls may wait, the client's default included; None means no limit."""
        raise NotImplementedError

    def flush(self, *, timeout: float | None = None) -> None:
        """Waits until all items are in their tables."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes the writer."""
        raise NotImplementedError

    def _finish(self, timeout: float | None = None) -> None:
        """The end of a `with` block, which waits for its items for `timeout` seconds; None takes the writer's."""
        try:
            self.flush(timeout=timeout)
        finally:
            self._abandon()

    def _finish_after(self, error: BaseException) -> None:
        """The end of a `with` block by an error of the program, which no later deadline replaces."""
        try:
            self._finish(ERROR_SECONDS if self._timeout is None else None)
        except DeadlineExceededError as late:
            error.add_note(f"not all items of the writer that this error leaves are in their tables: {late}")

    def _abandon(self) -> None:
        """The end of a `with` block that does not wait for items.

        After an error of Reverie they may never be inserted; Ctrl-C, an exit or the close of a generator ends the
        program or its loop at once.
        """
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._finish()
        elif isinstance(error, Exception) and not isinstance(error, ReplayError):
            self._finish_after(error)
        else:
            self._abandon()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a writer belongs to its process and cannot be pickled; make it where it is used")


class EpisodeContext(WriterContext):
    """The base class of writers whose native class has episodes. Timeouts in milliseconds are dm-reverb's."""

    __slots__ = ()

    def _flush(self, block_until_num_items: int, timeout: float | None, durable: bool = False) -> None:
        raise NotImplementedError

    def _end_episode(self, clear_buffers: bool) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError

    def flush(
        self,
        block_until_num_items: int = 0,
        timeout_ms: int | None = None,
        *,
        timeout: float | None = None,
        durable: bool = False,
    ) -> None:
        """Waits until at most `block_until_num_items` items are not in their tables yet.

        Args:
            block_until_num_items: the number of items that may remain.
            timeout_ms: milliseconds to wait; None and -1 take `timeout`.
            timeout: seconds to wait; None takes the writer's default.
            durable: True also waits until the items in their tables are on the disk, at any `sync` of the server's
                journal.

        Raises:
            DeadlineExceededError: the insert continues in the background.
            ValueError: for `durable=True` if the server has no journal.
            StorageError: for `durable=True` if the journal has stopped.
        """
        seconds = timeout if timeout_ms is None or timeout_ms == -1 else timeout_ms / 1e3
        self._flush(block_until_num_items, seconds, durable)

    def end_episode(
        self, clear_buffers: bool = True, timeout_ms: int | None = None, *, timeout: float | None = None
    ) -> None:
        """Ends the step and the episode, then waits until all items are in their tables.

        Args:
            clear_buffers: True begins a new history; with False, later items may refer to the steps of this episode.
            timeout_ms: as for `flush`.
            timeout: as for `flush`.

        Raises:
            DeadlineExceededError: the episode has ended, and the insert continues in the background.
        """
        self._end_episode(clear_buffers)
        self.flush(0, timeout_ms, timeout=timeout)

    def close(self) -> None:
        """Closes the writer. Items that were sent still go to their tables. Idempotent."""
        self._close()
