"""The folder of a run before `reverie train` writes into it: which run it has, and whether that may be touched."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from reverie.cli.common import refuse
from reverie.cli.short_flags import SHORT_FLAGS

if TYPE_CHECKING:
    from reverie.agents.agent import Agent
    from reverie.runners import Topology
    from reverie.runners.checkpoints import EarlierRun

OPTIONS = {"agent": "AGENT", "env_id": "--env", "seed": "--seed"}
"""Options that are not settings of a preset, by their names in Python."""


def find_earlier(folder: Path, resume: bool | Literal["must"]) -> EarlierRun:
    """The run to continue in `folder`; a damaged checkpoint, or none with `--resume=must`, ends the command."""
    from reverie.runners import checkpoints

    if not resume:
        return checkpoints.EarlierRun()
    if resume == "must" and not checkpoints.any_in(folder):
        refuse(
            f"{folder} has no checkpoint to continue from, and --resume=must asks for one: write --resume, or name"
            " the run's folder with --out"
        )
    try:
        return checkpoints.run_to_resume(folder)
    except checkpoints.CheckpointError as error:
        refuse(error)


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

    try:
        replaceable = checkpoints.is_replaceable(folder)
    except checkpoints.CheckpointError as error:
        refuse(error)
    if not replaceable:
        refuse(
            f"{folder} is not the folder of a run (it has neither a run's log.jsonl nor a checkpoint), so that"
            " --overwrite replaces nothing: name another folder with --out"
        )


def refuse_another_run(folder: Path, agent: str, env: str, seed: int) -> None:
    """End the command if the folder has the log of another run; its checkpoint is compared later, in full."""
    from reverie.runners import checkpoints

    other = checkpoints.other_run(folder, agent, env, seed)
    if other:
        refuse(f"{folder} {other}: name its own folder with --out")


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
        others = checkpoints.changed_after_the_end(checkpoint, agent, topology, state)
        if others:
            refuse(checkpoints.ChangedSettingsError(checkpoint, others, _option, more))
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
