"""Checkpoints of a run: how they are written, found, read and checked."""

from __future__ import annotations

from reverie.runners.checkpoints.actor_counts import ActorCounts, with_newer_counts
from reverie.runners.checkpoints.best_policies import BestKeeper
from reverie.runners.checkpoints.checkpoint_files import (
    BEST,
    CHECKPOINTS,
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
from reverie.runners.checkpoints.earlier_runs import (
    EarlierRun,
    RunExistsError,
    earlier_run,
    is_checkpoint,
    is_replaceable,
    other_run,
    run_to_resume,
)
from reverie.runners.checkpoints.finished_runs import (
    changed_after_the_end,
    is_finished,
    require_trained_with,
    result_of,
    same_training,
)
from reverie.runners.checkpoints.replays import ReplayFolders, journal_hint, place_replays
from reverie.runners.checkpoints.run_checkpoints import (
    load_run,
    not_saved,
    replace_older,
    require_agent,
    require_named_weights,
    save_run,
    table_paths,
)
from reverie.runners.checkpoints.run_files import RunFiles, require_folder
from reverie.runners.checkpoints.run_lock import RunInUseError, locked
from reverie.runners.checkpoints.setting_changes import ChangedSettingsError

__all__ = [
    "BEST",
    "CHECKPOINTS",
    "PRESET",
    "REPLAY",
    "ActorCounts",
    "BestKeeper",
    "ChangedSettingsError",
    "CheckpointError",
    "EarlierRun",
    "ReplayFolders",
    "RunExistsError",
    "RunFiles",
    "RunInUseError",
    "any_in",
    "changed_after_the_end",
    "check",
    "earlier_run",
    "env_steps_of",
    "fallback_hint",
    "find",
    "is_checkpoint",
    "is_finished",
    "is_replaceable",
    "journal_hint",
    "load",
    "load_run",
    "locked",
    "not_saved",
    "other_run",
    "place_replays",
    "replace_older",
    "require_agent",
    "require_folder",
    "require_named_weights",
    "require_trained_with",
    "result_of",
    "run_to_resume",
    "same_training",
    "save",
    "save_run",
    "table_paths",
    "with_newer_counts",
]
