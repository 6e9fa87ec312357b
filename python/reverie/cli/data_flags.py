"""The arguments and flags of `reverie data`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from reverie.cli.common import LAST_LINE_JSON, flags_of
from reverie.integrations.datasets.exporting import OPTIONS


class DatasetFormat(StrEnum):
    """The formats of data sets."""

    parquet = "parquet"
    minari = "minari"
    lerobot = "lerobot"


class RowLayout(StrEnum):
    """The form that the rows of a data set take in a table."""

    auto = "auto"
    items = "items"
    transitions = "transitions"
    sequences = "sequences"
    episodes = "episodes"


_place, _limits, _what = (flags_of(group) for group in ("The table", "Limits", "Columns and items"))

Dataset = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="A Parquet file, a folder of them, or the folder of a Minari or LeRobot data set."
    ),
]
Target = Annotated[Path, typer.Argument(metavar="PATH", help="The new file (Parquet) or folder.")]
From = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="HOST:PORT of a server, a folder of checkpoints or of a journal, or one checkpoint."
    ),
]
Server = Annotated[str | None, _place("--server", metavar="ADDR", help="HOST:PORT of the server.")]
Checkpoints = Annotated[
    Path | None,
    _place(
        metavar="FOLDER",
        help="Write a checkpoint to FOLDER, after the newest one there, instead of inserting into a server, for"
        " `reverie serve --checkpoints FOLDER`.",
    ),
]
Table = Annotated[str, _place(metavar="NAME", help="Name of the table.")]
ImportTimeout = Annotated[
    float | None,
    _place(min=0, metavar="SECONDS", help="Seconds to wait for the server, and for the table's rate limiter."),
]
ExportTimeout = Annotated[float | None, _place(min=0, metavar="SECONDS", help="Seconds to wait for each response.")]
InFormat = Annotated[DatasetFormat | None, _what("--format", help="Format of PATH (default: found by its files).")]
OutFormat = Annotated[DatasetFormat, _what("--format", help="Format of PATH.")]
Columns = Annotated[list[str] | None, _what("--column", metavar="NAME", help="Only this column; repeat it for more.")]
Rename = Annotated[list[str] | None, _what(metavar="OLD=NEW", help="Another name for a column; repeat it for more.")]
Episode = Annotated[str | None, _what(metavar="NAME", help="Column that numbers the episodes of a Parquet file.")]
AsWhat = Annotated[
    RowLayout,
    _what("--as", help="Kind of items; auto: the kind with which the rows were exported, otherwise episodes or items."),
]
NStep = Annotated[int, _what(min=1, metavar="N", help="Steps of a transition.")]
Discount = Annotated[float, _what(min=0, max=1, metavar="X", help="Discount of transitions.")]
Length = Annotated[int | None, _what(min=1, metavar="N", help="Steps of a sequence.")]
Period = Annotated[int | None, _what(min=1, metavar="N", help="Steps between two sequences (default: --length).")]
BurnIn = Annotated[int, _what(min=0, metavar="N", help="Steps of a sequence before those to learn from.")]
Priority = Annotated[float | None, _what(metavar="X", help="Priority of every item.")]
Option = Annotated[
    list[str] | None,
    _what(
        "--option",
        metavar="NAME=VALUE",
        help="An option of the format: parquet compression; minari environment, data_format; lerobot fps, task,"
        " robot_type.",
    ),
]
MaxBytes = Annotated[int | None, _limits(min=1, metavar="BYTES", help="Stop before more bytes of arrays than this.")]
MaxSteps = Annotated[int | None, _limits(min=1, metavar="N", help="Stop after N rows.")]
MaxEpisodes = Annotated[int | None, _limits(min=1, metavar="N", help="Stop after N episodes.")]
Json = Annotated[bool, typer.Option("--json", help=LAST_LINE_JSON)]


def pairs(given: list[str] | None, flag: str) -> dict[str, str]:
    """The values of a flag `NAME=VALUE`.

    Raises:
        ValueError: for one without "=".
    """
    found = {}
    for text in given or ():
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise ValueError(f"{flag} must be NAME=VALUE, got {text!r}")
        found[name] = value
    return found


def options_of(format: DatasetFormat, given: list[str] | None) -> dict[str, Any]:
    """The options of a format.

    Raises:
        ValueError: for one that the format does not have, or a missing one that it needs.
    """
    known = OPTIONS[format.value]
    options: dict[str, Any] = dict(pairs(given, "--option"))
    for name in options:
        if name not in known:
            raise ValueError(f"--option {name}: {format} has the options {', '.join(known)}")
    if format is DatasetFormat.lerobot:
        if "fps" not in options:
            raise ValueError("lerobot needs the frames in a second: --option fps=10")
        try:
            options["fps"] = float(options["fps"])
        except ValueError:
            raise ValueError(f"--option fps must be a number, got {options['fps']!r}") from None
    return options
