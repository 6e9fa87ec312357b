"""The events of a run that are written to logs."""

from __future__ import annotations

from reverie.runners.reports.events import Event, Finished, Progress

SECONDS_BETWEEN_PROGRESS = 1.0


class SparseEvents:
    """Selects the events to write: progress about once a second, and the last one before the end."""

    def __init__(self) -> None:
        self._last = float("-inf")
        self._left_out: Progress | None = None  # the last that came too soon after the one before

    def __call__(self, event: Event) -> list[Event]:
        """The events to write when this event comes."""
        if isinstance(event, Progress):
            if event.seconds - self._last < SECONDS_BETWEEN_PROGRESS:
                self._left_out = event
                return []
            self._last, self._left_out = event.seconds, None
        if isinstance(event, Finished) and self._left_out is not None:
            return [self._left_out, event]
        return [event]
