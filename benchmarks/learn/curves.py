"""The pictures of results: learning curves, a picture for each environment, game and group of ablations."""

from __future__ import annotations

import re
from pathlib import Path

from reverie.runners.reports.logs import RunLog

from . import replays
from .row import ABLATIONS, APART, CONTROL, DEFAULTS, LONG, OFFLINE, PARTS, REPLAY, TARGETS, Row
from .rows import BASELINE, ROWS
from .scores import Results, Run


def pictures(results: Results, so_far: Results | None = None) -> dict[str, list[RunLog]]:
    """Curves by the picture that they are drawn in; `so_far` has those of interrupted runs."""
    found: dict[str, list[RunLog]] = {}
    for name, runs in results.items():
        row = ROWS[name]
        if row.group in (APART, DEFAULTS, OFFLINE):
            continue
        title, label = _place(row)
        found.setdefault(title, []).extend(_curve(run, label) for run in runs)
    for name, runs in (so_far or {}).items():
        for run in runs:
            title, label = _place(ROWS[name])
            found.setdefault(title, []).append(_curve(run, f"{label} (unfinished)"))
    for title, drawn in found.items():
        if drawn and title.startswith(ABLATIONS) and not title.endswith(BASELINE.partition("-")[0]):
            drawn.extend(_curve(run, f"{BASELINE}: the preset") for run in results[BASELINE])
    return {title: drawn for title, drawn in found.items() if drawn}


def _place(row: Row) -> tuple[str, str]:
    """The picture of a row's curves, and their name in it."""
    if row.group == REPLAY:
        game, _, way = row.name.removeprefix(f"{REPLAY}-").partition("-")
        return replays.picture(game), way
    if row.group == LONG:
        return replays.LONG_PICTURE, row.agent
    if row.group == PARTS:
        return f"{PARTS}-of-rainbow", row.name.removeprefix(f"{PARTS}-")
    if row.group == CONTROL:
        return f"{CONTROL}-{row.env_id}", row.learner.replace("`", "")
    if row.group == TARGETS:
        return re.sub("[/: ]", "_", row.task), row.name if row.settings else row.agent
    return f"{ABLATIONS}-{row.name.partition('-')[0]}", row.name


def _curve(run: Run, label: str) -> RunLog:
    return RunLog(
        path=Path(),
        agent=label,
        env_id=run["env_id"],
        seed=run["seed"],
        target_return=run["target_return"],
        env_steps=tuple(point[0] for point in run["curve"]),
        returns=tuple(point[1] for point in run["curve"]),
        # A run that stopped at its target counts with the return that confirmed it, as `reverie plot` draws it.
        finished=None if ROWS[run["row"]].until_max_steps else run,
    )
