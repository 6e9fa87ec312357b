"""`reverie plot`: learning curves of runs, compared."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from reverie.cli.common import outcome, print_error, refuse, require_agents
from reverie.cli.curve import marker

if TYPE_CHECKING:
    from reverie.runners.reports.logs import RunLog

COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#718096")
STYLES = ("-", "--", ":", "-.")
"""Line styles that distinguish curves when there are more curves than colours."""
NAMED = 3
"""Settings that a legend names; more are counted."""


class XAxis(enum.Enum):
    """The x-axis of the curves."""

    steps = "steps"
    seconds = "seconds"


def plot(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run folders, folders of several runs as written by --seeds, or log.jsonl files."),
    ],
    out: Annotated[Path, typer.Option(help="File for the plot, a .png.")] = Path("runs/curves.png"),
    over: Annotated[
        XAxis, typer.Option(help="Environment steps, or seconds since the start of the run.")
    ] = XAxis.steps,
) -> None:
    """Draw the greedy returns of RUNS: a panel for each environment, a colour for each agent and its settings.

    Each run is a thin line. Runs that differ only in the seed form a group: a thick line is their median, and a band
    lies between the lower and the upper quartile. The band ends where the first run of the group ends. A run that ended
    because its target was confirmed (a dot) does not end the band: it still counts, with the mean return
    of the confirmation, and the median is pale from there. If runs of an agent differ in settings, the legend shows the
    settings that differ. Images among RUNS are ignored, so that runs/* works twice. Paths without a readable log,
    runs without a greedy evaluation, and a second run of the same agent, settings and seed (the one with fewer steps)
    are left out, with a warning each.

    Exit codes: 0 drawn; 2 a path does not exist, there is nothing to draw, or the plot cannot be written.
    """
    require_agents()
    from reverie.cli import curve

    try:
        curve.check_writable(out)
        drawn = _drawable(_folders(runs))
    except (ValueError, OSError) as error:
        refuse(error)
    try:
        draw(drawn, out, over)
    except OSError as error:
        refuse(error)
    for env_id in sorted({run.env_id for run in drawn}):
        for name, alike in variants([run for run in drawn if run.env_id == env_id]):
            for run in sorted(alike, key=lambda run: run.seed):
                print(summary(run, name.removeprefix(run.agent)))
    print(f"learning curves: {out}")


def _drawable(folders: Sequence[Path]) -> list[RunLog]:
    """The runs with a curve, one for each agent, settings and seed; prints the reason for each that is left out.

    Raises ValueError if none is left.
    """
    from reverie.runners.reports import logs

    read = []
    for folder in folders:
        try:
            read.append(logs.read(folder))
        except (logs.LogError, OSError) as error:
            if len(folders) == 1:
                raise
            print_error(f"{error}; it is left out")
    for run in read:
        if not run.returns:
            print_error(f"log {run.path} has no greedy evaluation yet, and is left out")
    best: dict[tuple[str, ...], RunLog] = {}
    for run in (run for run in read if run.returns):
        key = (run.env_id, run.agent, json.dumps(run.config, sort_keys=True), str(run.seed))
        other = best.setdefault(key, run)
        if other is run:
            continue
        best[key], less = (run, other) if run.env_steps[-1] > other.env_steps[-1] else (other, run)
        print_error(
            f"log {less.path} has the agent, settings and seed {run.seed} of {best[key].path}, which has as many steps"
            " or more, and is left out"
        )
    if not best:
        raise ValueError("nothing to draw: name runs with at least one evaluation")
    return list(best.values())


def _folders(named: list[Path]) -> list[Path]:
    """The runs to read, each once: a folder without a log stands for the runs in it. ValueError for a missing path."""
    from reverie.runners.reports.logs import LOG

    found: dict[Path, Path] = {}
    for path in named:
        if not path.exists():
            raise ValueError(f"{path} does not exist: name a run's folder, or a log.jsonl")
        if path.suffix == ".png" and path.is_file():
            continue
        inner = [] if (path / LOG).exists() else sorted(log.parent for log in path.glob(f"*/{LOG}"))
        for one in inner or [path]:
            log = one / LOG if one.is_dir() else one
            found.setdefault(log.resolve(), one)
    return list(found.values())


def _first_reached(run: RunLog) -> str:
    """The text for when a run reached its target first."""
    target = run.target_return
    if target is None:
        return "no target"
    points = zip(run.env_steps, run.returns, strict=True)
    reached = next((step for step, value in points if value >= target), 0)
    return f"reached {target:g} after {reached:,} steps" if reached else f"never reached {target:g}"


def summary(run: RunLog, settings: str = "") -> str:
    """A run in one line; `settings` are those that other runs do not have, after a comma."""
    first = _first_reached(run)
    if run.finished is None and not run.returns:
        end = "not finished, and never evaluated"
    elif run.finished is None:
        end = f"not finished; last greedy return {run.returns[-1]:.1f} after {run.env_steps[-1]:,} steps"
    else:
        word = outcome(run.finished["confirmed"], run.target_return)
        end = f"{word}: {run.finished['mean_return']:.1f} after {run.finished['env_steps']:,} steps"
    return f"{run.agent} on {run.env_id}{settings}, seed {run.seed}: {first}; {end}"


