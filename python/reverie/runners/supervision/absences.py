"""Roles that are not there, or tell nothing: told of at once, and those that lack something given up in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reverie.runners.links.messages import RoleName
from reverie.runners.reports.events import RoleAwaited, RoleMissingError

LACK_SECONDS, SLOW_SECONDS = 2.0, 30.0
"""After so long it is told that a role is not there: one that lacks something, one that only takes long."""
AGAIN_SECONDS = 30.0
LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Absence:
    """Of a role that is awaited."""

    seconds: float
    reason: str = ""
    """What it lacks, or what holds it, as what comes behind "it"; empty where nothing is known."""
    begun: bool = False
    """It was there, and tells nothing now: it is not given up, since it may be at work or be let go on."""

    def __str__(self) -> str:
        """What comes behind its name."""
        what = "has told nothing" if self.begun else "is not there"
        return f"{what} for {self.seconds:.0f} s" + (f": it {self.reason}" if self.reason else "")


class AbsenceReporter:
    """What a run waits for, and what was told of it. `most` seconds are waited for a role that lacks something."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._next = 0.0
        self._told: dict[RoleName, float] = {}
        """After how many seconds of its absence a role was told of last."""
        self.text = ""
        """Who is awaited, for how long and why, for one line; empty where nobody is."""

    def is_due(self, now: float) -> bool:
        """Whether it is time to look again."""
        if now < self._next:
            return False
        self._next = now + LOOK_SECONDS
        return True

    def look(self, awaited: Mapping[RoleName, Absence], env_steps: int, checkpoint: Path | None) -> list[RoleAwaited]:
        """What is to be told: `awaited` are the roles that are not there, or silent.

        Raises `RoleMissingError` where one has lacked something for too long; `checkpoint` is the newest there is.
        """
        self._told = {name: seconds for name, seconds in self._told.items() if name in awaited}
        events, parts = [], []
        for name, absence in awaited.items():
            seconds, reason = absence.seconds, absence.reason
            if seconds < (LACK_SECONDS if reason else SLOW_SECONDS):
                continue
            parts.append(f"{name} {absence}")
            last = self._told.get(name)
            if last is None or not last <= seconds < last + AGAIN_SECONDS:  # below: it was started once more
                self._told[name] = seconds
                events.append(RoleAwaited(env_steps, str(name), seconds, reason, absence.begun))
            if reason and not absence.begun and seconds > self._most:
                raise RoleMissingError(str(name), seconds, reason, checkpoint)
        self.text = "; ".join(parts)
        return events
