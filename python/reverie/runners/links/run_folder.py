"""The folder of a run with the runner "process": its weights and sockets, in `/dev/shm` if it is writable.

A run holds a lock on its folder. If all processes of a run are killed at once (by a scheduler, or for lack of memory),
its folder would stay in memory until the machine reboots: the next run removes it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

MEMORY = Path("/dev/shm")
PREFIX = "reverie-run-"
LOCK = "lock"


class RunFolder:
    """A new folder, locked by this process until it is closed or the process ends."""

    def __init__(self) -> None:
        place = MEMORY if os.access(MEMORY, os.W_OK) else Path(tempfile.gettempdir())
        remove_stale(place)
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=place))
        # Locked before it gets its name, so that another run never finds the lock file unlocked.
        draft = self.path / f".{LOCK}"
        self._lock = os.open(draft, os.O_CREAT | os.O_RDWR, 0o600)
        _lock(self._lock, wait=True)
        draft.rename(self.path / LOCK)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove(folder: Path) -> None:
    """Remove the folder of a run whose supervisor has ended; all its roles may call this at once.

    The folder is renamed first: otherwise a role could write its weights into it meanwhile, and the folder would stay.
    """
    with suppress(OSError):
        renamed = folder.rename(folder.with_name(f"{folder.name}-{os.getpid()}"))
        shutil.rmtree(renamed, ignore_errors=True)


def remove_stale(place: Path) -> None:
    """Remove the folders of runs that have ended, except those of other users."""
    for folder in place.glob(f"{PREFIX}*"):
        try:
            lock = os.open(folder / LOCK, os.O_RDWR)
        except OSError:  # it has no lock yet, or belongs to another user
            continue
        try:
            _lock(lock, wait=False)
            remove(folder)
        except BlockingIOError:  # its run has not ended
            pass
        finally:
            os.close(lock)


def _lock(descriptor: int, *, wait: bool) -> None:
    """Lock a file; BlockingIOError if another process has locked it and this one does not wait."""
    if sys.platform == "win32":
        raise RuntimeError("the folder of a run is for the runner 'process', which needs Linux")
    import fcntl  # Windows has none

    fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
