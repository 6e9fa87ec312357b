"""New files and folders that have their name only once they are complete."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

__all__ = ["draft_of", "publish"]

#: The errors of file systems without hard links.
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def draft_of(path: Path) -> Path:
    """A name next to `path` that no other writer has."""
    return path.absolute().with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.partial")


def publish(draft: Path, path: Path) -> None:
    """Give a complete draft its name; a file is on the disk before.

    Raises:
        FileExistsError: another writer was faster. Its file stays, and so does the draft.
        OSError.
    """
    if draft.is_dir():
        os.mkdir(path)  # fails for the second of two writers; the draft then replaces the empty folder
        try:
            draft.rename(path)
        except OSError:
            path.rmdir()
            raise
        return
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        draft.replace(path)
    else:
        draft.unlink()
