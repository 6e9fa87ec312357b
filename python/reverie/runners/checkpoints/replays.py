"""The folders in which the servers of a run keep their tables: checkpoints, and journals if the run has them.

They are `replay-N/` in the folder of the run's checkpoints (with one folder per server if there are several), or in the
run's own part of another folder for journals. N counts the times that the run was started or resumed; a run that
continues a journal continues its folder, too.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reverie.checkpointers import DefaultCheckpointer
from reverie.journal import Journal
from reverie.runners.checkpoints.checkpoint_files import (
    KEPT,
    REMOVED,
    REPLAY,
    CheckpointError,
    all_in,
    fallback_hint,
    later_than,
    load,
    name_of,
    remove,
    replays_in,
    tables_of,
)
from reverie.runners.links.replay_storage import ReplayStorage, has_tables
from reverie.runners.planning.folders import JOURNAL_IN_RUN, has_journal
from reverie.runners.planning.topology import Topology

JOURNAL = "journal"
"""The key of a state for whether the tables are in a journal, with which a run continues."""
DRAWS = "replay_draws"
"""The key of a state for draws of each server's tables: `samples` and `lost`, see `ReplayStorage`."""


@dataclass(frozen=True)
class ReplayFolders:
    """The places in which the servers of a run keep their tables."""

    storages: tuple[ReplayStorage, ...]
    folder: Path | None = None
    """The folder `replay-N`; None for a run that keeps nothing."""
    journaled: bool = False
    abandoned: set[str] = field(default_factory=set)
    """Names of checkpoints in the run's folder with more steps than the one that it resumed: of the run as it went on
    from there before. They are removed once this run has written a checkpoint of its own."""

    @property
    def continued(self) -> bool:
        """Whether the run continues a journal."""
        return any(one.continues for one in self.storages)

    @property
    def counts_folder(self) -> Path | None:
        """The folder into which the counts of actors are written; None without a journal."""
        return self.folder if self.journaled else None

    def state_dict(self, draws: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The part of a run's state about its tables; `draws` has `samples` and `lost` of each server."""
        return {JOURNAL: self.journaled, DRAWS: list(draws)}


def place_replays(
    folder: Path | None, resume: Path | None, topology: Topology, state: dict[str, Any] | None
) -> ReplayFolders:
    """The places of the tables of a run, which writes into `folder` and resumes `state` of `resume`.

    Without either there is nothing to write or to start from. Raises `CheckpointError` if the tables are missing.
    """
    count, journaled = topology.num_servers, has_journal(topology.run)
    if folder is None:
        if resume is None:
            return ReplayFolders((ReplayStorage(),) * count)
        folder = resume.parent
    place = topology.run.replay_journal if journaled else JOURNAL_IN_RUN
    base = folder if place in (None, JOURNAL_IN_RUN) else _own_part(Path(place), folder, topology)
    tables: list[Path | None] = [None] * count
    draws: list[dict[str, Any]] = [{}] * count
    if resume is not None:
        assert state is not None
        tables = [resume.parent / path for path in state[REPLAY]]
        draws = state.get(DRAWS, draws)
        is_newest = [one.resolve() for one in all_in(folder)[-1:]] == [resume.resolve()]
        if state.get(JOURNAL) and is_newest and topology.run.replay_journal is None:
            raise CheckpointError(
                resume,
                "has its tables in a journal, which may have newer ones, and replay_journal is not set: set it"
                ' to "run" or to the folder of the journal (--journal), or to "off" to continue with the tables of the'
                " checkpoint",
            )
        if state.get(JOURNAL) and is_newest and journaled:
            return _continued(resume, base, topology, [resume.parent / path for path in state[REPLAY]], draws)
        for path in tables:
            if path is not None and not path.exists():
                raise CheckpointError(resume, f"has its tables in {path}, which is missing; {fallback_hint(resume)}")
    number = max((int(one.name.removeprefix("replay-")) for one in replays_in(base)), default=0) + 1
    ours = base / f"replay-{number}"
    parts = [ours if count == 1 else ours / f"shard-{index}" for index in range(count)]
    storages = [
        _storage(part, topology, fallback=path, lost=one.get("lost", {}))
        for part, path, one in zip(parts, tables, draws, strict=True)
    ]
    abandoned = set() if resume is None else {name_of(one) for one in later_than(resume, folder)}
    return ReplayFolders(tuple(storages), ours, journaled, abandoned)


def _continued(
    resume: Path, base: Path, topology: Topology, tables: Sequence[Path], draws: Sequence[dict[str, Any]]
) -> ReplayFolders:
    """The folders of the journal that the checkpoint `resume` is of."""
    storages = []
    for path, one in zip(tables, draws, strict=True):
        before = Path(os.path.normpath(path)).parent
        part = base / before.relative_to(_replay_of(before).parent)
        if not has_tables(part):
            where = f"has its journal in {before}"
            if has_tables(before):
                raise CheckpointError(
                    resume,
                    f"{where}, and this run looks for it in {part}: move it there, or set replay_journal to"
                    " where it is",
                )
            raise CheckpointError(
                resume,
                f'{where}, and {part} has none: move it there, or set replay_journal to "off" to continue with'
                " the tables of a checkpoint",
            )
        storages.append(_storage(part, topology, continues=True, samples=one["samples"], lost=one["lost"]))
    assert storages[0].journal is not None
    return ReplayFolders(tuple(storages), _replay_of(Path(storages[0].journal.path)), journaled=True)


def journal_hint(path: Path) -> str:
    """The remedy if the journal of the checkpoint at `path` is damaged; empty if it has no journal."""
    state = load(path)
    if not state.get(JOURNAL):
        return ""
    parts = [str((path.parent / one).parent) for one in state[REPLAY]]
    return (
        f"reverie checkpoint repair FOLDER --to NEW saves the undamaged part of its journal ({', '.join(parts)}): move"
        " NEW to its place, and resume"
    )


def _storage(part: Path, topology: Topology, *, fallback: Path | None = None, **options: Any) -> ReplayStorage:
    run, journaled = topology.run, has_journal(topology.run)
    # More than a run keeps: the tables are written before the checkpoint that names them. Without a journal the newest
    # ones stay, too, if that cannot be written, see `remove_unnamed`.
    keep = KEPT + (1 if journaled else 2)
    checkpointer = DefaultCheckpointer(part, fallback_checkpoint_path=fallback, keep=keep)
    sync: Any = run.replay_journal_sync or "interval"
    journal = Journal(checkpointer.path, sync=sync) if journaled else None
    return ReplayStorage(checkpointer, journal, **options)


def _own_part(place: Path, folder: Path, topology: Topology) -> Path:
    """The part of a folder of journals that belongs to the run whose checkpoints are in `folder`."""
    own = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:8]
    env = re.sub(r"[^\w.-]", "_", topology.env.env_id)
    return place / f"{topology.agent}-{env}-seed-{topology.seed}-{own}"


