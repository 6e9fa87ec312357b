"""Checkpointers: where a server keeps its checkpoints, how many it keeps, and when it takes them.

A checkpointer is a plain option: it can be pickled, and used by one server after another.
"""

from __future__ import annotations

import abc
import datetime
import os
from collections.abc import Iterable
from typing import Literal, final

from reverie import _checks, _native
from reverie._log import logger
from reverie.journal import Journal
from reverie.tables import Table

__all__ = ["CheckpointerBase", "DefaultCheckpointer", "TempDirCheckpointer", "default_checkpointer"]


#: The source of a restored table's options.
RestoreConfig = Literal["constructor", "checkpoint"]


class CheckpointerBase(abc.ABC):
    """The base class of checkpointers.

    Args:
        keep: the number of checkpoints to keep, at least 1; older ones are removed.
        max_age: the age in seconds at which a checkpoint is removed; None means no limit. The newest is always kept.
        period: seconds between checkpoints, which a thread of the server takes; None takes them only at
            `client.checkpoint()`.
    """

    keep: int
    max_age: float | None
    period: float | None

    def __init__(self, *, keep: int = 2, max_age: float | None = None, period: float | None = None) -> None:
        self.keep = _checks.count("keep", keep, 1)
        self.max_age = None if max_age is None else _seconds("max_age", max_age)
        self.period = None if period is None else _seconds("period", period)

    @property
    @abc.abstractmethod
    def path(self) -> str:
        """The folder of the checkpoints; the first checkpoint makes it."""

    @property
    def fallback_checkpoint_path(self) -> str | None:
        """The checkpoint that is restored while `path` has none."""
        return None


