"""The files of a run's folder next to its checkpoints: its settings and its log."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from reverie.agents import presets
from reverie.agents.core import Preset
from reverie.runners.checkpoints.checkpoint_files import PRESET, remove
from reverie.runners.reports import logs
from reverie.runners.reports.events import Event, Result, Started

CURVE, TENSORBOARD = "curve.png", "tensorboard"
"""The plot and the folder of TensorBoard's files in a run's folder; `reverie train` writes them."""


def require_folder(folder: Path) -> None:
    """Raise NotADirectoryError if the path is that of a file."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"folder is {folder}, which is a file: name a folder for the run")


class RunFiles:
    """Writes `preset.toml` and `log.jsonl` of a run, from its start on. It is a callback for its events."""

    def __init__(self, folder: Path, preset: Preset, replaced: Sequence[Path] | None) -> None:
        """`replaced` are the folders of an earlier run, which this one replaces when it starts; None replaces none.

        Raises OSError if the folder cannot be written. A run that does not start leaves the folder as it was.
        """
        require_folder(folder)
        self._folder, self._preset, self._replaced = folder, preset, replaced
        self._log: logs.JsonLines | None = None
        try:
            _require_writable(folder)
        except OSError as error:
            text = f"the run's folder cannot be written: {(error.strerror or str(error)).lower()}"
            raise OSError(error.errno, text, str(folder)) from error
        self.name = str(folder / logs.LOG)

    @property
    def problem(self) -> str:
        """Why lines of the log are not being written; empty where they are."""
        return "" if self._log is None else self._log.problem

    def __call__(self, event: Event) -> None:
        """Record one event, of which `Started` is the first. Raises OSError only at the start of a run."""
        if isinstance(event, Started):
            log = self._opened()
            if self._replaced is not None:
                remove(self._replaced)
                _remove_pictures(self._folder)
            logs.replace_file(self._folder / PRESET, presets.dump(self._preset).encode())
            log(event)
        elif self._log is not None:
            self._log(event)

    def complete(self, result: Result) -> None:
        """Give the log the result of a run that had ended before it was resumed, if there is a log without it.

        Raises OSError, and `LogError` for a damaged log.
        """
        if (self._folder / logs.LOG).is_file():
            self._opened().complete(result)

    def _opened(self) -> logs.JsonLines:
        if self._log is None:
            self._log = logs.JsonLines(self._folder / logs.LOG)
        return self._log

    def close(self) -> None:
        """Close the log; idempotent."""
        if self._log is not None:
            self._log.close()


def _require_writable(folder: Path) -> None:
    """Raise OSError if the run's files cannot be written to the folder, or to where it is to be made; makes none."""
    with tempfile.TemporaryFile(dir=next(one for one in (folder, *folder.absolute().parents) if one.exists())):
        pass
    if (folder / logs.LOG).exists():
        with (folder / logs.LOG).open("ab"):
            pass


def _remove_pictures(folder: Path) -> None:
    """Remove the plot and the events for TensorBoard of a run that is replaced; its other files are written again."""
    (folder / CURVE).unlink(missing_ok=True)
    for events in (folder / TENSORBOARD).glob("events.out.tfevents.*"):
        events.unlink()
