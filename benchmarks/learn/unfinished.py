"""Curves of runs that were interrupted: published as far as they go, until the run is finished.

Only of rows that are trained to their last step and compared by their curves, some of which take hours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import runs
from .row import CONTROL, LONG, PARTS, REPLAY, Row
from .rows import ROWS
from .scores import Results, Run, own_settings

PUBLISHED = (CONTROL, PARTS, REPLAY, LONG)
"""Groups of rows whose curves are published before their end."""


def name_of(seed: int) -> str:
    """The name of the file of an interrupted run, which is next to those of finished ones."""
    return f"unfinished-{seed}.json"


def collect(results: Path, folders: Path) -> None:
    """Write the curves so far of the interrupted runs in `folders`, and remove those of runs that are finished.

    A curve replaces a shorter one. `folders` has a folder for each row, and in it one for each seed.
    """
    for path in results.glob("*/unfinished-*.json"):
        if path.with_name(path.name.replace("unfinished", "seed")).exists():
            path.unlink()
    for row, seed, folder in _interrupted(results, folders):
        curve = runs.curve_so_far(row, folder)
        path = results / row.name / name_of(seed)
        known = json.loads(path.read_text())["env_steps"] if path.exists() else 0
        if curve and curve[-1][0] > known:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(runs.so_far(row, seed, curve)) + "\n")


def _interrupted(results: Path, folders: Path) -> Iterator[tuple[Row, int, Path]]:
    for row in ROWS.values():
        if row.group in PUBLISHED:
            for folder in sorted((folders / row.name).glob("seed-*")):
                if not (results / row.name / f"{folder.name}.json").exists():
                    yield row, int(folder.name.removeprefix("seed-")), folder


def read(results: Path) -> Results:
    """Unfinished runs by row, in the rows' order, seeds in order."""
    found: Results = {}
    for name, row in ROWS.items():
        paths = sorted((results / name).glob("unfinished-*.json"), key=lambda path: int(path.stem.partition("-")[2]))
        loaded: list[dict[str, Any]] = [json.loads(path.read_text()) for path in paths]
        found[name] = [run for run in loaded if own_settings(run) == list(row.settings)]
    return found


def cells(row: Row, run: Run) -> list[str]:
    """Cells of a table whose heads are seeds, steps, mean of the curve, last weights."""
    of = f"{run['env_steps'] / 1000:,.0f} k of {row.by / 1000:,.0f} k"
    return [f"{run['seed']}, unfinished", of, "-", f"last evaluation: {run['curve'][-1][1]:.1f}"]
