"""Folders that the settings of a run name, as all of its processes find them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

from reverie.agents.core import RunSettings

JOURNAL_IN_RUN = "run"
"""The value of `replay_journal` for a journal in the folder of the run's checkpoints."""
NO_JOURNAL = "off"
"""The value of `replay_journal` with which a resumed run ends its journal."""


def with_absolute_folders(run: RunSettings) -> RunSettings:
    """The settings with folders that are relative to the working directory of this process made absolute.

    A worker of Ray, and a command that resumes the run, may have another working directory.
    """
    disk, journal = run.replay_disk, run.replay_journal
    if disk is not None:
        run = replace(run, replay_disk=os.path.abspath(disk))
    if journal not in (None, JOURNAL_IN_RUN, NO_JOURNAL):
        run = replace(run, replay_journal=os.path.abspath(journal))
    return run


def with_absolute_dataset(config: Any) -> Any:
    """The settings with the path of a data set made absolute, for the same reason. Other names are left as they are."""
    dataset = getattr(config, "dataset", "")
    if not dataset or not os.path.exists(dataset):
        return config
    return replace(config, dataset=os.path.abspath(dataset))


def name_of_run(folder: Path | None, seed: int) -> str:
    """See `Topology.name`: of the place of the folder and the seed."""
    if folder is None:
        return f"seed-{seed}"
    # Trials of a search have one seed, and folders in several places may have one name, or begin alike and be long.
    path = os.path.abspath(folder)
    return f"{os.path.basename(path)[:40]}-{crc32(os.fsencode(path)):08x}-seed-{seed}"


def has_journal(run: RunSettings) -> bool:
    """Whether the servers of a run keep a journal."""
    return run.replay_journal not in (None, NO_JOURNAL)
