"""A thread that sends batches to a device ahead of the loop that reads them."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from reverie._forks import OwnerProcess
from reverie.errors import DeadlineExceededError
from reverie.types import Batch

__all__ = ["BatchSender", "Send"]

#: Starts to send a batch. Returns the batch as it was drawn, in memory of its own, and a function that gives it, sent,
#: to the thread that will use it. The memory of a batch over a network is one of few slots, which others wait for.
Send = Callable[[Batch], tuple[Batch, Callable[[], Batch]]]

#: Seconds that the thread waits for a batch before it checks whether to stop.
POLL_SECONDS = 0.1


@dataclass
class _Outcome:
    """The outcome of a turn of the thread: a batch that it began to send, an error, or neither at the end."""

    batch: Batch | None = None
    arrive: Callable[[], Batch] | None = None
    error: BaseException | None = None


class BatchSender:
    """Draws batches and sends them, up to `ahead` before they are read, in their order.

    An error is raised where its batch would be read; after it the thread draws on, as the next call of a plain
    iterator would.

    Args:
        draw: a function of seconds that returns the next batch, or None at the end; it raises DeadlineExceededError,
            and may be called again then. Called by the thread alone.
        send: see `Send`; called by the thread.
        ahead: the largest number of batches that are sent and not read.
    """

    def __init__(self, draw: Callable[[float], Batch | None], send: Send, ahead: int) -> None:
        self._shared = _Shared(draw, send, ahead)
        self._process = OwnerProcess("iterator of batches")
        self._thread = threading.Thread(target=self._shared.run, name="reverie-sender", daemon=True)
        # A reader that is dropped without `close` ends the thread, which holds no reference to this.
        weakref.finalize(self, _stop, self._shared, self._process)
        self._thread.start()

    def next(self, timeout: float | None) -> Batch | None:
        """The next batch, sent; None at the end.

        Raises:
            DeadlineExceededError: no batch was sent within `timeout` seconds; None waits.
            ForkedError: in a forked child.
            Exception: that of `draw` or of `send`.
        """
        self._process.check()
        shared = self._shared
        outcome = shared.take(timeout)
        if outcome.arrive is not None:
            try:
                return outcome.arrive()
            except BaseException:
                if outcome.batch is not None:
                    shared.failed.append(outcome.batch)
                raise
        if outcome.error is not None:
            if outcome.batch is not None:
                shared.failed.append(outcome.batch)
            raise outcome.error
        return None

    def drain_failed(self) -> list[Batch]:
        """The batches that could not be sent, since the last call, as they were drawn."""
        failed, self._shared.failed = self._shared.failed, []
        return failed

    def close(self) -> list[Batch]:
        """Stop the thread; returns the batches that were not read, as they were drawn. Idempotent.

        Raises:
            ForkedError: in a forked child.
        """
        self._process.check()
        shared = self._shared
        shared.stop()
        self._thread.join()
        left = [outcome.batch for outcome in shared.ready if outcome.batch is not None]
        shared.ready.clear()
        return [*self.drain_failed(), *left]


def _stop(shared: _Shared, process: OwnerProcess) -> None:
    """Ends the thread. A forked child has no such thread, and the lock may be held there forever."""
    if process.is_here():
        shared.stop()


class _Shared:
    """The state that the thread and its reader share."""

    def __init__(self, draw: Callable[[float], Batch | None], send: Send, ahead: int) -> None:
        self.draw, self._send, self._ahead = draw, send, ahead
        self.ready: deque[_Outcome] = deque()
        """Outcomes that were not read; the last one may be an error, or the end. Guarded by `_changed`."""
        self.failed: list[Batch] = []
        """Batches that could not be sent; the reader's."""
        self._why = ""
        """Why there was no batch when the thread last waited for one. Guarded by `_changed`."""
        self._stopped = False
        self._changed = threading.Condition()

    def take(self, timeout: float | None) -> _Outcome:
        """The oldest outcome, which is waited for; the end stays."""
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self.ready), timeout):
                text = f"no batch was sent within {timeout} s"
                raise DeadlineExceededError(f"{text}: {self._why}" if self._why else text, why=self._why)
            outcome = self.ready[0]
            if outcome.batch is not None or outcome.error is not None:
                self.ready.popleft()
                self._changed.notify_all()
            return outcome

    def stop(self) -> None:
        """End the thread after what it does now."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def run(self) -> None:
        """Draw and send until it is stopped, or the batches end."""
        while self._may_draw():
            outcome = self._outcome()
            if outcome is None:
                continue
            with self._changed:
                self.ready.append(outcome)
                self._changed.notify_all()
            if outcome.batch is None and outcome.error is None:
                return

    def _may_draw(self) -> bool:
        """Wait until fewer than `ahead` batches wait for the reader, and no error does; False if it was stopped."""

        def due() -> bool:
            waits = len(self.ready) >= self._ahead or (bool(self.ready) and self.ready[-1].error is not None)
            return self._stopped or not waits

        with self._changed:
            self._changed.wait_for(due)
            return not self._stopped

    def _outcome(self) -> _Outcome | None:
        """The next batch, sent, or an error; None if there is none yet."""
        try:
            batch = self.draw(POLL_SECONDS)
        except DeadlineExceededError as late:
            with self._changed:
                self._why = late.why
            return None
        except BaseException as error:
            return _Outcome(error=error)
        if batch is None:
            return _Outcome()
        try:
            return _Outcome(*self._send(batch))
        except BaseException as error:
            return _Outcome(batch, error=error)