def _replay_of(path: Path) -> Path:
    """The folder `replay-N` that a folder of tables is, or is in."""
    return path if path.name.startswith("replay-") else path.parent


def named_from(folder: Path, tables: Path) -> str:
    """The path by which a checkpoint in `folder` names tables: a relative one if they are in `folder`, too."""
    relative = os.path.relpath(tables, folder)
    return os.path.abspath(tables) if Path(relative).parts[0] == os.pardir else relative


def remove_unnamed(folder: Path, replays: ReplayFolders) -> None:
    """Remove tables that no checkpoint in `folder` names, except the newest of each server.

    The servers of the run wrote them for checkpoints that could not be written, or were replaced by others of the same
    step. A server keeps a number of the newest, and so would remove tables that a checkpoint names before these. A
    server that is restarted starts with the newest. Raises OSError. Does nothing with a journal, which runs continue,
    and not these.
    """
    if replays.journaled:
        return
    try:
        named = {(folder / one).resolve() for path in all_in(folder) for one in tables_of(path)}
    except CheckpointError:  # a damaged one: which are its tables is unknown
        return
    for storage in replays.storages:
        if storage.checkpointer is not None:
            written = sorted(Path(storage.checkpointer.path).resolve().glob("*.checkpoint"))
            for one in written[:-1]:
                if one not in named:
                    one.unlink(missing_ok=True)


def remove_replays(folder: Path, current: Path) -> None:
    """Remove the tables that no checkpoint in `folder` names any more, next to it and next to `current`.

    `current` is the folder `replay-N` in use, and stays. Raises OSError, as `checkpoint_files.remove` does.
    """
    needed = {current.resolve()}
    for path in all_in(folder):
        with suppress(CheckpointError):  # a damaged one names nothing
            needed.update(_replay_of((folder / one).parent).resolve() for one in tables_of(path))
    folders = {one.resolve() for one in (folder, current.parent)}
    found = [replay for one in folders for replay in (*one.glob(f"{REMOVED}{REPLAY}-*"), *replays_in(one))]
    remove([one for one in found if one.resolve() not in needed])
