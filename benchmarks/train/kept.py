"""Parts of a long benchmark that are done already, and when it has to end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class TimeIsUp(Exception):
    """The minutes that were given are over; the same command goes on from here."""


class Kept:
    """One file for each part in a folder. A part that has a file is not done again."""

    def __init__(self, folder: Path, minutes: float | None) -> None:
        self._folder = folder
        self._deadline = None if minutes is None else time.monotonic() + 60 * minutes

    def part(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The contents of this part's file; `make` gives a new one. Raises `TimeIsUp` if it is too late for that."""
        path = self._folder / f"{name}.json"
        if path.exists():
            found: dict[str, Any] = json.loads(path.read_text())
            return found
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise TimeIsUp
        made = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(made) + "\n")
        return made

    def forget(self) -> None:
        """Begin again next time: for a run that is whole, or one that is not wanted."""
        for path in self._folder.glob("*.json"):
            path.unlink()
