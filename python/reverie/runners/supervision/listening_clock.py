"""A clock that counts only the time in which a supervisor could receive reports; its timeouts use this clock."""

from __future__ import annotations

import time
from collections.abc import Callable

TURN_SECONDS = 1.0
"""The most that one turn of the supervisor counts for; it normally listens for a twentieth of that."""


class ListeningClock:
    """Seconds in which the supervisor has polled its roles.

    While the supervisor itself is suspended (with its roles, by Ctrl-Z or a scheduler) or busy in a caller's callback,
    it receives no reports, so this time does not count as a delay of any role.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._last = clock, clock()
        self.seconds = 0.0

    def turn(self) -> None:
        """Add the time since the last call, `TURN_SECONDS` at most. Call it in every turn."""
        now = self._clock()
        self.seconds += min(now - self._last, TURN_SECONDS)
        self._last = now
