"""The time in which a supervisor could hear its roles, by which it counts how long it waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable

TURN_SECONDS = 1.0
"""One turn of a supervisor that waits for its roles counts for no more: it listens for a twentieth of that."""


class ListeningClock:
    """Seconds that the supervisor has listened.

    While it stood still itself (suspended with its roles by Ctrl-Z or a scheduler, or busy in somebody's callback),
    nobody could tell it anything, and nobody is late for that.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._last = clock, clock()
        self.seconds = 0.0

    def turn(self) -> None:
        """Count the time since the turn before. To be called in each."""
        now = self._clock()
        self.seconds += min(now - self._last, TURN_SECONDS)
        self._last = now
