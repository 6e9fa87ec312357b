"""Runs one checked request of `reverie train`, with its logs and its view."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reverie.cli import exits, run_folders
from reverie.cli.common import refuse

if TYPE_CHECKING:
    from reverie.agents.agent import Agent
    from reverie.agents.core import Preset
    from reverie.runners import Event, Result, Topology


@dataclass(frozen=True)
class PlannedRun:
    """The run to start, and its folder."""

    agent: Agent
    """With trained weights if the run begins with some."""
    topology: Topology
    preset: Preset
    folder: Path
    checkpoint: Path | None
    overwrite: bool = False
    """Whether to replace the run in the folder."""


def run(
    planned: PlannedRun,
    *,
    stop_when_confirmed: bool,
    board: bool,
    to_stderr: bool,
    quiet: bool,
    silent: bool = False,
    address: str | None,
    check_memory: bool = True,
) -> Result:
    """Train, show progress and report (unless `silent`); blocks until the end. Errors and stops end the command."""
    from reverie.cli import curve, report
    from reverie.runners import train

    folder, preset = planned.folder, planned.preset
    _require_extras(planned.topology)
    with (
        _recording(planned, board=board, to_stderr=to_stderr, quiet=quiet or silent) as on_event,
        exits.errors_reported(folder),
        exits.stop_on_signals() as stop_requested,
    ):
        result = train(
            planned.agent,
            planned.topology.env.env_id,
            runner=planned.topology.runner,
            seed=planned.topology.seed,
            preset=preset.path,
            config=preset.config,
            run=preset.run,
            environment=preset.environment,
            num_shards=planned.topology.num_shards,
            address=address,
            stop_when_confirmed=stop_when_confirmed,
            on_event=on_event,
            checkpoint_folder=folder / "checkpoints",
            resume=planned.checkpoint,
            overwrite=planned.overwrite,
            should_stop=stop_requested,
            check_memory=check_memory,
        )
    drawn = curve.save(result, folder / "curve.png")
    if not silent:
        report.show(result, drawn, to_stderr=to_stderr, quiet=quiet)
    return result


@contextmanager
def _recording(planned: PlannedRun, *, board: bool, to_stderr: bool, quiet: bool) -> Iterator[Callable[[Event], None]]:
    """The receiver of a run's events: a view, the logs, and preset.toml at the first event."""
    from reverie.agents import presets
    from reverie.cli import report
    from reverie.runners import Started, checkpoints
    from reverie.runners.reports import logs

    folder = planned.folder
    with ExitStack() as stack:
        writers: list[logs.Log] = []
        if board:
            try:
                writers.append(logs.TensorBoard(folder / "tensorboard", purge_after=_steps_of(planned.checkpoint)))
            except ImportError as error:
                refuse(error)
        try:
            writers.append(logs.JsonLines(folder / logs.LOG))
        except OSError as error:
            refuse(error)
        for writer in writers:
            stack.callback(writer.close)
        progress = stack.enter_context(report.Progress(to_stderr=to_stderr, quiet=quiet))
        warned: set[int] = set()

        def on_event(event: Event) -> None:
            if isinstance(event, Started):
                if planned.overwrite:
                    run_folders.remove_pictures(folder)
                logs.replace_file(folder / checkpoints.PRESET, presets.dump(planned.preset).encode())
            for writer in writers:
                writer(event)
                if writer.problem and id(writer) not in warned:
                    warned.add(id(writer))
                    progress.warn(f"{writer.path} is no longer written: {writer.problem}; training continues")
            progress(event)

        yield on_event


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
    return None if checkpoint is None else int(checkpoint.name)


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
        "folder": str(folder),
    }
