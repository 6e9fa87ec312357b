"""Checkpoints of a run: how they are written, found, read and checked."""

from __future__ import annotations

from reverie.runners.checkpoints.checkpoint_files import (
    PRESET,
    REPLAY,
    CheckpointError,
    any_in,
    check,
    fallback_hint,
    find,
    load,
    save,
)
from reverie.runners.checkpoints.run_checkpoints import as_paths, load_run, replay_checkpointers, save_run, table_paths

__all__ = [
    "PRESET",
    "REPLAY",
    "CheckpointError",
    "any_in",
    "as_paths",
    "check",
    "fallback_hint",
    "find",
    "load",
    "load_run",
    "replay_checkpointers",
    "save",
    "save_run",
    "table_paths",
]
