"""The logs that a run of `reverie train` writes: by its flags, its preset, and the run that it continues."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from reverie.agents.log_settings import LOGS, LogSettings
from reverie.cli.common import refuse
from reverie.cli.train_request import TrainRequest

if TYPE_CHECKING:
    from reverie.agents.core import Preset


def names_of(text: str) -> tuple[str, ...]:
    """Parses `--log tensorboard,wandb`; unknown names end the command."""
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        refuse(f"--log is {text!r}: name some of {', '.join(LOGS)}, or write --no-tensorboard")
    try:
        return LogSettings(names).to
    except ValueError as error:
        refuse(f"--log is {text!r}: {error}")


def choose(request: TrainRequest, preset: Preset, continued: Path | None = None) -> LogSettings:
    """The logs of a run; `continued` is its folder if it continues. A log that is not installed ends the command."""
    from reverie.runners.reports.sinks.sink import tracked_in

    names = preset.log.to if request.log is None else request.log
    if not names:
        names = ("tensorboard",) if _installed("tensorboard") else ()
        names += tracked_in(continued, LOGS) if continued is not None else ()
    if request.tensorboard is False:
        if request.log is not None and "tensorboard" in request.log:
            refuse(f"--log is {','.join(request.log)}, and --no-tensorboard excludes it: leave one of them out")
        names = tuple(name for name in names if name != "tensorboard")
    elif request.tensorboard and "tensorboard" not in names:
        names = ("tensorboard", *names)
    for name in names:
        if not _installed(name):
            refuse(f'{name} is not installed: pip install "reverie[{name}]"')
    return LogSettings(
        names,
        preset.log.project if request.project is None else request.project,
        preset.log.tags if request.tags is None else request.tags,
    )


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
