"""The process that made an object with a thread of its own: a forked child has no such thread."""

from __future__ import annotations

import os

from reverie.errors import ForkedError

__all__ = ["OwnerProcess"]


class OwnerProcess:
    """The process that made an object.

    Args:
        what: the object, as the error names it.
    """

    __slots__ = ("_pid", "_what")

    def __init__(self, what: str) -> None:
        self._pid, self._what = os.getpid(), what

    def is_here(self) -> bool:
        """False in a forked child."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raises ForkedError in a forked child, with the text of the engine's handles."""
        if not self.is_here():
            raise ForkedError(
                f"this {self._what} lives in the parent process and cannot be used in a forked child; start workers"
                ' with multiprocessing.get_context("spawn")'
            )
