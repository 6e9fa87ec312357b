"""A run that passed every check and may begin, with any runner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reverie.agents.agent import Agent
from reverie.pages import Page
from reverie.runners.checkpoints import BestKeeper, ReplayFolders
from reverie.runners.planning.topology import Topology
from reverie.runners.reports.events import Event


@dataclass(frozen=True)
class CheckedRun:
    """Everything that a runner needs to train."""

    agent: Agent
    topology: Topology
    on_event: Callable[[Event], None]
    should_stop: Callable[[], bool]
    stop_when_confirmed: bool
    checkpoint_folder: Path | None
    resume: Path | None
    state: dict[str, Any] | None
    """The state of the checkpoint `resume`; with a journal, with newer counts of the actors."""
    replays: ReplayFolders
    check_memory: bool
    best: BestKeeper
    page: Page | None = None
    """The page of the run; None for a run without one."""


class StopRequested(Exception):
    """`should_stop` returned True: the loop of a run saves and raises `StoppedError`."""
