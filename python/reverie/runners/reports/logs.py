"""The log of a run in JSON lines: an `on_event` callback for `train`, and what reads it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from reverie import _checks
from reverie._picklable import Picklable
from reverie.runners.reports.events import (
    EnvironmentRestarted,
    Evaluated,
    Event,
    Finished,
    LogNotWritten,
    NotSaved,
    PageOpened,
    PolicyNotSaved,
    Progress,
    Result,
    RoleAwaited,
    RoleRestarted,
    Saved,
    ShardMoved,
    Started,
    TrainingWaits,
    UpdatesCompiled,
    WeightsNotPublished,
)
from reverie.runners.reports.sparse_events import SparseEvents

LOG = "log.jsonl"


class EventLog(Protocol):
    """Writes events until it is closed. A full disk does not end the run: `problem` has the reason for lost events."""

    name: str
    """The name for messages: a path, or a service."""

    @property
    def problem(self) -> str:
        """Why events are not being written; empty where they are."""

    def __call__(self, event: Event) -> None:
        """Write one event of a run."""

    def close(self, *, failed: bool = False) -> None:
        """Write what is left; `failed`: an error ended the run."""


class JsonLines:
    """A log with one JSON object per line: `event`, `env_steps`, `seconds` if any, and the event's other fields.

    A run that resumes from a checkpoint continues the same file: lines of steps after the checkpoint are removed, since
    those steps are made again. A line for which the disk has no room is left out whole; training continues, and before
    the next line that fits there is a line `not written` with the number of lines left out.
    """

    def __init__(self, path: Path | str) -> None:
        path = _checks.path("path", path)
        self.path, self.name = path, str(path)
        self._sparse = SparseEvents()
        self._unwritten = 0
        self.problem = ""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)

    def __call__(self, event: Event) -> None:
        """Write one event, so that the file can be read after a crash at any time.

        Raises OSError only at the start of a run, if the file cannot be prepared for it; it stays unchanged then.
        """
        if isinstance(event, Started):
            self._rewind(event.env_steps)
        for one in self._sparse(event):
            self._write(as_line(one))

    def _write(self, line: dict[str, Any]) -> None:
        lines = [line]
        if self._unwritten:
            lines.insert(0, {"event": "not written", "env_steps": line["env_steps"], "lines": self._unwritten})
        size = os.fstat(self._file.fileno()).st_size
        try:
            data = _packed(lines)
            if self._file.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._unwritten, self.problem = 0, ""
        except OSError as error:
            self._unwritten, self.problem = self._unwritten + 1, error.strerror or str(error)
            with suppress(OSError):
                self._file.truncate(size)

    def _rewind(self, env_steps: int) -> None:
        kept = [
            line for line in _lines(self.path) if 0 < env_steps >= line["env_steps"] and line["event"] != "finished"
        ]
        replace_file(self.path, _packed(kept))
        self._file.close()
        self._file = self.path.open("ab", buffering=0)

    def complete(self, result: Result) -> None:
        """Write the result of a run that was killed between its last checkpoint and this line. Raises OSError."""
        lines = list(_lines(self.path))
        ended = bool(lines) and lines[-1]["event"] == "finished" and lines[-1]["env_steps"] == result.env_steps
        if lines and not ended:
            self._rewind(result.env_steps)
            self(Finished(result))

    def close(self, *, failed: bool = False) -> None:
        """Close the file; idempotent."""
        self._file.close()


def _packed(lines: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically: on an OSError (a full disk) it is unchanged."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def as_line(event: Event) -> dict[str, Any]:
    """An event as a JSON object."""
    match event:
        case Started():
            topology = event.topology
            return {
                "event": "started",
                "env_steps": event.env_steps,
                "agent": topology.agent,
                "env_id": topology.env.env_id,
                "seed": topology.seed,
                "target_return": topology.run.target_return,
                "config": vars(topology.config),
                "run": vars(topology.run),
                "environment": topology.env.settings.changed(),
            }
        case Progress():
            return {
                "event": "progress",
                **vars(event),
                "learner": dict(event.learner),
                "activities": dict(event.activities),
                "schedules": dict(event.schedules),
            }
        case Evaluated():
            confirmation = event.confirmation
            return {
                "event": "evaluated",
                **vars(event.point),
                "confirmation": None if confirmation is None else confirmation.mean_return,
                "best": event.best is not None,
            }
        case Saved():
            return {"event": "saved", **vars(event), "path": str(event.path), "abandoned": list(event.abandoned)}
        case NotSaved():
            return {"event": "not saved", **vars(event), "path": str(event.path)}
        case PolicyNotSaved():
            return {"event": "policy not saved", **vars(event), "path": str(event.path)}
        case LogNotWritten():
            return {"event": "log not written", **vars(event)}
        case WeightsNotPublished():
            return {"event": "weights not published", **vars(event)}
        case RoleRestarted():
            return {"event": "role restarted", **vars(event)}
        case ShardMoved():
            return {"event": "shard moved", **vars(event), "followed_by": list(event.followed_by)}
        case RoleAwaited():
            return {"event": "role awaited", **vars(event)}
        case TrainingWaits():
            return {"event": "training waits", **vars(event)}
        case UpdatesCompiled():
            name = "updates not compiled" if event.note.reason else "updates compiled"
            return {"event": name, "env_steps": event.env_steps, **vars(event.note)}
        case EnvironmentRestarted():
            return {"event": "environment restarted", "env_steps": event.env_steps, **vars(event.crash)}
        case PageOpened():
            return {"event": "page opened", **vars(event)}
        case Finished():
            result = event.result
            return {
                "event": "finished",
                "env_steps": result.env_steps,
                "seconds": result.seconds,
                "confirmed": result.confirmed,
                "mean_return": result.evaluation.mean_return,
                "num_episodes": result.evaluation.num_episodes,
                "success_rate": result.evaluation.success_rate,
                "activities": dict(result.activities),
                "replay": dict(result.replay),
            }


def has_begun(folder: Path) -> bool:
    """Whether a run's folder has a log with anything in it, or a checkpoint, whole or not."""
    log = folder / LOG
    return (log.exists() and log.stat().st_size > 0) or (folder / "checkpoints").is_dir()


