"""Additions to a run in Weights & Biases and MLflow after its training."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reverie.runners.reports.scalar_logs import ScalarLog
    from reverie.runners.reports.sinks.sink import RunDescription


def open_logs(folder: Path) -> list[ScalarLog]:
    """The logs of the run in a folder that are services.

    Raises ValueError if it has none or a service has no credentials, ImportError if a package is not installed.
    """
    from reverie.runners.reports import scalar_logs
    from reverie.runners.reports.sinks.sink import tracked_in

    kinds: dict[str, Callable[[Path], ScalarLog]] = {
        "wandb": scalar_logs.WeightsAndBiases,
        "mlflow": scalar_logs.MLflow,
    }
    names = tracked_in(folder, tuple(kinds))
    if not names:
        raise ValueError(f"{folder} has no log in wandb or mlflow: name the folder of a run with --log")
    return [kinds[name](folder) for name in names]


def add(
    trackers: Sequence[ScalarLog], run: RunDescription, folder: Path, mean_return: float, video: Path | None
) -> None:
    """Add an evaluation to the run, `return/evaluated`, and its video; prints a warning for a log that fails."""
    from reverie.runners.reports import logs

    try:
        ended = logs.read(folder).finished is not None
    except (logs.LogError, OSError):
        ended = False
    for tracker in trackers:
        tracker.add_later(run, {"return/evaluated": mean_return}, [] if video is None else [video], ended=ended)
        text = f"not written: {tracker.problem}" if tracker.problem else tracker.where
        print(f"{tracker.name}: {text}", file=sys.stderr)
