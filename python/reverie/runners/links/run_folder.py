"""The folder of a run of processes: its weights and its sockets, in memory where there is any.

Whoever has its lock has the run. What is left of runs that were killed with all their processes at once, as by a
scheduler or where memory is short, would stay in memory until the machine starts again: the next run removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

MEMORY = Path("/dev/shm")
PREFIX = "reverie-run-"
LOCK = "lock"


class RunFolder:
    """A new folder, which is this process's until it is closed, or the process ends."""

    def __init__(self) -> None:
        place = MEMORY if os.access(MEMORY, os.W_OK) else Path(tempfile.gettempdir())
        remove_left(place)
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=place))
        # Locked before it has its name: another run that begins finds no lock that is free.
        draft = self.path / f".{LOCK}"
        self._lock = os.open(draft, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        draft.rename(self.path / LOCK)

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove(folder: Path) -> None:
    """Remove the folder of a run without a supervisor; any of its roles may, all at once.

    It is moved first: into a folder of that name a role that publishes would put a file meanwhile, and it would stay.
    """
    with suppress(OSError):
        gone = folder.rename(folder.with_name(f"{folder.name}-{os.getpid()}"))
        shutil.rmtree(gone, ignore_errors=True)


def remove_left(place: Path) -> None:
    """Remove the folders of runs that nobody has any more. Those of other users stay."""
    for folder in place.glob(f"{PREFIX}*"):
        try:
            lock = os.open(folder / LOCK, os.O_RDWR)
        except OSError:  # it has none yet, or is another user's
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(folder)
        except BlockingIOError:  # its run goes on
            pass
        finally:
            os.close(lock)