class LogError(Picklable, ValueError):
    """There is no log at `.path`, or it is not the log of a run."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(f"log {path} {reason}")


@dataclass(frozen=True)
class RunLog:
    """The contents of a run's log."""

    path: Path
    agent: str
    env_id: str
    seed: int
    target_return: float | None
    env_steps: tuple[int, ...]
    """Environment steps of the points of the curve."""
    returns: tuple[float, ...]
    finished: dict[str, Any] | None
    """The last line's object; None where the run has not ended."""
    seconds: tuple[float, ...] = ()
    """Times of the points of the curve, from the run's start."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the agent, and of the environment where they differ from the defaults."""


def read(path: Path | str) -> RunLog:
    """Read the log of a run from its folder or its file. Raises `LogError`."""
    path = _checks.path("path", path)
    file = path / LOG if path.is_dir() else path
    if not file.is_file():
        raise LogError(file, "does not exist: name a run's folder, or a log.jsonl")
    lines = list(_lines(file))
    started = [line for line in lines if line.get("event") == "started"]
    if not started:
        raise LogError(file, "is not the log of a run: it has no line with the event 'started'")
    points = [line for line in lines if line.get("event") == "evaluated"]
    first = started[0]
    try:
        return RunLog(
            path=file,
            agent=first["agent"],
            env_id=first["env_id"],
            seed=first["seed"],
            target_return=first["target_return"],
            env_steps=tuple(int(point["env_steps"]) for point in points),
            returns=tuple(float(point["mean_return"]) for point in points),
            finished=next((line for line in lines if line.get("event") == "finished"), None),
            seconds=tuple(float(point["seconds"]) for point in points),
            config={**first["config"], **first.get("environment", {})},
        )
    except KeyError as error:
        raise LogError(file, f"is not the log of a run: a line lacks {error}") from error
    except (TypeError, ValueError) as error:
        raise LogError(file, f"is not the log of a run: a number of an evaluation is invalid ({error})") from error


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except UnicodeDecodeError as error:
        raise LogError(path, f"is not UTF-8 text: {error}") from error
    for number, text in enumerate(lines, start=1):
        if not text.endswith("\n"):  # torn by a crash: only ever the last one
            return
        try:
            line = json.loads(text)
        except ValueError as error:
            raise LogError(path, f"is not JSON in line {number}: {error}") from error
        if not isinstance(line, dict):
            raise LogError(path, f"has no JSON object in line {number}")
        yield line
