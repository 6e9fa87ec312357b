"""An earlier run in the folder of a new one: it is continued, replaced, or the new run is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from reverie import _checks
from reverie.runners.checkpoints.checkpoint_files import (
    ASIDE,
    CHECKPOINTS,
    PRESET,
    STATE,
    CheckpointError,
    all_in,
    any_in,
    check,
    find,
    replays_in,
)
from reverie.runners.reports import logs

LOCK = "run.lock"
"""The file in the folder of a run that trains, by which no other run takes that folder."""
MUST = "must"
Resume = Path | str | bool | None
"""True continues the newest checkpoint of the run's folder, if it has one; "must" raises if it has none; a path is a
checkpoint, or the folder of a run. None and False begin a new run."""


class RunExistsError(CheckpointError):
    """The folder for a new run has an earlier run. `.path` is the folder."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.args = (f"folder {path} {reason}",)


@dataclass(frozen=True)
class EarlierRun:
    """The earlier run that a run continues; empty for a new run."""

    checkpoint: Path | None = None
    """The checkpoint to continue from; None for the run's start."""
    preset: Path | None = None
    """The settings that it takes, unless others are given."""
    note: str = ""
    """Why it begins instead of continuing; empty where it continues, or was not asked to."""
    begins_again: bool = False
    """Whether the earlier run ended before its first checkpoint, so that this one repeats its steps."""


def earlier_run(folder: Path | None, resume: Resume, *, overwrite: bool) -> EarlierRun:
    """The run that one in `folder` continues; an empty one for a new run.

    Raises `CheckpointError` if there is none and there must be one, `RunExistsError` if there is one and neither
    `resume` nor `overwrite` names what to do with it, ValueError for arguments that exclude each other.
    """
    if overwrite and resume:
        raise ValueError("overwrite replaces an earlier run and resume continues it: leave one of them out")
    if (overwrite or resume in (True, MUST)) and folder is None:
        given = "overwrite is True" if overwrite else f"resume is {resume!r}"
        raise ValueError(f"{given}, and there is no folder in which the earlier run could be: set it")
    if resume is True or resume == MUST:
        assert folder is not None
        return run_to_resume(folder, must=resume == MUST)
    checkpoint = None if resume is None or resume is False else find(_checks.path("resume", resume))
    if folder is not None:
        place = folder / CHECKPOINTS
        elsewhere = checkpoint is None or checkpoint.resolve().parent != place.resolve()
        if overwrite and not is_replaceable(folder):
            raise ValueError(
                f"{folder} is not the folder of a run (it has neither a run's log.jsonl nor a checkpoint), so that"
                " overwrite=True replaces nothing: set another folder"
            )
        if elsewhere and not overwrite and logs.has_begun(folder):
            raise RunExistsError(
                folder,
                "holds a run: continue it with resume=True, replace it with overwrite=True, or set another folder",
            )
    if checkpoint is None:
        return EarlierRun()
    check(checkpoint)  # its settings are read before all the rest
    return EarlierRun(checkpoint, checkpoint / PRESET)


def run_to_resume(folder: Path, *, must: bool = False) -> EarlierRun:
    """The run in this folder, to continue. Raises `CheckpointError` for a damaged one, and if there `must` be one."""
    if any_in(folder):
        checkpoint = find(folder)
        check(checkpoint)
        return EarlierRun(checkpoint, checkpoint / PRESET)
    if must:
        raise CheckpointError(folder, 'is missing, and resume is "must": resume=True begins a new run then')
    if not logs.has_begun(folder):
        return EarlierRun(note=f"{folder} has no run yet: a new one begins")
    preset = folder / PRESET
    note = f"{folder} has no checkpoint yet: the run starts from the beginning, and its log with it"
    return EarlierRun(preset=preset if preset.is_file() else None, note=note, begins_again=True)


def other_run(folder: Path, agent: str, env: str, seed: int) -> str:
    """The end of a message on the other run whose log is in this folder; empty if there is no log, or this run's.

    A checkpoint is compared later, in full.
    """
    try:
        log = logs.read(folder)
    except (logs.LogError, OSError):
        return ""
    if (log.agent, log.env_id, log.seed) == (agent, env, seed):
        return ""
    return (
        f"holds a run of {log.agent} on {log.env_id} with seed {log.seed}, and this one is of {agent} on {env} with"
        f" seed {seed}"
    )


def is_replaceable(folder: Path) -> bool:
    """Whether the folder is missing, empty, or that of a run. Raises `CheckpointError` as `to_replace` does."""
    if not folder.exists() or (folder.is_dir() and not _files(folder)):
        return True
    if to_replace(folder) or _has_only_tables(folder):
        return True
    try:
        logs.read(folder)
    except (logs.LogError, OSError):
        return False
    return True


def _has_only_tables(folder: Path) -> bool:
    """Whether the folder has only tables: those of a run with a journal that has not started."""
    place = folder / CHECKPOINTS
    tables = replays_in(place)
    return bool(tables) and _files(folder) == [place] and {*place.iterdir()} == {*tables}


def _files(folder: Path) -> list[Path]:
    return [one for one in folder.iterdir() if one.name != LOCK]


def to_replace(folder: Path) -> list[Path]:
    """The checkpoints and tables of the run in `folder`, which a run that replaces it removes.

    Raises `CheckpointError` if a folder that is named like a checkpoint is not one.
    """
    place = folder / CHECKPOINTS
    found = all_in(place)
    for one in found:
        if one.is_symlink() or not is_checkpoint(one):
            raise CheckpointError(
                one, "is not a checkpoint of a run, so that nothing here is overwritten: move it to another folder"
            )
    aside = [one for one in place.glob(f"{ASIDE}*") if one not in found and is_checkpoint(one)]
    return [*aside, *found, *replays_in(place)] if found else []


def is_checkpoint(path: Path) -> bool:
    """Whether this folder is a checkpoint, of any version, complete or damaged."""
    try:
        with (path / STATE).open("rb") as file:
            header = json.loads(file.readline())
    except (OSError, ValueError):
        return False
    return isinstance(header, dict) and "format" in header and STATE in header