@final
class DefaultCheckpointer(CheckpointerBase):
    """Keeps checkpoints in a folder; a server that starts with it restores the newest.

    Args:
        path: the folder. One server at a time writes to it.
        group: must be empty: files belong to the user and the group of the process.
        fallback_checkpoint_path: one checkpoint's own path, restored while `path` has none.
        keep, max_age, period: see `CheckpointerBase`.

    Raises:
        ValueError: for an empty `path`, a `group`, or invalid numbers.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        group: str = "",
        fallback_checkpoint_path: str | os.PathLike[str] | None = None,
        *,
        keep: int = 2,
        max_age: float | None = None,
        period: float | None = None,
    ) -> None:
        super().__init__(keep=keep, max_age=max_age, period=period)
        if not os.fspath(path):
            raise ValueError("path must be the path of a folder, got an empty one")
        if group:
            raise ValueError(f"group must be empty, got {group!r}: set the group of the folder where you need one")
        # Absolute, so that it is the same folder in a process with another working directory.
        self._path = os.path.abspath(path)
        fallback = fallback_checkpoint_path
        self._fallback = None if fallback is None else os.path.abspath(fallback)

    @property
    def path(self) -> str:
        """The folder of the checkpoints; the first checkpoint makes it."""
        return self._path

    @property
    def fallback_checkpoint_path(self) -> str | None:
        """The checkpoint that is restored while `path` has none."""
        return self._fallback

    def __repr__(self) -> str:
        fallback = "" if self._fallback is None else f", fallback_checkpoint_path={self._fallback!r}"
        return f"DefaultCheckpointer({self._path!r}{fallback}{_options(self)})"


@final
class TempDirCheckpointer(CheckpointerBase):
    """Keeps checkpoints in a new temporary folder, which the first checkpoint makes and nothing removes."""

    def __init__(self, *, keep: int = 2, max_age: float | None = None, period: float | None = None) -> None:
        super().__init__(keep=keep, max_age=max_age, period=period)
        import tempfile  # Not at the top: its import takes as long as the rest of this module.

        self._path = os.path.join(tempfile.gettempdir(), f"reverie-checkpoints-{os.urandom(8).hex()}")

    @property
    def path(self) -> str:
        """The folder of the checkpoints; the first checkpoint makes it."""
        return self._path

    def __repr__(self) -> str:
        return f"TempDirCheckpointer(path={self._path!r}{_options(self)})"


@final
class FolderCopy(CheckpointerBase):
    """Starts a server with what one would have that starts in `folder`, where nothing changes: `reverie data export`.

    That is the newest checkpoint there, and the journal after it. Checkpoints go to the folder `path`.

    Raises:
        FileNotFoundError: the folder has no checkpoint.
    """

    def __init__(self, path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
        super().__init__()
        self._path = os.path.abspath(path)
        newest = _native.latest_checkpoint(os.path.abspath(folder))
        if newest is None:
            raise FileNotFoundError(2, "there is no checkpoint", os.fspath(folder))
        self._newest = newest

    @property
    def path(self) -> str:
        """The folder of checkpoints that the server takes."""
        return self._path

    @property
    def fallback_checkpoint_path(self) -> str:
        """The checkpoint, which the journal continues."""
        return self._newest


def default_checkpointer(group: str | None = None) -> CheckpointerBase:
    """The checkpointer of a server without one: a temporary folder.

    Raises:
        ValueError: for a group, which has no effect on it.
    """
    if group:
        raise ValueError(f"group must be empty, got {group!r}: set the group of the folder where you need one")
    return TempDirCheckpointer()


def _seconds(name: str, value: float) -> float:
    value = _checks.number(name, value)
    if not value > 0:
        raise ValueError(f"{name} must be a number of seconds above 0, got {value}")
    return value


def _options(checkpointer: CheckpointerBase) -> str:
    return f", keep={checkpointer.keep}, max_age={checkpointer.max_age}, period={checkpointer.period}"


def folder_of(checkpointer: CheckpointerBase, journal: Journal | None) -> _native.CheckpointFolder:
    """The folder of a new server's checkpoints. That of a journal is locked before anything in it is read.

    Otherwise data that another server acknowledged after the read would be lost.
    """
    return _native.CheckpointFolder(
        checkpointer.path, keep=checkpointer.keep, max_age=checkpointer.max_age, hold=journal is not None
    )


def as_saved(tables: Iterable[Table], path: str) -> list[Table]:
    """The tables with the options that a checkpoint has for them, followed by the checkpoint's other tables.

    The seeds of the selectors stay: a checkpoint does not have them.
    """
    saved = {table["name"]: table for table in _native.describe_checkpoint(path)["tables"]}
    known = [Table._described(saved.pop(table.name), table) if table.name in saved else table for table in tables]
    return known + [Table._described(table) for table in saved.values()]


def of_journal(journal: Journal, checkpointer: CheckpointerBase | None) -> CheckpointerBase:
    """The checkpointer of a server with this journal, whose folder it shares.

    Raises:
        ValueError: for a checkpointer of another folder.
    """
    if checkpointer is None:
        return DefaultCheckpointer(journal.path, period=journal.checkpoint_period)
    if os.path.realpath(checkpointer.path) != os.path.realpath(journal.path):
        raise ValueError(
            f"a journal and its checkpoints are in one folder: the journal's is {journal.path!r}, the other's is "
            f"{checkpointer.path!r}"
        )
    return checkpointer


def start(
    checkpoints: _native.Checkpoints,
    checkpointer: CheckpointerBase,
    checkpoint: str | None,
    journal: Journal | None,
    restore_config: RestoreConfig,
    *,
    listens: bool,
) -> None:
    """Starts the checkpoints of a new server: restores `checkpoint` or a journal, and logs that in one line.

    Draws that clients held when the journal ended wait for these clients if the server `listens`.
    """
    restored = None
    if journal is not None:
        restored = checkpoints.recover(saved_limits=restore_config == "checkpoint", holds_leases=listens)
    if restored is None and checkpoint is not None:
        if isinstance(checkpointer, FolderCopy):
            restored = checkpoints.recover_copy(checkpoint, saved_limits=restore_config == "checkpoint")
        else:
            restored = checkpoints.restore(checkpoint)
    if restored is not None:
        taken = datetime.datetime.fromtimestamp(restored["created"]).isoformat(" ", "seconds")
        sizes = ", ".join(f"{size} items of '{table}'" for table, size in restored["tables"])
        after = f", and {restored['commits']} commits of the journal after it" if restored.get("commits") else ""
        text = f"restored {restored['path']}{after}, of {taken}: {sizes or 'no items'}"
        differences = restored["differences"]
        if restored.get("torn") is not None:
            path, offset = restored["torn"]
            differences = [*differences, f"{path} ends at byte {offset} within a record that was never acknowledged"]
        report = logger().warning if differences else logger().info
        report("%s", "; ".join([text, *differences]))
    if journal is not None:
        checkpoints.begin_journal(journal.sync, journal.interval, journal.max_unsynced_bytes)
    log_bytes = None if journal is None else journal.checkpoint_bytes
    if checkpointer.period is not None or log_bytes is not None:
        checkpoints.start(period=checkpointer.period, log_bytes=log_bytes)
