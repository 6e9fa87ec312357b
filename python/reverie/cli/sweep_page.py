"""The page of several runs that differ in their seeds: their learning curves, read from their logs."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from reverie.cli.common import outcome
from reverie.pages import Page, PageServer
from reverie.runners.reports.events import CurvePoint
from reverie.runners.reports.logs import LOG
from reverie.runners.reports.run_figures import thinned

PERIOD_SECONDS = 1.0
MOST_SEEDS = 64
"""Seeds that a page shows, which is what `Server.publish` permits."""
MOST_POINTS = 1000
"""Points of the curves of all seeds together, likewise."""


class RunTail:
    """The state of one run by its log, of which only new lines are read. Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG
        self._clear()

    def _clear(self) -> None:
        self._read, self._inode = 0, -1
        self._last: dict[str, Any] = {}
        self._started: dict[str, Any] | None = None
        self._finished: dict[str, Any] | None = None
        self._curve: list[CurvePoint] = []

    @property
    def target_return(self) -> float | None:
        """The target of the run; None without one, or before it has begun."""
        return None if self._started is None else self._started["target_return"]

    def figures(self, seed: int, most_points: int) -> dict[str, Any]:
        """The figures of now, in the form of an entry of `seeds` of `/api/run`."""
        self._follow()
        curve = thinned(self._curve, most_points)
        return {
            "seed": seed,
            "state": self._state(),
            "env_steps": self._last.get("env_steps", 0),
            "updates": self._last.get("updates", 0),
            "confirmed": self._finished is not None and self._finished["confirmed"],
            "curve": [[point.env_steps, round(point.seconds, 3), point.mean_return] for point in curve],
        }

    def _state(self) -> str:
        if self._finished is not None:
            return outcome(self._finished["confirmed"], self.target_return)
        return "has not begun" if self._started is None else "trains"

    def _follow(self) -> None:
        """Read the lines that were written since the last call; all of them if the log was replaced."""
        try:
            with self._path.open("rb") as file:
                inode = self._path.stat().st_ino
                if inode != self._inode or file.seek(0, 2) < self._read:
                    self._clear()
                    self._inode = inode
                file.seek(self._read)
                lines = file.read().splitlines(keepends=True)
        except OSError:
            return
        for line in lines:
            if not line.endswith(b"\n"):  # it is being written
                return
            self._read += len(line)
            self._take(json.loads(line))

    def _take(self, line: dict[str, Any]) -> None:
        match line["event"]:
            case "started":
                self._started, self._finished = line, None
            case "evaluated" if math.isfinite(line["mean_return"]):
                self._curve.append(CurvePoint(line["env_steps"], line["seconds"], line["mean_return"]))
            case "progress":
                self._last |= {"env_steps": line["env_steps"], "updates": line["updates"]}
            case "finished":
                self._finished = line
                self._last["env_steps"] = line["env_steps"]


class SweepPage:
    """A page that shows runs by seed until the end of its block. Opens at once; raises as `PageServer` does."""

    def __init__(self, page: Page, agent: str, env: str, folders: Mapping[int, Path]) -> None:
        self._agent, self._env = agent, env
        self._tails = {seed: RunTail(folder) for seed, folder in list(folders.items())[:MOST_SEEDS]}
        self._server = PageServer(page)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="page of the sweep", daemon=True)

    @property
    def url(self) -> str:
        """The address of the page."""
        return self._server.url

    def __enter__(self) -> SweepPage:
        self._server.publish(self.figures())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()
        self._server.close()

    def _run(self) -> None:
        while not self._ends.wait(PERIOD_SECONDS):
            self._server.publish(self.figures())

    def figures(self) -> dict[str, Any]:
        """The figures of all runs, as `Server.publish` takes them."""
        most = MOST_POINTS // max(1, len(self._tails))
        seeds = [tail.figures(seed, most) for seed, tail in self._tails.items()]
        targets = [tail.target_return for tail in self._tails.values() if tail.target_return is not None]
        return {
            "agent": self._agent,
            "env": self._env,
            "env_steps": sum(seed["env_steps"] for seed in seeds),
            "updates": sum(seed["updates"] for seed in seeds),
            "target_return": targets[0] if targets else None,
            "seeds": seeds,
        }
