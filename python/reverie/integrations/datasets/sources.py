"""Data sets on the disk as streams of rows, whatever their format."""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from reverie import _native
from reverie.specs import TensorSpec

__all__ = ["DatasetError", "DatasetSource", "EpisodeRow", "Layout", "RowBlock"]

#: The kind of a row: a step of an episode, or an item of a table.
Layout = Literal["steps", "items"]


class DatasetError(ValueError):
    """A data set is damaged, of another format, or holds what a table or a format cannot; the text has the path."""


class RowBlock(NamedTuple):
    """Consecutive rows of a data set."""

    columns: list[npt.NDArray[Any]]
    """The columns in flattening order, each `[N, ...]`."""
    episodes: npt.NDArray[np.int64] | None = None
    """The episode of each row, `[N]`; the rows of an episode are consecutive. None where rows belong to no episode."""
    priorities: npt.NDArray[np.float64] | None = None
    """The priority of each row's item, `[N]`; None where it is not known."""

    def __len__(self) -> int:
        return len(self.columns[0]) if self.episodes is None else len(self.episodes)

    def part(self, start: int, stop: int) -> RowBlock:
        """The rows from `start` up to `stop`."""
        return RowBlock(
            [column[start:stop] for column in self.columns],
            None if self.episodes is None else self.episodes[start:stop],
            None if self.priorities is None else self.priorities[start:stop],
        )

    def head(self, rows: int) -> RowBlock:
        """The first rows."""
        return self.part(0, rows)


class EpisodeRow(NamedTuple):
    """One row of an episode."""

    data: Any
    """The columns as the nest that the source has, each `[...]`."""
    episode: int
    """The number of the episode within the data set."""
    is_last: bool
    """True in the last row of an episode."""
    priority: float | None
    """The priority of the item that the episode was; None where it is not known."""


class DatasetSource(abc.ABC):
    """A data set on the disk; `open_dataset` makes one.

    A step of reinforcement learning has the columns `obs`, `action`, `reward`, `terminated` and `truncated`, and may
    have others. If an episode has one more row after the step that terminated or truncated it, that row holds the
    episode's last observation, and zeros in its other columns.
    """

    #: The name of the format.
    format: str
    #: The file or folder.
    path: Path
    #: The kind of a row.
    layout: Layout
    #: The form of a row.
    structure: _native.Structure
    #: The dtype and shape of each column in flattening order, without the axis of rows.
    specs: list[TensorSpec]
    #: The number of episodes; None where that is only known after reading all rows, or there are none.
    num_episodes: int | None
    #: True where rows have no number of their episode, which ends where `terminated` or `truncated` is true.
    ends_by_flags: bool = False
    #: The number of rows; None where that is only known after reading them.
    num_rows: int | None

    @abc.abstractmethod
    def blocks(self) -> Iterator[RowBlock]:
        """The rows, in order, a bounded number at a time. Each call begins again.

        Raises:
            DatasetError: for files that are damaged, or whose contents change in the middle.
        """

    @property
    def has_episodes(self) -> bool:
        """True where rows belong to episodes."""
        return self.layout == "steps"

    @property
    def details(self) -> dict[str, str | int | float]:
        """More about the data set, in words of its format."""
        return {}

    def count_episodes(self) -> int | None:
        """The number of episodes; None where rows belong to none. Reads what it needs to count them."""
        return self.num_episodes

    @property
    def size_bytes(self) -> int:
        """The bytes of the files."""
        files = [self.path] if self.path.is_file() else self.path.rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file())

    @property
    def columns(self) -> dict[str, TensorSpec]:
        """The dtype and shape of each column, by its path."""
        return dict(zip(self.structure.paths, self.specs, strict=True))

    @property
    def row_bytes(self) -> int | None:
        """The bytes of a row's arrays; None where a column of text has no fixed width."""
        sizes = [spec.dtype.itemsize * math.prod(shape_of(spec)) for spec in self.specs]
        return None if any(spec.dtype.kind in "SU" for spec in self.specs) else sum(sizes)

    def steps(self) -> Iterator[EpisodeRow]:
        """The rows one at a time.

        Raises:
            DatasetError: as `blocks` does, and where rows belong to no episode.
        """
        if not self.has_episodes:
            raise DatasetError(f"{self.path}: its rows belong to no episode; name the column that numbers them")
        unflatten, number, before = self.structure.unflatten, -1, None
        waiting: tuple[Any, int, float | None] | None = None
        for block in self.blocks():
            assert block.episodes is not None
            priorities = itertools.repeat(None) if block.priorities is None else block.priorities.tolist()
            for episode, priority, *row in zip(block.episodes.tolist(), priorities, *block.columns, strict=False):
                is_first = episode != before
                if waiting is not None:
                    yield EpisodeRow(waiting[0], waiting[1], is_first, waiting[2])
                before, number = episode, number + is_first
                waiting = (unflatten(row), number, priority)
        if waiting is not None:
            yield EpisodeRow(waiting[0], waiting[1], True, waiting[2])


def shape_of(spec: TensorSpec) -> tuple[int, ...]:
    """The shape of a column whose sizes are all known."""
    return tuple(size or 0 for size in spec.shape)


def mismatch(column: npt.NDArray[Any], spec: TensorSpec) -> str | None:
    """How rows `[N, ...]` differ from a spec, in words; None where they do not. Text of any width is the same."""
    same_dtype = column.dtype == spec.dtype or (column.dtype.kind == spec.dtype.kind and column.dtype.kind in "SU")
    if same_dtype and column.shape[1:] == spec.shape:
        return None
    return f"{column.dtype} {list(column.shape[1:])}, before it was {spec.dtype} {list(spec.shape)}"


def flags_of(column: npt.ArrayLike, name: str, path: object, row: int) -> npt.NDArray[np.bool_]:
    """The flags of consecutive rows, `[N]` or `[N, 1]`, as booleans `[N]`; `row` is the number of the first row.

    Raises:
        DatasetError: for a value other than 0 and 1.
    """
    values = np.asarray(column).reshape(-1)
    invalid = np.flatnonzero((values != 0) & (values != 1))
    if len(invalid):
        raise DatasetError(
            f"{path}, row {row + invalid[0]} (from 0): column '{name}' is {values[invalid[0]]!s}, and a flag must be 0"
            " or 1"
        )
    return values.astype(bool)


def nest_of(columns: Mapping[str, Any]) -> dict[str, Any]:
    """A dict of dicts of columns by path, where "/" separates the names.

    Raises:
        DatasetError: where one path goes through another.
    """
    nest: dict[str, Any] = {}
    for path, column in columns.items():
        *folders, name = path.split("/")
        inner = nest
        for folder in folders:
            inner = inner.setdefault(folder, {})
            if not isinstance(inner, dict):
                raise DatasetError(f"column '{path}' lies inside a column '{folder}': rename one of them")
        if name in inner:
            raise DatasetError(f"there are two columns '{path}', or one lies inside the other: rename one of them")
        inner[name] = column
    return nest


def chosen(paths: Sequence[str], columns: Sequence[str] | None, where: object) -> list[int]:
    """The indices of the columns to read: those that are named, and those below a named path; None means all.

    Raises:
        DatasetError: for a name that is not a column.
    """
    if columns is None:
        return list(range(len(paths)))
    for name in columns:
        if not any(path == name or path.startswith(f"{name}/") for path in paths):
            raise DatasetError(f"{where}: there is no column '{name}'; there is {', '.join(map(repr, paths))}")
    return [
        index
        for index, path in enumerate(paths)
        if any(path == name or path.startswith(f"{name}/") for name in columns)
    ]
