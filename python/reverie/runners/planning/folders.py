"""Folders that the settings of a run name, as all of its processes find them."""

from __future__ import annotations

import os
from dataclasses import replace

from reverie.agents.core import RunSettings

JOURNAL_IN_RUN = "run"
"""The value of `replay_journal` for a journal in the folder of the run's checkpoints."""
NO_JOURNAL = "off"
"""The value of `replay_journal` with which a resumed run ends its journal."""


def with_absolute_folders(run: RunSettings) -> RunSettings:
    """The settings with folders that are relative to the working directory of this process made absolute.

    "off" for no journal becomes None. A worker of Ray, and a command that resumes the run, may have another working
    directory.
    """
    if run.replay_journal == NO_JOURNAL:
        run = replace(run, replay_journal=None, replay_journal_sync=None)
    folders = {name: getattr(run, name) for name in ("replay_disk", "replay_journal")}
    if folders["replay_journal"] == JOURNAL_IN_RUN:
        folders["replay_journal"] = None
    return replace(run, **{name: os.path.abspath(one) for name, one in folders.items() if one is not None})
