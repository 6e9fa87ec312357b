"""The view of several runs on a terminal: a line for each, read from their logs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from reverie.cli.common import duration, of_target

TAIL_BYTES = 1 << 16
"""The end of a log that is read: the progress of a few minutes."""


@contextmanager
def shown(folders: Mapping[str, Path], *, as_json: bool, quiet: bool) -> Iterator[None]:
    """Show the state of the runs in these folders, by name, while the block runs; only on a terminal.

    The block may add folders and remove them.
    """
    console = Console(stderr=True, highlight=False)
    # The view passes what is printed to stdout on to its own console.
    if quiet or not console.is_terminal or not (as_json or sys.stdout.isatty()):
        yield
        return
    with Live(console=console, get_renderable=lambda: _view(folders), refresh_per_second=1, transient=True):
        yield


def _view(folders: Mapping[str, Path]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column()
    for name, folder in list(folders.items()):
        grid.add_row(name, state(folder))
    return grid


def state(folder: Path) -> str:
    """The state of the run in a folder, by its log, in one line."""
    from reverie.runners.reports.logs import LOG

    try:
        with (folder / LOG).open("rb") as file:
            first = file.readline()
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            tail = file.read().splitlines(keepends=True)[0 if size <= TAIL_BYTES else 1 :]
    except OSError:
        return "has not begun"
    lines = [line for line in map(_line, tail) if line is not None]
    started, progress = _line(first), [line for line in lines if line.get("event") == "progress"]
    if any(line.get("event") == "finished" for line in lines):
        return "has ended"
    if started is None or not progress:
        return "is starting"
    most, last = started["run"]["max_env_steps"], progress[-1]
    text = f"{last['env_steps']:,} of at most {most:,} steps"
    returns = [line["mean_return"] for line in lines if line.get("event") == "evaluated"]
    if returns:
        text += f", greedy return {returns[-1]:.1f}{of_target(started['target_return'])}"
    steps, seconds = (last[name] - progress[0][name] for name in ("env_steps", "seconds"))
    if steps > 0 and seconds > 0:
        text += f", at most {duration((most - last['env_steps']) * seconds / steps)} left"
    return text


def _line(text: bytes) -> dict[str, Any] | None:
    """The object of a line; None for a line that is still being written."""
    if not text.endswith(b"\n"):
        return None
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None
