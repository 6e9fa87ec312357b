"""The learning curve as a picture."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reverie.runners import Result


def check_writable(path: Path) -> None:
    """Make the folder and check the path before training. Raises ValueError or OSError with the path."""
    if path.suffix.lower() != ".png":
        raise ValueError(f"the learning curve is a PNG, and {path} does not end in .png")
    if path.is_dir():
        raise ValueError(f"the learning curve cannot go to {path}: it is a folder; name a file in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"the folder {path.parent} cannot be created: {error.strerror}") from error
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"the folder {path.parent} cannot be written to; name another with --plot")


def marker(points: int) -> dict[str, Any]:
    """Options of a curve with this number of points: a single one is a dot, since a line through it is invisible."""
    return {"marker": "o", "markersize": 4} if points == 1 else {}


def save(result: Result, path: Path) -> str:
    """Draw greedy return over environment steps, with the target and the confirmed evaluation.

    Returns the path, or the reason why there is no picture: on a full disk the result is still reported.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from reverie.runners.reports.logs import replace_file

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(
        [point.env_steps for point in result.curve],
        [point.mean_return for point in result.curve],
        color="#2b6cb0",
        **marker(len(result.curve)),
        label=f"greedy, {result.topology.run.screening_episodes} episodes",
    )
    target = result.topology.run.target_return
    if target is not None:
        axes.axhline(target, color="#718096", linestyle="--", linewidth=1, label=f"target {target:g}")
    evaluation = result.evaluation
    axes.plot(
        [result.env_steps],
        [evaluation.mean_return],
        marker="o",
        color="#2f855a" if result.confirmed else "#c53030",
        linestyle="none",
        label=f"last weights, {evaluation.num_episodes} other episodes: {evaluation.mean_return:.1f}",
    )
    env = result.topology.env.env_id
    axes.set_title(f"{result.topology.agent} on {env}, seed {result.topology.seed}, {result.seconds:.1f} s")
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return")
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
    drawn = io.BytesIO()
    try:
        figure.savefig(drawn, dpi=120, format="png")
        replace_file(path, drawn.getvalue())
    except OSError as error:
        return f"not drawn ({path}: {error.strerror or error})"
    return str(path)
