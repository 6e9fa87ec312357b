"""Calls that must not end a run: made at once, or by a thread of their own, with the reason of what went wrong."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol


class OrderedCalls(Protocol):
    """Makes calls in order. A call that fails is a `problem`, and does not end the run."""

    @property
    def problem(self) -> str:
        """The reason why calls fail or are left out; empty if they are made."""

    def __call__(self, function: Callable[..., None], *arguments: Any) -> None:
        """Make the call, now or later."""

    def close(self, function: Callable[..., None], *arguments: Any) -> None:
        """Make the last call, and wait for the calls that are left, for a bounded time."""


class DirectCalls:
    """Makes each call at once; for calls that are quick, and fail with an OSError. Other errors are raised."""

    def __init__(self) -> None:
        self.problem = ""

    def __call__(self, function: Callable[..., None], *arguments: Any) -> None:
        """Make the call. A call that succeeds clears `problem`."""
        try:
            function(*arguments)
            self.problem = ""
        except OSError as error:
            self.problem = reason(error)

    def close(self, function: Callable[..., None], *arguments: Any) -> None:
        """Make the last call, which does not clear `problem`."""
        before = self.problem
        self(function, *arguments)
        self.problem = self.problem or before


class BackgroundCalls:
    """Makes the calls in a thread, so that a slow or unreachable service never holds up the caller.

    At most `waiting` calls wait; further ones are left out, which is a `problem`. `close` waits for `close_seconds` at
    most; the thread does not keep its process from ending.
    """

    def __init__(self, *, waiting: int = 1_000, close_seconds: float = 60.0) -> None:
        self._queue: queue.Queue[tuple[Callable[..., None], tuple[Any, ...]] | None] = queue.Queue(waiting)
        self._close_seconds = close_seconds
        self._thread: threading.Thread | None = None
        self.problem = ""

    def __call__(self, function: Callable[..., None], *arguments: Any) -> None:
        """Hand the call to the thread. Does not block."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="reverie-sink", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait((function, arguments))
        except queue.Full:
            self.problem = self.problem or f"{self._queue.maxsize:,} updates wait for it, and later ones are left out"

    def close(self, function: Callable[..., None], *arguments: Any) -> None:
        """Wait until the thread has made the calls that wait and this one."""
        thread, self._thread = self._thread, None
        if thread is None:  # there is nothing to close
            return
        deadline = time.monotonic() + self._close_seconds
        try:
            for last in ((function, arguments), None):
                self._queue.put(last, timeout=max(0.0, deadline - time.monotonic()))
            thread.join(max(0.0, deadline - time.monotonic()))
        except queue.Full:
            pass
        if thread.is_alive():
            self.problem = self.problem or f"it did not take the last updates within {self._close_seconds:g} s"

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            function, arguments = call
            try:
                function(*arguments)
            except Exception as error:
                self.problem = self.problem or reason(error)


def reason(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
