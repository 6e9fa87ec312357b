"""Batches over all shards, drawn ahead by a thread."""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable

from reverie import _native
from reverie.errors import DeadlineExceededError
from reverie.sharding.sampler import How, Ragged, Sampler, Until
from reverie.types import Batch, Borders

__all__ = ["Prefetch"]

_LOG = logging.getLogger("reverie")
#: Seconds after which a reader without a deadline first logs what it waits for.
_PATIENCE = 10.0


class Prefetch:
    """The source of `reverie.datasets.Batches`: up to `ahead` batches are ready, and one more is being made."""

    def __init__(
        self,
        sampler: Callable[[str], Sampler],
        parts: list[tuple[str, int]],
        *,
        ahead: int,
        columns: list[str] | None,
        ragged: Ragged | None,
        max_samples: int | None,
        without_replacement: bool,
        windows: tuple[int, int, Borders] | None = None,
    ) -> None:
        self._parts = [(sampler(table), count) for table, count in parts]
        self._how = How(columns, ragged, without_replacement, windows)
        self._left = max_samples
        self._most = ahead
        #: Batches; then an error or None, which is the last entry.
        self._ready: collections.deque[Batch | BaseException | None] = collections.deque()
        #: Guards `_ready`; notified of its changes and of the end.
        self._changed = threading.Condition()
        self._stops = threading.Event()
        self._unfinished: list[Batch] = []
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="reverie-batches", daemon=True)
        self._thread.start()

    def next(self, timeout: float | None) -> Batch | None:
        """The next batch; None at the end. An error ends the batches."""
        if self._ended:
            return None
        until, began, told = Until(timeout), time.monotonic(), _PATIENCE
        while True:
            left = until.left
            with self._changed:
                if self._changed.wait_for(lambda: len(self._ready) > 0, told if left is None else left):
                    made = self._ready.popleft()
                    self._changed.notify_all()
                    break
            why = " ".join(sampler.why() for sampler, _ in self._parts)
            if timeout is not None:
                raise DeadlineExceededError(f"batches: the timeout passed; {why}", why=why)
            _LOG.warning("still waiting after %.0f s: %s", time.monotonic() - began, why)
            told *= 3
        self._ended = not isinstance(made, Batch)
        if isinstance(made, BaseException):
            raise made
        return made

    def close(self) -> list[Batch]:
        """Ends the thread; returns the batches that were made and not read."""
        self._ended = True
        self._stops.set()
        for sampler, _ in self._parts:
            sampler.ring()
        with self._changed:
            self._changed.notify_all()
        # The thread ends soon: it waits only for responses.
        self._thread.join()
        left = [made for made in self._ready if isinstance(made, Batch)]
        self._ready.clear()
        return left + self._unfinished

    def _run(self) -> None:
        try:
            while (parts := self._next_parts()) and not self._stops.is_set():
                batch = self._make(parts)
                if batch is not None:
                    self._put(batch)
            self._put(None)
        except BaseException as error:
            self._put(error)

    def _make(self, parts: list[tuple[Sampler, int]]) -> Batch | None:
        drawn: list[_native.ShardDraws] = []
        finished = True
        for sampler, count in parts:
            more, why = sampler.draw(count, Until(None), self._how, self._stops.is_set)
            drawn += more
            if why is not None:
                finished = False
                break
        if not drawn:
            return None
        batch = parts[0][0].gather(drawn, self._how)
        if len(parts) > 1:
            # The smallest probability of one table does not apply to a mixture.
            batch.smallest_probability = None
        if finished:
            return batch
        self._unfinished.append(batch)
        return None

    def _next_parts(self) -> list[tuple[Sampler, int]]:
        """The samplers and counts of the next batch; the last batch is smaller if `max_samples` ends in it."""
        parts = []
        for sampler, count in self._parts:
            if self._left is not None:
                count = min(count, self._left)
                self._left -= count
            if count:
                parts.append((sampler, count))
        return parts

    def _put(self, made: Batch | BaseException | None) -> None:
        """Adds an entry for the reader, once there is room or the reader has closed."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._ready) < self._most or self._stops.is_set())
            self._ready.append(made)
            self._changed.notify_all()
