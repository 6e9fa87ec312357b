"""Locks on files between processes, which end with the process that holds them, however it ends."""

from __future__ import annotations

import sys

__all__ = ["try_lock", "unlock"]


def try_lock(handle: int) -> bool:
    """Lock an open file until it is closed or unlocked; returns False if another one has it. Does not block.

    Raises OSError where the file system has no locks.
    """
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
    else:
        import fcntl  # Windows has none

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def unlock(handle: int) -> None:
    """Unlock a file, also for forked children that have it open."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_UN)
