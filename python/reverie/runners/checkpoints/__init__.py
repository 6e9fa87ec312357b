"""Checkpoints of a run: how they are written, found, read and checked."""

from __future__ import annotations

from reverie.runners.checkpoints.actor_counts import ActorCounts, with_newer_counts
from reverie.runners.checkpoints.checkpoint_files import (
    PRESET,
    REPLAY,
    CheckpointError,
    any_in,
    check,
    env_steps_of,
    fallback_hint,
    find,
    load,
    save,
)
from reverie.runners.checkpoints.earlier_runs import RunExistsError, checkpoint_to_resume, is_checkpoint
from reverie.runners.checkpoints.finished_runs import is_finished, result_of
from reverie.runners.checkpoints.replays import Replays, journal_hint, place_replays
from reverie.runners.checkpoints.run_checkpoints import (
    load_run,
    remove_older,
    require_named_weights,
    save_run,
    table_paths,
)
from reverie.runners.checkpoints.setting_changes import ChangedSettingsError

__all__ = [
    "PRESET",
    "REPLAY",
    "ActorCounts",
    "ChangedSettingsError",
    "CheckpointError",
    "Replays",
    "RunExistsError",
    "any_in",
    "check",
    "checkpoint_to_resume",
    "env_steps_of",
    "fallback_hint",
    "find",
    "is_checkpoint",
    "is_finished",
    "journal_hint",
    "load",
    "load_run",
    "place_replays",
    "remove_older",
    "require_named_weights",
    "result_of",
    "save",
    "save_run",
    "table_paths",
    "with_newer_counts",
]
