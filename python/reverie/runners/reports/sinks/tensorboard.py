"""The sink that writes TensorBoard's files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reverie.runners.reports.event_files import EventFile, message_types
from reverie.runners.reports.sinks.sink import RunDescription, RunOutcome


class TensorBoardSink:
    """Writes one event file; it begins with the first call. TensorFlow is not imported.

    Args:
        folder: the folder of the file.
        purge_after: TensorBoard leaves out what older files of the folder have after this step; None keeps all.

    Raises:
        ImportError: tensorboard is not installed; the message names the extra.
    """

    where = ""

    def __init__(self, folder: Path, *, purge_after: int | None = None) -> None:
        message_types()
        self._folder = folder
        self._purge_from = None if purge_after is None else purge_after + 1
        self.file: EventFile | None = None

    def begin(self, run: RunDescription) -> None:
        """Write the settings as a table."""
        self._opened().add_text(run.env_steps, "settings", _table("setting", run.settings))

    def add_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write one record with all numbers."""
        self._opened().add_scalars(step, scalars)

    def add_summary(self, step: int, summary: Mapping[str, Any]) -> None:
        """Write the result as a table."""
        self._opened().add_text(step, "result", _table("result", summary))

    def add_file(self, step: int, path: Path) -> None:
        """Write a PNG as a picture; TensorBoard shows no other files. Raises OSError, also for a damaged picture."""
        if path.suffix.lower() == ".png":
            try:
                self._opened().add_png(step, path.stem, path.read_bytes())
            except ValueError as error:
                raise OSError(str(error)) from error

    def close(self, outcome: RunOutcome) -> None:
        """Close the file; idempotent."""
        if self.file is not None:
            self.file.close()

    def _opened(self) -> EventFile:
        if self.file is None:
            self.file = EventFile(self._folder, purge_from=self._purge_from)
        return self.file


def _table(head: str, rows: Mapping[str, Any]) -> str:
    """Names and values as a table of TensorBoard's Markdown."""
    return f"| {head} | value |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows.items())
