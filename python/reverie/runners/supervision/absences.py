"""Roles that have not started or do not report: reported early; a role that lacks something times out in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reverie.runners.links.messages import RoleName
from reverie.runners.reports.events import RoleAwaited, RoleMissingError

LACK_SECONDS, SLOW_SECONDS = 2.0, 30.0
"""A role is reported as awaited after this time: the first if it lacks something, the second if it is only slow."""
REPEAT_SECONDS = 30.0
CHECK_SECONDS = 1.0


@dataclass(frozen=True)
class Absence:
    """The time for which a role has been awaited, and the reason."""

    seconds: float
    reason: str = ""
    """The thing that it lacks, or that holds it up, worded to follow "it"; empty if unknown."""
    begun: bool = False
    """It had started, and does not report now. Such a role does not time out: it may be busy, or be continued."""

    def __str__(self) -> str:
        """The absence, worded to follow the role's name."""
        what = "has not reported" if self.begun else "has not started"
        return f"{what} for {self.seconds:.0f} s" + (f": it {self.reason}" if self.reason else "")


class AbsenceReporter:
    """Reports the roles that a run waits for. A role that lacks something times out after `most` seconds."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._next = 0.0
        self._last_events: dict[RoleName, float] = {}
        """Seconds of a role's absence at its last event."""
        self.text = ""
        """The awaited roles, for how long and why, in one line; empty if there are none."""

    def is_due(self, now: float) -> bool:
        """Whether it is time to look again."""
        if now < self._next:
            return False
        self._next = now + CHECK_SECONDS
        return True

    def check(self, awaited: Mapping[RoleName, Absence], env_steps: int, checkpoint: Path | None) -> list[RoleAwaited]:
        """The events to emit for the roles in `awaited`, which have not started or do not report.

        Raises `RoleMissingError` if one has lacked something for too long; `checkpoint` is the newest of the run.
        """
        self._last_events = {name: seconds for name, seconds in self._last_events.items() if name in awaited}
        events, parts = [], []
        for name, absence in awaited.items():
            seconds, reason = absence.seconds, absence.reason
            if seconds < (LACK_SECONDS if reason else SLOW_SECONDS):
                continue
            parts.append(f"{name} {absence}")
            last = self._last_events.get(name)
            if last is None or not last <= seconds < last + REPEAT_SECONDS:  # less than `last`: it was restarted
                self._last_events[name] = seconds
                events.append(RoleAwaited(env_steps, str(name), seconds, reason, absence.begun))
            if reason and not absence.begun and seconds > self._most:
                raise RoleMissingError(str(name), seconds, reason, checkpoint)
        self.text = "; ".join(parts)
        return events
