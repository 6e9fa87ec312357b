"""The `[log]` table of a preset: where the scalars of a run go, in addition to its folder."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from reverie.agents.settings import Settings

LOGS = ("tensorboard", "wandb", "mlflow")
"""The logs of scalars that a run can write."""


@dataclass(frozen=True)
class LogSettings(Settings):
    """The logs that `reverie train` writes; in Python they are callbacks of `train`."""

    to: tuple[str, ...] = ()
    """Names of `LOGS`; empty for the command's default, TensorBoard where it is installed."""
    project: str = ""
    """The project of Weights & Biases and the experiment of MLflow; empty for what their own variables name."""
    tags: tuple[str, ...] = ()
    """Tags of the run there."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.to:
            if name not in LOGS:
                near = difflib.get_close_matches(name, LOGS, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(LOGS)}"
                raise ValueError(f"there is no log {name!r}; {hint}")
        if len(set(self.to)) < len(self.to):
            raise ValueError(f"logs are {', '.join(self.to)}: name each once")
