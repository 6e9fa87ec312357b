"""The lock on the folder of a run, which one run holds at a time, whatever its runner is."""

from __future__ import annotations

import itertools
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reverie._file_locks import try_lock, unlock
from reverie.runners.checkpoints.earlier_runs import LOCK, RunExistsError

ATTEMPTS = 100
"""Attempts to make a folder that is missing each time."""
WAIT_SECONDS = 2.0
"""Seconds that a run waits for the lock of another one in its folder."""
WAYS_ON = "wait until it has ended, or end it, or set another folder"
_LOG = logging.getLogger("reverie")
_HELD: set[int] = set()
"""The open files of the locks that this process holds."""


class RunInUseError(RunExistsError):
    """A run trains in this folder at the moment. `.path` is the folder."""


@contextmanager
def locked(folder: Path | None) -> Iterator[None]:
    """A context in which no other run trains in `folder`, which is made if it is missing. None locks nothing.

    The lock is a file that is removed at the end, and a folder that stays empty is removed with it. A lock of a process
    that was killed is free at once, also if a child that it forked lives on. Whatever reads the folder needs no lock.

    Raises `RunInUseError` if another run holds the lock, and OSError if the folder cannot be written. On a file system
    without locks it warns.
    """
    if folder is None:
        yield
        return
    made = [one for one in (folder, *folder.absolute().parents) if not one.exists()]
    try:
        handle = _acquired(folder)
    except OSError as error:
        _remove_empty(made)
        text = f"the run's folder cannot be written: {(error.strerror or str(error)).lower()}"
        raise OSError(error.errno, text, str(folder)) from error
    try:
        yield
    finally:
        _release(folder, handle)
        _remove_empty(made)


def _acquired(folder: Path) -> int:
    """The open file of the lock. The file at its path is another one if a run has just ended: then it tries again."""
    path = folder / LOCK
    for attempt in itertools.count(1):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = _opened(path)
        except FileNotFoundError:  # perhaps a run that did not start has just removed the folder
            if attempt == ATTEMPTS:
                raise
            continue
        _HELD.add(handle)
        try:
            if not _wait(handle, path):
                raise RunInUseError(folder, f"has a run that still trains{_holder(path)}: {WAYS_ON}")
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), path.stat()):
                    _write_holder(handle)
                    return handle
        except BaseException:
            _close(handle)
            raise
        _close(handle)
    raise AssertionError("unreachable")


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError as error:  # another user's file that a kill has left; a lock needs no right to write
        try:
            return os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # it is the folder that cannot be written
            raise error from None


def _wait(handle: int, path: Path) -> bool:
    """Lock the file within `WAIT_SECONDS`: a run that ends, or returns its finished result, holds it for a moment."""
    until = time.monotonic() + WAIT_SECONDS
    while not _try(handle, path):
        if time.monotonic() >= until:
            return False
        time.sleep(0.02)
    return True


def _try(handle: int, path: Path) -> bool:
    try:
        return try_lock(handle)
    except OSError as error:
        _LOG.warning("%s cannot be locked (%s): start no second run in this folder", path, error.strerror or error)
        return True


def _holder(path: Path) -> str:
    """The process that holds the lock, as the end of a phrase; empty if that is not known."""
    with suppress(OSError, ValueError):
        number, host = path.read_text(encoding="utf-8").split()
        return f" (process {number} on {host})"
    return ""


def _write_holder(handle: int) -> None:
    with suppress(OSError):  # a full disk, or another user's file: the lock holds without
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()} {socket.gethostname()}\n".encode())


def _release(folder: Path, handle: int) -> None:
    if handle not in _HELD:  # a forked child, which has closed it
        return
    path = folder / LOCK
    if sys.platform != "win32":  # an open file cannot be removed there: it stays
        with suppress(OSError):
            if os.path.samestat(os.fstat(handle), path.stat()):  # not that of a run in a folder made again
                path.unlink()
    with suppress(OSError):
        unlock(handle)  # also for children that were forked by other means than Python's
    _close(handle)


def _close(handle: int) -> None:
    _HELD.discard(handle)
    os.close(handle)


def _remove_empty(made: list[Path]) -> None:
    """Remove folders that were made here and have stayed empty, the innermost first."""
    with suppress(OSError):
        for one in made:
            one.rmdir()


def _close_in_child() -> None:
    """A forked child keeps the files open, and so would keep the locks of its parent when that is killed."""
    for handle in _HELD:
        with suppress(OSError):
            os.close(handle)
    _HELD.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_close_in_child)
