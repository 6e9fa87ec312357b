"""Export: the items of a table become files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from reverie.client import Client
from reverie.integrations.datasets.reports import Budget, Progress, TransferReport
from reverie.integrations.datasets.sources import DatasetError, Layout, RowBlock
from reverie.integrations.datasets.tables import TableReader
from reverie.specs import TensorSpec

__all__ = ["Format", "export_table", "open_writer"]

#: The formats of data sets.
Format = Literal["parquet", "minari", "lerobot"]
#: The options that each format takes in addition to the columns.
OPTIONS: dict[Format, tuple[str, ...]] = {
    "parquet": ("compression",),
    "minari": ("environment", "data_format"),
    "lerobot": ("fps", "task", "robot_type"),
}


def export_table(
    client: Client,
    table: str,
    path: str | Path,
    *,
    format: Format = "parquet",
    columns: Sequence[str] | None = None,
    max_bytes: int | None = None,
    max_steps: int | None = None,
    max_episodes: int | None = None,
    timeout: float | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> TransferReport:
    """Writes the items that a table has now to a new file or folder, in the order of their insertion.

    It counts as no sample and waits for no rate limiter; other calls go on meanwhile. Items that leave the table before
    they are read are counted in `left_out`. A few MiB are in memory at a time, and for Minari and LeRobot an episode.

    Args:
        client: of the server, or of one in this process.
        table: the table.
        path: the file (Parquet) or folder, which must not exist. It has its name only once it is complete.
        format: "parquet" takes every table: rows are steps where items are sequences or episodes, else items, with
            their priorities. "minari" and "lerobot" take tables of episodes.
        columns: the columns to write, by their paths; None means all.
        max_bytes, max_steps, max_episodes: the export ends before the item (`max_bytes` and `max_steps` of items
            without steps: before the row) that would exceed this. Bytes are those of the arrays.
        timeout: seconds for each call to the server.
        progress: called with the report so far, after each block of rows.
        options: of the format. Parquet: `compression`. Minari: `environment`, `data_format`. LeRobot: `fps`, `task`,
            `robot_type`.

    Returns:
        the numbers of items, rows and bytes.

    Raises:
        DatasetError: for an empty table, or one that the format cannot hold.
        FileExistsError: something is at the path.
        UnknownTableError, DeadlineExceededError, ClosedError, OSError. No file is left then.
    """
    if format not in get_args(Format):
        raise ValueError(f"format must be one of {', '.join(map(repr, get_args(Format)))}, got {format!r}")
    path, budget, started = Path(path), Budget(max_bytes, max_steps, max_episodes), time.monotonic()
    if path.exists():
        raise FileExistsError(17, "exists already; name another file or folder", str(path))
    reader = TableReader(client, table, columns=columns, timeout=timeout)
    as_ = "episodes" if reader.layout == "steps" else "items"
    if reader.layout == "items" and max_episodes is not None:
        raise ValueError(f"max_episodes is for tables of episodes or sequences; the items of '{table}' have no steps")
    report = TransferReport(str(path), format, table, as_)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_writer(format, path, reader.like, reader.specs, reader.layout, options) as writer:
        for block in _within(reader, budget, report):
            if format == "parquet":
                writer.write(block)
            else:
                writer.write_episode(block.columns)
            report.seconds = time.monotonic() - started
            if progress is not None:
                progress(report)
    report.left_out = reader.num_gone + getattr(writer, "num_left_out", 0)
    report.stopped_by = budget.reached
    report.seconds = time.monotonic() - started
    if progress is not None:
        progress(report)
    return report


def open_writer(
    format: Format, path: Path, like: Any, specs: Sequence[TensorSpec], layout: Layout, options: dict[str, Any]
) -> AbstractContextManager[Any]:
    """The writer of a format, whose packages are imported only here.

    With the layout "steps" it has `write_episode`, and `path` has its name only once it is closed without an error.
    `like` is a nest of the form of a row, `specs` are those of its columns in flattening order.
    """
    known = OPTIONS[format]
    for name in options:
        if name not in known:
            raise ValueError(f"{name} is not an option of {format}, which has {', '.join(known)}")
    if format == "parquet":
        from reverie.integrations.datasets.parquet import ParquetWriter

        return ParquetWriter(path, like, specs, layout, **options)
    if layout == "items":
        raise DatasetError(
            f"{format} holds episodes, and the items of this table are single rows; fill a table with episode_writer,"
            ' or export format="parquet"'
        )
    if format == "minari":
        from reverie.integrations.datasets.minari import MinariWriter

        return MinariWriter(path, like, specs, **options)
    from reverie.integrations.datasets.lerobot_writer import LeRobotWriter

    return LeRobotWriter(path, like, specs, **options)


def _within(reader: TableReader, budget: Budget, report: TransferReport) -> Iterator[RowBlock]:
    """The rows within the budget, counted; of steps, one item at a time."""
    for block in reader.blocks():
        for part in _items(block):
            size, rows = sum(column.nbytes for column in part.columns), len(part)
            if part.episodes is None:
                part = part.head(budget.rows(rows, size))
            elif budget.rows(rows, size, 1) < rows:
                return
            if not len(part):
                return
            report.items += len(part) if part.episodes is None else 1
            report.episodes += part.episodes is not None
            report.rows += len(part)
            report.size_bytes += size * len(part) // rows
            yield part
            if len(part) < rows:
                return


def _items(block: RowBlock) -> Iterator[RowBlock]:
    """The parts of a block that belong to one item each; the block itself where rows are items."""
    if block.episodes is None:
        yield block
        return
    borders = np.flatnonzero(np.diff(block.episodes)) + 1
    for start, stop in zip([0, *borders], [*borders, len(block)], strict=True):
        yield block.part(start, stop)
