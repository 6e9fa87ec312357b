"""Runs one checked request of `reverie train`, with its logs and its view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from reverie.cli import exits
from reverie.cli.common import EXIT_INTERRUPTED, refuse

if TYPE_CHECKING:
    from reverie.agents.core import Preset
    from reverie.cli import report
    from reverie.pages import Page
    from reverie.runners import Event, Result, Topology
    from reverie.runners.reports import logs


@dataclass(frozen=True)
class PlannedRun:
    """The run to start, and its folder."""

    reference: str
    """The agent's name, or `module:agent`."""
    topology: Topology
    preset: Preset
    folder: Path
    checkpoint: Path | None
    """The checkpoint from which it continues; None where it begins."""
    resume: bool = False
    """Whether to continue the run in the folder."""
    overwrite: bool = False
    """Whether to replace the run in the folder."""
    init_from: Path | None = None
    """The weights that it begins with, which fit."""
    page: Page | None = None


def run(
    planned: PlannedRun,
    *,
    stop_when_confirmed: bool,
    to_stderr: bool,
    quiet: bool,
    silent: bool = False,
    address: str | None,
    check_memory: bool = True,
) -> Result:
    """Train, show progress and report (unless `silent`); blocks until the end. Errors and stops end the command."""
    from reverie.cli import curve, report
    from reverie.runners import checkpoints, train

    folder, preset = planned.folder, planned.preset
    _require_extras(planned.topology)
    with (
        _recording(planned, to_stderr=to_stderr, quiet=quiet or silent) as recording,
        exits.run_errors_reported(folder),
        exits.stop_on_signals() as stop_requested,
    ):
        result = train(
            planned.reference,
            planned.topology.env.env_id,
            runner=planned.topology.runner,
            seed=planned.topology.seed,
            preset=preset,
            num_shards=planned.topology.num_shards,
            address=address,
            stop_when_confirmed=stop_when_confirmed,
            on_event=recording,
            folder=folder,
            resume=planned.resume,
            overwrite=planned.overwrite,
            init_from=planned.init_from,
            should_stop=stop_requested,
            check_memory=check_memory,
            http=planned.page,
        )
        drawn = curve.save(result, folder / "curve.png")
        if recording.started:
            recording.add_files([folder / checkpoints.PRESET, folder / "curve.png", *sorted(folder.glob("*.mp4"))])
    if not silent:
        report.show(result, drawn, to_stderr=to_stderr, quiet=quiet)
    return result


class _Recording:
    """The receiver of a run's events: a view, and the logs of its scalars."""

    shows_problems = True

    def __init__(self, writers: Sequence[logs.EventLog], progress: report.ProgressView) -> None:
        self._writers, self._progress = writers, progress
        self._warned: set[str] = set()
        self.started = False
        """Whether the run has started; one that is resumed after its end does not."""

    def __call__(self, event: Event) -> None:
        """Record one event of a run."""
        from reverie.runners import Started

        self.started = self.started or isinstance(event, Started)
        for writer in self._writers:
            writer(event)
            self._warn(writer)
        self._progress(event)

    def add_files(self, paths: Sequence[Path]) -> None:
        """Pass those of the files that exist to the logs that take files."""
        from reverie.runners.reports.scalar_logs import ScalarLog

        for writer in self._writers:
            if isinstance(writer, ScalarLog):
                writer.add_files(paths)

    def close(self, *, failed: bool) -> None:
        """Close the logs, and print what of them is elsewhere."""
        for writer in self._writers:
            writer.close(failed=failed)
            self._warn(writer)
            if where := getattr(writer, "where", ""):
                self._progress.note(f"{writer.name}: {where}")

    def _warn(self, writer: logs.EventLog) -> None:
        if writer.problem and writer.name not in self._warned:
            self._warned.add(writer.name)
            self._progress.warn(f"{writer.name} cannot be written: {writer.problem}; the run does not depend on it")


@contextmanager
def _recording(planned: PlannedRun, *, to_stderr: bool, quiet: bool) -> Iterator[_Recording]:
    """The record of a run while it trains; its logs are closed at the end."""
    from reverie.cli import report

    with report.ProgressView(to_stderr=to_stderr, quiet=quiet) as progress:
        recording = _Recording(_writers(planned), progress)
        failed = True
        try:
            yield recording
            failed = False
        except typer.Exit as end:
            failed = end.exit_code != EXIT_INTERRUPTED
            raise
        finally:
            recording.close(failed=failed)


def _writers(planned: PlannedRun) -> list[logs.EventLog]:
    """The logs of the run's scalars, which write from its first event on; what a log lacks ends the command."""
    from reverie.runners.reports import scalar_logs

    folder, chosen = planned.folder, planned.preset.log
    writers: list[logs.EventLog] = []
    try:
        for name in chosen.to:
            match name:
                case "tensorboard":
                    after = _steps_of(planned.checkpoint)
                    writers.append(scalar_logs.TensorBoard(folder / "tensorboard", purge_after=after))
                case "wandb":
                    writers.append(scalar_logs.WeightsAndBiases(folder, project=chosen.project, tags=chosen.tags))
                case "mlflow":
                    writers.append(scalar_logs.MLflow(folder, experiment=chosen.project, tags=chosen.tags))
    except (ImportError, ValueError, OSError) as error:
        refuse(error)
    return writers


def _require_extras(topology: Topology) -> None:
    """End the command if an extra that the runner needs is missing."""
    if topology.runner != "ray":
        return
    try:
        from reverie.runners.links.credentials import require_cryptography
        from reverie.runners.ray import cluster  # noqa: F401

        require_cryptography()
    except ImportError as error:
        refuse(error)


def _steps_of(checkpoint: Path | None) -> int | None:
    from reverie.runners import checkpoints

    return None if checkpoint is None else checkpoints.env_steps_of(checkpoint)


def as_object(result: Result, folder: Path) -> dict[str, object]:
    """The object for `--json`."""
    return {
        "agent": result.topology.agent,
        "env_id": result.topology.env.env_id,
        "seed": result.topology.seed,
        "env_steps": result.env_steps,
        "updates": result.learner["updates"],
        "seconds": round(result.seconds, 3),
        "confirmed": result.confirmed,
        "target_return": result.topology.run.target_return,
        "mean_return": result.evaluation.mean_return,
        "num_episodes": result.evaluation.num_episodes,
        "best_return": None if result.best is None else result.best.mean_return,
        "folder": str(folder),
    }
