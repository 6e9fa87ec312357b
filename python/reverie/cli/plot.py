"""`reverie plot`: learning curves of runs, compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from reverie.cli.common import refuse, require_agents

if TYPE_CHECKING:
    from reverie.runners.logs import RunLog

COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#718096")


def plot(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or their log.jsonl files.")],
    out: Annotated[Path, typer.Option(help="Where the picture goes, a .png.")] = Path("runs/curves.png"),
) -> None:
    """Draw the greedy returns of RUNS over environment steps: a panel for each environment, a colour for each agent.

    Every seed is a thin line. Where an agent has several, the median over them is drawn as far as all of them got, in a
    band from the lower to the upper quartile.

    Exit codes: 0 drawn; 2 a log cannot be read, or the picture not be written.
    """
    require_agents()
    from reverie.cli import curve
    from reverie.runners import logs

    try:
        curve.check_writable(out)
        read = [logs.read(run) for run in runs]
    except (ValueError, OSError) as error:
        refuse(error)
    empty = [run.path for run in read if not run.returns]
    if empty:
        refuse(f"log {empty[0]} has no greedy evaluation yet: nothing to draw")
    draw(read, out)
    for run in sorted(read, key=lambda run: (run.env_id, run.agent, run.seed)):
        print(summary(run))
    print(f"learning curves: {out}")


def summary(run: RunLog) -> str:
    """A run in one line."""
    reached = next(
        (step for step, value in zip(run.env_steps, run.returns, strict=True) if value >= run.target_return), 0
    )
    first = f"first at {run.target_return:g} after {reached:,} steps" if reached else f"never at {run.target_return:g}"
    if run.finished is None and not run.returns:
        end = "not finished, and never evaluated"
    elif run.finished is None:
        end = f"not finished; last greedy return {run.returns[-1]:.1f} after {run.env_steps[-1]:,} steps"
    else:
        word = "confirmed" if run.finished["confirmed"] else "not reached"
        end = f"{word}: {run.finished['mean_return']:.1f} after {run.finished['env_steps']:,} steps"
    return f"{run.agent} on {run.env_id}, seed {run.seed}: {first}; {end}"


def band(runs: list[RunLog]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Steps `[T]` that all runs got to, and there the lower quartile, median and upper quartile over them, `[3, T]`.

    Curves are joined by straight lines between their points.
    """
    start, end = max(run.env_steps[0] for run in runs), min(run.env_steps[-1] for run in runs)
    every = np.unique(np.concatenate([run.env_steps for run in runs])).astype(np.float64)
    steps = every[(every >= start) & (every <= end)]
    curves = np.stack([np.interp(steps, run.env_steps, run.returns) for run in runs])
    return steps, np.quantile(curves, [0.25, 0.5, 0.75], axis=0)


def draw(runs: list[RunLog], path: Path) -> None:
    """The picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    environments = sorted({run.env_id for run in runs})
    figure = Figure(figsize=(8, 4.5 * len(environments)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(environments), squeeze=False)[:, 0]
    for axes, env_id in zip(panels, environments, strict=True):
        _panel(axes, env_id, [run for run in runs if run.env_id == env_id])
    figure.savefig(path, dpi=120)


def _panel(axes: Any, env_id: str, runs: list[RunLog]) -> None:
    for index, agent in enumerate(sorted({run.agent for run in runs})):
        own = [run for run in runs if run.agent == agent]
        colour = COLOURS[index % len(COLOURS)]
        for run in own:
            axes.plot(run.env_steps, run.returns, color=colour, linewidth=0.7, alpha=0.5 if len(own) > 1 else 1.0)
        label = f"{agent}, seed {own[0].seed}"
        if len(own) > 1:
            steps, (lower, median, upper) = band(own)
            axes.fill_between(steps, lower, upper, color=colour, alpha=0.2, linewidth=0)
            axes.plot(steps, median, color=colour, linewidth=2)
            label = f"{agent}, median and quartiles of {len(own)} seeds"
        axes.plot([], [], color=colour, label=label)
    for target in sorted({run.target_return for run in runs}):
        axes.axhline(target, color="#718096", linestyle="--", linewidth=1, label=f"target {target:g}")
    axes.set_title(env_id)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("greedy return")
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
