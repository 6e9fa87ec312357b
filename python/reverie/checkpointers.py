"""Checkpointers: where a server keeps its checkpoints, how many, and when it takes them.

They are plain options: a checkpointer can be pickled, and given to one server after another.
"""

from __future__ import annotations

import abc
import datetime
import logging
import os
from collections.abc import Iterable
from typing import Literal, final

from reverie import _checks, _native
from reverie.tables import Table

__all__ = ["CheckpointerBase", "DefaultCheckpointer", "TempDirCheckpointer", "default_checkpointer"]

_LOG = logging.getLogger("reverie")

#: Whose options a restored table has.
RestoreConfig = Literal["constructor", "checkpoint"]


class CheckpointerBase(abc.ABC):
    """What a server asks of a checkpointer.

    Args:
        keep: the newest so many checkpoints stay, at least 1.
        max_age: of these, those that are at most so many seconds old; None for any age. The newest always stays.
        period: the server takes a checkpoint every so many seconds, in a thread that ends with it; None takes them
            only when `client.checkpoint()` asks.
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
    """Keeps checkpoints in a folder, and restores the newest when a server starts with it.

    Args:
        path: the folder. One server at a time writes to it.
        group: must be empty: files belong to the user and the group of the process.
        fallback_checkpoint_path: one checkpoint's own path, restored while `path` has none.
        keep, max_age, period: see `CheckpointerBase`.

    Raises:
        ValueError: for an empty `path`, a `group`, or numbers that mean nothing.
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
            raise ValueError("path must name a folder, got an empty one")
        if group:
            raise ValueError(f"group must be empty, got {group!r}: set the group of the folder where you need one")
        # What a server finds there must not depend on where its process is.
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
    """Keeps checkpoints in a temporary folder of its own, which is made at the first checkpoint and never removed."""

    def __init__(self, *, keep: int = 2, max_age: float | None = None, period: float | None = None) -> None:
        super().__init__(keep=keep, max_age=max_age, period=period)
        import tempfile  # Here: it takes as long to import as the rest of this module.

        self._path = os.path.join(tempfile.gettempdir(), f"reverie-checkpoints-{os.urandom(8).hex()}")

    @property
    def path(self) -> str:
        """The folder of the checkpoints; the first checkpoint makes it."""
        return self._path

    def __repr__(self) -> str:
        return f"TempDirCheckpointer(path={self._path!r}{_options(self)})"


def default_checkpointer(group: str | None = None) -> CheckpointerBase:
    """The checkpointer of a server that is given none: a temporary folder."""
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


def newest(checkpointer: CheckpointerBase) -> str | None:
    """The checkpoint that a server with this checkpointer starts from; None for an empty start."""
    return _native.latest_checkpoint(checkpointer.path) or checkpointer.fallback_checkpoint_path


def as_saved(tables: Iterable[Table], path: str) -> list[Table]:
    """The tables as a checkpoint has them: its options for those of the same name, and its other tables behind them.

    Selectors keep the seeds that they were given here, which no checkpoint has.
    """
    saved = {table["name"]: table for table in _native.describe_checkpoint(path)["tables"]}
    known = [Table._described(saved.pop(table.name), table) if table.name in saved else table for table in tables]
    return known + [Table._described(table) for table in saved.values()]


def start(checkpointer: CheckpointerBase, server: _native.Server, checkpoint: str | None) -> _native.Checkpoints:
    """Begins the checkpoints of a server that just started: restores one, and logs that in one line."""
    checkpoints = _native.Checkpoints(server, checkpointer.path, keep=checkpointer.keep, max_age=checkpointer.max_age)
    if checkpoint is not None:
        restored = checkpoints.restore(checkpoint)
        taken = datetime.datetime.fromtimestamp(restored["created"]).isoformat(" ", "seconds")
        sizes = ", ".join(f"{size} items of '{table}'" for table, size in restored["tables"])
        text = f"restored {restored['path']}, taken {taken}: {sizes or 'no items'}"
        differences = restored["differences"]
        level = logging.WARNING if differences else logging.INFO
        _LOG.log(level, "%s", "; ".join([text, *differences]))
    if checkpointer.period is not None:
        checkpoints.start(checkpointer.period)
    return checkpoints
