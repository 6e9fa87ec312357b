"""The time for which a run has made no step and no update, and the reports of it."""

from __future__ import annotations

FIRST_SECONDS = 35.0
"""Time without a step or an update after which it is reported. If that is because a role does not report, this role was
reported before (`SILENT_SECONDS` of `role_group`, and until the next look)."""
REPEAT_SECONDS = 30.0
"""Seconds between two reports."""


class StallWatch:
    """The time since the counts of a run changed last, in seconds of the clock that the caller passes."""

    def __init__(self) -> None:
        self._since, self._counts = 0.0, (-1, -1)
        self._next = FIRST_SECONDS

    def seconds(self, now: float, counts: tuple[int, int], *, waits_for_training: bool) -> float:
        """Seconds for which the counts have been the same; 0 while the run waits for something else than training."""
        if not waits_for_training or counts != self._counts:
            self._since, self._counts, self._next = now, counts, FIRST_SECONDS
        return now - self._since

    def is_due(self, seconds: float) -> bool:
        """Whether a stall of `seconds` is to be reported; true once, and then each `REPEAT_SECONDS`."""
        if seconds < self._next:
            return False
        self._next = seconds + REPEAT_SECONDS
        return True
