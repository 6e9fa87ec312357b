"""The folder of a run before `reverie train` writes into it: which run it has, and whether that may be touched."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from reverie.cli.common import refuse
from reverie.cli.short_flags import SHORT_FLAGS

if TYPE_CHECKING:
    from reverie.agents.agent import Agent
    from reverie.runners import Topology

OPTIONS = {"agent": "AGENT", "env_id": "--env", "seed": "--seed"}
"""Options that are no settings of a preset, by their names in Python."""


@dataclass(frozen=True)
class EarlierRun:
    """What a run with `--resume` starts from."""

    checkpoint: Path | None = None
    """None where it begins."""
    preset: Path | None = None
    """The settings that it takes, unless others are given."""
    note: str = ""
    """Why it begins instead of continuing; empty where it continues, or was not asked to."""


def find_earlier(folder: Path, resume: bool | Literal["must"]) -> EarlierRun:
    """The run to continue in `folder`; a damaged checkpoint, or none with `--resume=must`, ends the command."""
    from reverie.runners import checkpoints
    from reverie.runners.reports import logs

    if not resume:
        return EarlierRun()
    if checkpoints.any_in(folder):
        try:
            checkpoint = checkpoints.find(folder)
            checkpoints.check(checkpoint)  # its settings are read before all the rest
        except checkpoints.CheckpointError as error:
            refuse(error)
        return EarlierRun(checkpoint, checkpoint / checkpoints.PRESET)
    if resume == "must":
        refuse(
            f"{folder} has no checkpoint to continue from, and --resume=must asks for one: write --resume, or name"
            " the run's folder with --out"
        )
    if not logs.has_begun(folder):
        return EarlierRun(note=f"{folder} has no run yet: a new one begins")
    preset = folder / checkpoints.PRESET
    note = f"{folder} has no checkpoint yet: the run starts from the beginning"
    return EarlierRun(preset=preset if preset.is_file() else None, note=note)


def refuse_existing(folder: Path) -> None:
    """End the command if the folder has a run."""
    from reverie.runners.reports import logs

    if logs.has_begun(folder):
        refuse(
            f"{folder} holds a run: continue it with --resume, replace it with --overwrite, or name another folder with"
            " --out"
        )


def require_replaceable(folder: Path) -> None:
    """End the command unless the folder is missing, empty, or that of a run."""
    from reverie.runners import checkpoints
    from reverie.runners.checkpoints import earlier_runs
    from reverie.runners.reports import logs

    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        replaced = earlier_runs.to_replace(folder / "checkpoints")
    except checkpoints.CheckpointError as error:
        refuse(error)
    try:
        logs.read(folder)
    except (logs.LogError, OSError):
        if not replaced:
            refuse(
                f"{folder} is not the folder of a run (it has neither a run's log.jsonl nor a checkpoint), so that"
                " --overwrite replaces nothing: name another folder with --out"
            )


def remove_pictures(folder: Path) -> None:
    """Remove the plot and the events for TensorBoard of a run that is replaced; its other files are written again."""
    (folder / "curve.png").unlink(missing_ok=True)
    for events in (folder / "tensorboard").glob("events.out.tfevents.*"):
        events.unlink()


def refuse_another_run(folder: Path, agent: str, env: str, seed: int) -> None:
    """End the command if the folder has the log of another run; its checkpoint is compared later, in full."""
    from reverie.runners.reports import logs

    try:
        log = logs.read(folder)
    except (logs.LogError, OSError):
        return
    if (log.agent, log.env_id, log.seed) != (agent, env, seed):
        refuse(
            f"{folder} holds a run of {log.agent} on {log.env_id} with seed {log.seed}, and this one is of {agent} on"
            f" {env} with seed {seed}: name its own folder with --out"
        )


def report_changes(checkpoint: Path, agent: Agent, topology: Topology, *, stop_when_confirmed: bool) -> None:
    """Print the settings that change when the run continues, or that it has finished.

    A setting that may not change ends the command.
    """
    from reverie.runners import checkpoints
    from reverie.runners.checkpoints import setting_changes

    try:
        state = checkpoints.load_run(checkpoint, agent, topology)
    except checkpoints.ChangedSettingsError as error:
        refuse(checkpoints.ChangedSettingsError(error.path, error.changes, _option))
    except checkpoints.CheckpointError as error:
        refuse(error)
    if checkpoints.is_finished(state, topology, stop_when_confirmed=stop_when_confirmed):
        more = "--until-max-steps or a higher --target-return"
        if state["env_steps"] >= topology.run.max_env_steps:
            more = "a higher --max-steps"
        print(f"reverie: this run has finished, and nothing is left to train; {more} continues it", file=sys.stderr)
        return
    changed = setting_changes.changes(state["identity"], agent, topology)
    if changed:
        named = ", ".join(f"{one.name} {one.now!r} (before: {one.before!r})" for one in changed)
        print(f"reverie: the run continues with {named}", file=sys.stderr)


def _option(name: str) -> str:
    """The option of the command for a setting."""
    short = {setting: "--" + parameter.replace("_", "-") for parameter, setting in SHORT_FLAGS.items()}
    return OPTIONS.get(name) or short.get(name) or f"--set {name}"
