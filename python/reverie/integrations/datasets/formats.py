"""The formats of data sets, and which of them a path has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from reverie.integrations.datasets.exporting import Format
from reverie.integrations.datasets.sources import DatasetError, DatasetSource

__all__ = ["format_of", "open_dataset"]


def open_dataset(
    path: str | Path,
    *,
    format: Format | None = None,
    columns: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    episode: str | None = None,
) -> DatasetSource:
    """Opens a data set on the disk. Reads its description, and of some files the first row.

    Args:
        path: a Parquet file or a folder of them, or the folder of a Minari or LeRobot data set.
        format: "parquet", "minari" or "lerobot"; None finds it by the files.
        columns: the columns to read, by their new names; None means all. A name stands for all below it.
        rename: new names by the names in the file; a "/" in a new name makes a nest. For Parquet and LeRobot.
        episode: Parquet of other programs: the column that numbers the episodes.

    Raises:
        DatasetError: for another format, damaged files, or columns that no array can hold.
        FileNotFoundError.
        ImportError: the format's package is missing; the text has the command that installs it.
        ValueError: for an option that the format does not have.
    """
    path = Path(path)
    format = format_of(path) if format is None else format
    if format not in get_args(Format):
        raise ValueError(f"format must be one of {', '.join(map(repr, get_args(Format)))}, got {format!r}")
    if episode is not None and format != "parquet":
        raise ValueError(f"episode= is for Parquet files; a {format} data set numbers its episodes")
    if format == "parquet":
        from reverie.integrations.datasets.parquet import ParquetSource

        return ParquetSource(path, columns=columns, rename=rename, episode=episode)
    if format == "minari":
        from reverie.integrations.datasets.minari import MinariSource

        if rename:
            raise ValueError("rename= is for Parquet and LeRobot; the columns of Minari have their names already")
        return MinariSource(path, columns=columns)
    from reverie.integrations.datasets.lerobot import LeRobotSource

    return LeRobotSource(path, columns=columns, rename=rename)


def format_of(path: Path) -> Format:
    """The format of what lies at a path.

    Raises:
        FileNotFoundError, and DatasetError for any other format.
    """
    path.stat()
    if path.is_file():
        with path.open("rb") as file:
            if path.suffix == ".parquet" or file.read(4) == b"PAR1":
                return "parquet"
    elif (path / "meta" / "info.json").is_file():
        return "lerobot"
    elif any((folder / "metadata.json").is_file() for folder in (path, path / "data")):
        return "minari"
    elif next(path.rglob("*.parquet"), None) is not None:
        return "parquet"
    raise DatasetError(
        f"{path}: not a data set: neither Parquet, nor a folder of Minari (metadata.json) or LeRobot (meta/info.json);"
        " write other data as Parquet (the guide 'Data sets')"
    )
