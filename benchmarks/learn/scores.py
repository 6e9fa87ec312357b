"""The results that are kept, one file for each row and seed, and what is read off them."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reverie.runners.reports.scores import bootstrap_interval, interquartile_mean

from .row import SEEDS, Row
from .rows import ROWS

EPISODES = 100
"""Episodes that score the last weights of every run: those of `reverie eval`, which no run plays."""
Run = dict[str, Any]
Results = dict[str, list[Run]]


def read(folder: Path) -> Results:
    """Results by row, in the rows' order, seeds in order.

    A row has seeds that chose nothing (`SEEDS`) or others, never both: the larger set, and of equal ones the first.
    Files of other settings than the row's, but for the device, are left out.
    """
    found: Results = {}
    for name in ROWS:
        paths = sorted((folder / name).glob("seed-*.json"), key=lambda path: int(path.stem[5:]))
        runs = [run for run in map(_load, paths) if own_settings(run) == list(ROWS[name].settings)]
        fresh = [run for run in runs if run["seed"] in SEEDS]
        others = [run for run in runs if run["seed"] not in SEEDS]
        found[name] = fresh if len(fresh) >= len(others) else others
    return found


def _load(path: Path) -> Run:
    run: Run = json.loads(path.read_text())
    return run


def own_settings(run: Run) -> list[str]:
    """The settings of a run that are not the preset's, but for the device."""
    return [setting for setting in run["settings"] if not setting.startswith("device=")]


def last_weights(run: Run) -> tuple[float, int]:
    """The mean return of a run's last weights, and of how many episodes: those that decided nothing, if played."""
    if "score" in run:
        return run["score"]["mean_return"], run["score"]["num_episodes"]
    return run["mean_return"], run["num_episodes"]


def of_last_weights(runs: Sequence[Run]) -> list[float]:
    """The mean return of the last weights of each run."""
    return [last_weights(run)[0] for run in runs]


def reached(run: Run) -> bool:
    """Whether a run reached its target: confirmed it, or has it at the end of a run that does not stop there."""
    if ROWS[run["row"]].until_max_steps:
        return last_weights(run)[0] >= run["target_return"]
    return bool(run["confirmed"])


def steps_to_target(runs: Sequence[Run]) -> list[float]:
    """Environment steps until the target was confirmed, sorted; infinity for runs that did not reach it.

    Runs that do not stop at their target have all their steps.
    """
    return sorted(float(run["env_steps"]) if reached(run) else math.inf for run in runs)


def median_steps(runs: Sequence[Run]) -> float:
    """The median over all runs, those that did not reach the target included: infinity if they are the half."""
    return statistics.median_high(steps_to_target(runs))


def mean_of_curve(row: Row, run: Run, points: Sequence[int] = ()) -> float:
    """The greedy return averaged over `points`, or all of `row.points`, interpolated between evaluations."""
    steps, returns = np.asarray(run["curve"], dtype=np.float64).T
    return float(np.interp(points or row.points, steps, returns).mean())


def mean(values: Sequence[float]) -> float:
    """The interquartile mean; of fewer than five runs the plain one."""
    return statistics.mean(values) if len(values) < 5 else interquartile_mean(values)


def score(values: Sequence[float]) -> str:
    """`mean` and, of five runs and more, its interval."""
    if len(values) < 5:
        return f"{mean(values):.1f}"
    low, high = bootstrap_interval(values)
    return f"{mean(values):.1f} [{low:.1f}, {high:.1f}]"


def mark(runs: Sequence[Run]) -> str:
    """Marks scores of fewer episodes, or of those that ended the runs that reached their target."""
    return "" if all("score" in run or _as_good(run) for run in runs) else " *"


def _as_good(run: Run) -> bool:
    return ROWS[run["row"]].until_max_steps and run["num_episodes"] >= EPISODES


def seeds(runs: Sequence[Run]) -> str:
    """The seeds of a row, for tables."""
    numbers = [run["seed"] for run in runs]
    if len(numbers) > 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def where(runs: Sequence[Run]) -> str:
    """The processors of a row, and the days on which it was run."""
    days = sorted({run["date"][:10] for run in runs})
    machines = sorted({run["machine"]["cpu"].replace("(R)", "").partition(" @")[0] for run in runs})
    return f"{', '.join(machines)}; {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "")
