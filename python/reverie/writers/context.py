"""What all writers share: a `with` block that waits for their items, and that they stay in their process."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from reverie.errors import ReplayError

__all__ = ["EpisodeContext", "WriterContext"]


class WriterContext:
    """The base class of every writer. A writer with a native base class names that one first: its methods apply."""

    __slots__ = ()

    def flush(self) -> None:
        """Waits until all items are in their tables."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the writer."""
        raise NotImplementedError

    def _finish(self) -> None:
        """The end of a `with` block."""
        try:
            self.flush()
        finally:
            self.close()

    def _abandon(self) -> None:
        """The end of a `with` block that an error of the replay leaves: a flush could only wait in vain."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or not issubclass(kind, ReplayError):
            self._finish()
        else:
            self._abandon()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a writer is live in its process and cannot be pickled; make it where it is used")


class EpisodeContext(WriterContext):
    """The base class of writers of episodes, whose native class waits; milliseconds are for ported code."""

    __slots__ = ()

    def _flush(self, block_until_num_items: int, timeout: float | None) -> None:
        raise NotImplementedError

    def _end_episode(self, clear_buffers: bool) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError

    def flush(
        self, block_until_num_items: int = 0, timeout_ms: int | None = None, *, timeout: float | None = None
    ) -> None:
        """Waits until at most so many items are not in their tables yet.

        Args:
            block_until_num_items: how many may be left.
            timeout_ms: milliseconds to wait; None, as -1 of ported code, takes `timeout`.
            timeout: seconds to wait.

        Raises:
            DeadlineExceededError: the insertion goes on in the background.
        """
        self._flush(block_until_num_items, timeout if timeout_ms is None or timeout_ms == -1 else timeout_ms / 1e3)

    def end_episode(
        self, clear_buffers: bool = True, timeout_ms: int | None = None, *, timeout: float | None = None
    ) -> None:
        """Ends the step and the episode, then waits until all items are in their tables.

        Args:
            clear_buffers: True begins a new history; with False later items may still refer to the steps before.
            timeout_ms: as for `flush`.
            timeout: as for `flush`.

        Raises:
            DeadlineExceededError: the episode has ended, and the insertion goes on in the background.
        """
        self._end_episode(clear_buffers)
        self.flush(0, timeout_ms, timeout=timeout)

    def close(self) -> None:
        """Ends the writer; what was sent goes on into its tables. Idempotent."""
        self._close()
