"""Parameters between processes of one machine, through one file."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from typing import TYPE_CHECKING, Any, BinaryIO, final

import numpy as np

from reverie import _checks
from reverie._file_locks import try_lock, unlock
from reverie._late_types import late
from reverie._nest import named_dtype
from reverie.errors import DamagedError, DeadlineExceededError
from reverie.parameters.ends import Channel, ParameterCarrier
from reverie.parameters.record import Arrays, Parameters, Version, require_newer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
else:
    Path = late("pathlib", "Path")

_MAGIC = b"RVPARAM1"
_HEAD_BYTES = 32
"""The magic, then int64 generation, number, and the length of the names, dtypes and shapes as JSON."""
_ALIGN = 64
LOCK_SECONDS = 0.001
"""Seconds between two attempts to lock: a lock is held for a check and a rename."""


@final
@dataclass(frozen=True)
class FileChannel(Channel):
    """Parameters between processes of this machine, in one file that is replaced atomically. Can be pickled.

    A reader sees one version, never parts of two, and waits for no lock. A publisher waits until the disk has its
    version, so that a loss of power leaves a whole one, too. Then it locks a file next to it while it replaces it; the
    lock of a process that was killed is free. In `/dev/shm` the file is in memory. The folder must exist; the files
    stay until you remove them, and all that can write there can publish.

    Args:
        path: of the file. Next to it lie drafts, under the same name with the generation added, and the file for the
            lock, with `.lock` added.
    """

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", _checks.path("path", self.path))

    def carrier(self) -> _FileCarrier:
        """A carrier for one end."""
        return _FileCarrier(self.path)


class _FileCarrier(ParameterCarrier):
    def __init__(self, path: Path) -> None:
        self._path = path
        self.where = f"file '{path}'"

    def put(self, version: Version, arrays: Arrays, timeout: float | None) -> None:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        require_newer(version, self.newest(None), self.where)
        draft = self._path.with_name(f"{self._path.name}.{version.generation}")
        try:
            try:
                with draft.open("wb") as file:
                    _write(file, version, arrays)
                    file.flush()
                    os.fsync(file.fileno())  # after a loss of power the name may be that of a file without its bytes
            except OSError as error:  # the error of the file system does not name the file
                raise OSError(error.errno, error.strerror, str(draft)) from error
            with self._locked(deadline):
                require_newer(version, self.newest(None), self.where)  # another publisher may have been faster
                os.replace(draft, self._path)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise

    @contextmanager
    def _locked(self, deadline: float) -> Iterator[None]:
        """A context in which no other publisher replaces the file. DeadlineExceededError if one still does then."""
        path = self._path.with_name(f"{self._path.name}.lock")
        # A lock of POSIX needs no right to write, so another user's file serves as well.
        handle = os.open(path, (os.O_RDWR if sys.platform == "win32" else os.O_RDONLY) | os.O_CREAT, 0o666)
        try:
            while not try_lock(handle):
                if time.monotonic() >= deadline:
                    why = f"another publisher holds the lock {path}"
                    raise DeadlineExceededError(f"{self.where} was not replaced in time: {why}", why=why)
                time.sleep(LOCK_SECONDS)
            try:
                yield
            finally:
                unlock(handle)  # a child that was forked meanwhile has the file open, too
        finally:
            os.close(handle)

    def fetch(self, above: Version | None, timeout: float | None) -> Parameters | Version | None:
        try:
            file = self._path.open("rb", buffering=0)
        except FileNotFoundError:
            return None
        with file:
            head = file.read(_HEAD_BYTES)
            if len(head) != _HEAD_BYTES or head[: len(_MAGIC)] != _MAGIC:
                raise self._damaged("it was not written by a FileChannel; publish to another path, or remove the file")
            generation, number, length = np.frombuffer(head, np.int64, offset=len(_MAGIC)).tolist()
            version = Version(generation, number)
            if above is not None and version <= above:
                return version
            return Parameters(version, self._read(file, length))

    def _read(self, file: FileIO, length: int) -> Arrays:
        """The arrays, over one block of memory. `file` is open, so that another file at the path does not matter."""
        size = os.fstat(file.fileno()).st_size - _HEAD_BYTES - length
        if size < 0:
            raise self._damaged("it is cut off")
        try:
            listed = json.loads(file.read(length))
            specs = [(name, named_dtype(dtype), tuple(map(_size, shape))) for name, dtype, shape in listed]
        except (AttributeError, TypeError, ValueError) as error:
            raise self._damaged("its list of arrays is malformed") from error
        memory = np.empty(size, np.uint8)
        rest = memory.data
        while rest and (count := file.readinto(rest)):
            rest = rest[count:]
        arrays, offset = {}, 0
        for name, dtype, shape in specs:
            end = offset + math.prod(shape) * dtype.itemsize
            if end > size - len(rest):
                raise self._damaged("it is cut off")
            arrays[name] = memory[offset:end].view(dtype).reshape(shape)
            offset = end + -end % _ALIGN
        return arrays

    def _damaged(self, what: str) -> DamagedError:
        return DamagedError(f"{self.where} has no parameters: {what}", path=str(self._path), what=what)


def _size(dim: Any) -> int:
    if not isinstance(dim, int) or dim < 0:
        raise ValueError(f"{dim!r} is not the size of a dimension")
    return dim


def _write(file: BinaryIO, version: Version, arrays: Arrays) -> None:
    specs = [[name, array.dtype.name, list(array.shape)] for name, array in arrays.items()]
    text = json.dumps(specs).encode()
    text += b" " * (-(_HEAD_BYTES + len(text)) % _ALIGN)
    file.write(_MAGIC + np.array([*version, len(text)], np.int64).tobytes() + text)
    for array in arrays.values():
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        file.write(bytes(-array.nbytes % _ALIGN))