def band(runs: Sequence[RunLog], over: XAxis = XAxis.steps) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Steps or seconds `[T]`, and there lower quartile, median and upper quartile over the runs, `[3, T]`.

    Points are joined by straight lines. After its end, a run that was confirmed counts with the mean return of that
    confirmation, the return of its last weights. A run that was not confirmed ends the band, since its further course
    is unknown.
    """
    along = [_along(run, over) for run in runs]
    start = max(x[0] for x in along)
    open_ends = [x[-1] for x, run in zip(along, runs, strict=True) if _confirmed_at(run) is None]
    end = min(open_ends, default=max(x[-1] for x in along))
    every = np.unique(np.concatenate(along)).astype(np.float64)
    at = every[(every >= start) & (every <= end)]
    curves = np.stack(
        [np.interp(at, x, run.returns, right=_confirmed_at(run)) for x, run in zip(along, runs, strict=True)]
    )
    return at, np.quantile(curves, [0.25, 0.5, 0.75], axis=0)


def _confirmed_at(run: RunLog) -> float | None:
    """The mean return of the confirmation that ended a run; None for other runs."""
    if run.finished is None or not run.finished["confirmed"]:
        return None
    return float(run.finished["mean_return"])


def _along(run: RunLog, over: XAxis) -> tuple[float, ...]:
    return run.env_steps if over is XAxis.steps else run.seconds


def variants(runs: Sequence[RunLog]) -> list[tuple[str, list[RunLog]]]:
    """Groups runs with the same agent and settings; a group's name is the agent and the settings that differ here."""
    found: list[tuple[str, list[RunLog]]] = []
    for agent in sorted({run.agent for run in runs}):
        alike: dict[str, list[RunLog]] = {}
        for run in runs:
            if run.agent == agent:
                alike.setdefault(json.dumps(run.config, sort_keys=True), []).append(run)
        configs = [own[0].config for own in alike.values()]
        names = sorted({name for config in configs for name in config})
        differ = [name for name in names if any(config.get(name) != configs[0].get(name) for config in configs)]
        more = f", and {len(differ) - NAMED} more" if len(differ) > NAMED else ""
        for own in alike.values():
            words = [f"{name} {own[0].config.get(name, 'not set')}" for name in differ[:NAMED]]
            found.append((", ".join([agent, *words]) + more, own))
    return found


def draw(runs: Sequence[RunLog], path: Path, over: XAxis = XAxis.steps) -> None:
    """Draw the plot. Raises OSError if it cannot be written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    environments = sorted({run.env_id for run in runs})
    figure = Figure(figsize=(8, 4.5 * len(environments)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(environments), squeeze=False)[:, 0]
    for axes, env_id in zip(panels, environments, strict=True):
        _panel(axes, env_id, [run for run in runs if run.env_id == env_id], over)
    figure.savefig(path, dpi=120)


def _panel(axes: Any, env_id: str, runs: Sequence[RunLog], over: XAxis) -> None:
    for index, (name, own) in enumerate(variants(runs)):
        look = {"color": COLOURS[index % len(COLOURS)], "linestyle": STYLES[index // len(COLOURS) % len(STYLES)]}
        for run in own:
            alpha = 0.5 if len(own) > 1 else 1.0
            axes.plot(_along(run, over), run.returns, linewidth=0.7, alpha=alpha, **marker(len(run.returns)), **look)
        label = f"{name}, seed {own[0].seed}"
        if len(own) > 1:
            _draw_band(axes, own, over, look)
            label = f"{name}, median and quartiles of {len(own)} seeds"
        axes.plot([], [], label=label, **look)
    for target in sorted({run.target_return for run in runs if run.target_return is not None}):
        axes.axhline(target, color="#718096", linestyle="--", linewidth=1, label=f"target {target:g}")
    axes.set_title(env_id)
    axes.set_xlabel("environment steps" if over is XAxis.steps else "seconds")
    axes.set_ylabel("greedy return")
    axes.grid(alpha=0.3)
    axes.legend(loc="best", fontsize="small")


def _draw_band(axes: Any, runs: Sequence[RunLog], over: XAxis, look: dict[str, Any]) -> None:
    """Draw median and quartiles; the median is pale after the end of the first run, a dot marks each confirmation."""
    at, (lower, median, upper) = band(runs, over)
    ends = [_along(run, over)[-1] for run in runs]
    axes.fill_between(at, lower, upper, color=look["color"], alpha=0.2, linewidth=0)
    together = at <= min(ends)
    axes.plot(at[together], median[together], linewidth=2, **marker(together.sum()), **look)
    later = at >= at[together][-1] if together.any() else ~together
    axes.plot(at[later], median[later], linewidth=2, alpha=0.4, **look)
    dots = [(end, run.returns[-1]) for end, run in zip(ends, runs, strict=True) if _confirmed_at(run) is not None]
    axes.plot(*np.array(dots).reshape(-1, 2).T, marker="o", markersize=3, linestyle="none", color=look["color"])
