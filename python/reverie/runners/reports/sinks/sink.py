"""The interface of a sink of scalars, and the identity of a tracked run, with which a resumed run continues it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

RunOutcome = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True)
class RunDescription:
    """A run as its sinks describe it."""

    name: str
    settings: Mapping[str, Any]
    """The settings of the agent and of the run, its agent, environment and seed, by name."""
    env_steps: int
    """Above 0 if the run resumes from a checkpoint: its sink continues what it has of the run. 0: all is new."""


class Sink(Protocol):
    """Receives the scalars of one run. Its calls may block and raise: a `ScalarLog` makes them, in order."""

    where: str
    """The place of the tracked run, for people; empty before `begin`, and where the files are all there is."""

    def begin(self, run: RunDescription) -> None:
        """The run begins, or continues. Called first."""

    def add_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Add numbers by name at an environment step. Steps may be lower than those before."""

    def add_summary(self, step: int, summary: Mapping[str, Any]) -> None:
        """Add the result of the run: numbers and truth values by name."""

    def add_file(self, step: int, path: Path) -> None:
        """Add a file of the run's folder, such as a picture, a video or the preset."""

    def close(self, outcome: RunOutcome) -> None:
        """Close. Also called where `begin` raised, or was not called."""


def read_identity(folder: Path, sink: str) -> dict[str, Any]:
    """The data that a sink saved about the run in this folder; empty if it saved nothing that can be read."""
    try:
        identity = json.loads(_identity_file(folder, sink).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return identity if isinstance(identity, dict) else {}


def save_identity(folder: Path, sink: str, **identity: Any) -> None:
    """Save what the sink needs to continue the run. Raises OSError if it cannot be written."""
    path = _identity_file(folder, sink)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(identity), encoding="utf-8")
    draft.replace(path)


def tracked_in(folder: Path, sinks: tuple[str, ...]) -> tuple[str, ...]:
    """The sinks among `sinks` that have saved an identity in this folder."""
    return tuple(sink for sink in sinks if _identity_file(folder, sink).is_file())


def _identity_file(folder: Path, sink: str) -> Path:
    return folder / "tracking" / f"{sink}.json"
