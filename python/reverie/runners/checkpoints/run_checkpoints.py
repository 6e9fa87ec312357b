"""Checkpoints of a run: its state and its tables, written together and checked before the run resumes."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from reverie import _checks, checkpointers
from reverie.agents import presets
from reverie.agents.core import Preset
from reverie.runners.checkpoints.checkpoint_files import (
    KEPT,
    REPLAY,
    CheckpointError,
    all_in,
    fallback_hint,
    find,
    load,
    save,
    tables_of,
)
from reverie.runners.links.messages import State
from reverie.runners.planning.topology import Topology


def save_run(folder: Path, topology: Topology, state: dict[str, Any], tables: list[Path]) -> Path:
    """Write a checkpoint of a run whose tables (one path per shard) are written, and remove old tables."""
    preset = presets.dump(Preset(topology.config, topology.run, topology.preset))
    paths = [os.path.relpath(one, folder) for one in tables]
    path = save(folder, state["env_steps"], {**state, REPLAY: paths}, preset)
    remove_replays(folder, Path(paths[0]).parts[0])
    return path


def table_paths(answers: Sequence[State]) -> list[Path]:
    """The paths where servers wrote their tables. Raises OSError if one could not."""
    for problem in [one.problem for one in answers if one.problem]:
        raise OSError(problem)
    return [Path(str(one.tables)) for one in answers]


def load_run(resume: Path, topology: Topology) -> dict[str, Any]:
    """The state of a checkpoint that this run may resume from. Raises `CheckpointError`."""
    state = load(resume)
    # A checkpoint of a version without some setting was made as if that setting had its default.
    later = {field.name: field.default for field in dataclasses.fields(topology.config)}
    for name, value in topology.identity.items():
        if state["identity"].get(name, later.get(name)) != value:
            there = state["identity"].get(name)
            raise CheckpointError(
                resume, f"has {name} {there!r}, and this run {value!r}: resume a checkpoint of this run"
            )
    if len(state[REPLAY]) != topology.num_servers:
        counts = f"has the tables of {len(state[REPLAY])} servers, and this run {topology.num_servers}"
        if topology.needs.bundled:
            raise CheckpointError(
                resume,
                f"{counts}: resume bundles with the runner 'local' if it wrote the checkpoint, else with another",
            )
        raise CheckpointError(resume, f"{counts}: set num_shards to the same number")
    if state["env_steps"] >= topology.run.max_env_steps:
        done = f"is of a run that ended after {state['env_steps']:,} environment steps"
        raise CheckpointError(resume, f"{done}; raise max_env_steps ({topology.run.max_env_steps:,})")
    return state


def replay_checkpointers(
    folder: Path | None, resume: Path | None, num_shards: int = 1
) -> Sequence[checkpointers.DefaultCheckpointer | None]:
    """Checkpointers for the servers of a run that writes into `folder` and starts from the tables of `resume`.

    Without either there is nothing to write or to start from: None for each server. Raises `CheckpointError` if the
    tables are missing.
    """
    if folder is None:
        if resume is None:
            return [None] * num_shards
        folder = resume.parent
    number = max((int(one.name.removeprefix("replay-")) for one in _replays(folder)), default=0) + 1
    tables: list[Path | None] = [None] * num_shards
    if resume is not None:
        tables = [resume.parent / path for path in load(resume)[REPLAY]]
        for path in tables:
            if path is not None and not path.exists():
                raise CheckpointError(resume, f"has its tables in {path}, which is missing; {fallback_hint(resume)}")
    ours = folder / f"replay-{number}"
    # One more than a run keeps: the tables are written before the checkpoint that names them.
    return [
        checkpointers.DefaultCheckpointer(
            ours if num_shards == 1 else ours / f"shard-{index}", fallback_checkpoint_path=path, keep=KEPT + 1
        )
        for index, path in enumerate(tables)
    ]


def remove_replays(folder: Path, current: str) -> None:
    """Remove the tables that no checkpoint in `folder` names any more, except `current`, which is in use."""
    needed = {current}
    for path in all_in(folder):
        with suppress(CheckpointError):  # a damaged one names nothing
            needed.update(Path(one).parts[0] for one in tables_of(path))
    for replay in _replays(folder):
        if replay.name not in needed:
            shutil.rmtree(replay)


def _replays(folder: Path) -> list[Path]:
    return [one for one in folder.glob("replay-*") if one.name.removeprefix("replay-").isdigit()]


def as_paths(folder: Path | str | None, resume: Path | str | None) -> tuple[Path | None, Path | None]:
    """The folder for a run's checkpoints, and the checkpoint to resume from (of a run's folder the newest).

    Raises `CheckpointError` if there is none to resume from, TypeError for an argument that is not a path.
    """
    into = None if folder is None else _checks.path("checkpoint_folder", folder)
    return into, None if resume is None else find(_checks.path("resume", resume))
