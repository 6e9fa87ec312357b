"""The sink that writes a run of Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reverie.runners.reports.sinks.sink import RunDescription, RunOutcome, read_identity, save_identity

NAME = "wandb"


class NoCredentialsError(ValueError):
    """Weights & Biases is to be used online, and has no API key."""


class WandbSink:
    """One run of Weights & Biases. Its files are in `folder/wandb`; its id is in `folder/tracking`.

    All that W&B reads from its environment variables holds, such as `WANDB_MODE=offline`, `WANDB_ENTITY`,
    `WANDB_RUN_GROUP` and `WANDB_BASE_URL`. Its x-axis is `env_steps`: W&B's own steps only ever rise, and evaluations
    of several processes come after progress of later steps.

    Args:
        folder: the run's folder.
        project: the project; "" is `WANDB_PROJECT`, or else "reverie".
        tags: tags in addition to the agent and the environment.

    Raises:
        ImportError: wandb is not installed; the message names the extra.
        NoCredentialsError: W&B is to be online, and there is no API key. Nothing is asked on the terminal.
    """

    def __init__(self, folder: Path, *, project: str = "", tags: Sequence[str] = ()) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ImportError('wandb is not installed: pip install "reverie[wandb]"') from error
        if wandb.setup().settings.mode == "online" and not wandb.login(prompt=False, verify=False):
            raise NoCredentialsError(
                "wandb has no API key: run `wandb login`, or set WANDB_MODE=offline and upload later with `wandb sync`"
            )
        self.where = ""
        self._wandb, self._folder, self._tags = wandb, folder, tuple(tags)
        self._project = project or os.environ.get("WANDB_PROJECT") or "reverie"
        self._run: Any = None
        self._step = -1
        """The last of W&B's own steps."""

    def begin(self, run: RunDescription) -> None:
        """Start the run, or continue the one whose id is in the folder."""
        identity = read_identity(self._folder, NAME) if run.env_steps else {}
        self._tags = tuple(dict.fromkeys([*identity.get("tags", ()), *self._tags]))  # those given replace W&B's own
        self._folder.mkdir(parents=True, exist_ok=True)
        self._run = started = self._wandb.init(
            project=identity.get("project", self._project),
            id=identity.get("id"),
            resume="allow" if identity else None,
            name=run.name,
            dir=str(self._folder),
            config={**_plain(run.settings), "folder": str(self._folder.resolve())},
            tags=[str(run.settings["agent"]), str(run.settings["env_id"]), *self._tags],
            reinit="create_new",
            # The command has its own view of the run, which lines of W&B would break.
            settings=self._wandb.Settings(console="off", silent=True, disable_git=True),
        )
        if identity:
            started.config.update(_plain(run.settings), allow_val_change=True)
        started.define_metric("env_steps", hidden=True)
        started.define_metric("*", step_metric="env_steps")
        self._step = max(started.step - 1, identity.get("step", -1))
        self.where = started.url or f"{started.dir} (upload with `wandb sync`)"
        self._save()

    def add_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Add a row to the run's history. Does not wait for the network."""
        self._log(step, scalars)

    def add_summary(self, step: int, summary: Mapping[str, Any]) -> None:
        """Add the result to the run's summary."""
        self._run.summary.update({**summary, "env_steps": step})

    def add_file(self, step: int, path: Path) -> None:
        """Add a picture or a video to the history, and any other file to the run's files."""
        suffix = path.suffix.lower()
        if suffix == ".png":
            self._log(step, {path.stem: self._wandb.Image(str(path))})
        elif suffix == ".mp4":
            self._log(step, {path.stem: self._wandb.Video(str(path), format="mp4")})
        else:
            self._run.save(str(path.resolve()), base_path=str(path.resolve().parent), policy="now")

    def close(self, outcome: RunOutcome) -> None:
        """End the run; waits for the upload. Offline, W&B's own process may write the end of the file after this.

        The file is complete when this process has ended, or after `wandb.teardown()`.
        """
        if self._run is not None:
            self._save()
            self._run.finish(exit_code=0 if outcome == "finished" else 1)
            self._run = None

    def _log(self, step: int, values: Mapping[str, Any]) -> None:
        self._step = max(self._step + 1, step)
        self._run.log({**values, "env_steps": step}, step=self._step)

    def _save(self) -> None:
        identity = {"id": self._run.id, "project": self._run.project, "step": self._step, "tags": self._tags}
        save_identity(self._folder, NAME, **identity)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}
