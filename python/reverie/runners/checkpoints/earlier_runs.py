"""An earlier run in the folder of a new one: it is continued, replaced, or the new run is refused."""

from __future__ import annotations

import json
from pathlib import Path

from reverie import _checks
from reverie.runners.checkpoints.checkpoint_files import ASIDE, STATE, CheckpointError, all_in, find, replays_in

MUST = "must"
Resume = Path | str | bool | None
"""True continues the newest checkpoint of the run's folder, if it has one; "must" raises if it has none; a path is a
checkpoint, or the folder of a run. None and False begin a new run."""


class RunExistsError(CheckpointError):
    """The folder for a new run's checkpoints has those of an earlier run. `.path` is the folder."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.args = (f"folder {path} {reason}",)


def checkpoint_to_resume(folder: Path | None, resume: Resume, *, overwrite: bool) -> Path | None:
    """The checkpoint that a run which writes into `folder` continues; None for a new run.

    Raises `CheckpointError` if there is none and there must be one, `RunExistsError` if there is one and neither
    `resume` nor `overwrite` names what to do with it, ValueError for arguments that exclude each other.
    """
    if overwrite and resume:
        raise ValueError("overwrite replaces an earlier run and resume continues it: leave one of them out")
    if (overwrite or resume in (True, MUST)) and folder is None:
        given = "overwrite is True" if overwrite else f"resume is {resume!r}"
        raise ValueError(f"{given}, and there is no checkpoint_folder in which the earlier run could be: set it")
    earlier = [] if folder is None else all_in(folder)
    if resume is True or resume == MUST:
        assert folder is not None
        if not earlier and resume == MUST:
            raise CheckpointError(folder, 'is missing, and resume is "must": resume=True begins a new run then')
        return earlier[-1] if earlier else None
    checkpoint = None if resume is None or resume is False else find(_checks.path("resume", resume))
    elsewhere = folder is not None and (checkpoint is None or checkpoint.resolve().parent != folder.resolve())
    if folder is not None and earlier and elsewhere and not overwrite:
        raise RunExistsError(
            folder,
            "holds a run: continue it with resume=True, replace it with overwrite=True, or set another"
            " checkpoint_folder",
        )
    return checkpoint


def to_replace(folder: Path) -> list[Path]:
    """The checkpoints and tables of the run in `folder`, which a run that replaces it removes.

    Raises `CheckpointError` if a folder that is named like a checkpoint is none.
    """
    found = all_in(folder)
    for one in found:
        if one.is_symlink() or not is_checkpoint(one):
            raise CheckpointError(
                one, "is not a checkpoint of a run, so that nothing here is overwritten: move it to another folder"
            )
    aside = [one for one in folder.glob(f"{ASIDE}*") if one not in found and is_checkpoint(one)]
    return [*aside, *found, *replays_in(folder)] if found else []


def is_checkpoint(path: Path) -> bool:
    """Whether this folder is a checkpoint, of any version, complete or damaged."""
    try:
        with (path / STATE).open("rb") as file:
            header = json.loads(file.readline())
    except (OSError, ValueError):
        return False
    return isinstance(header, dict) and "format" in header and STATE in header
