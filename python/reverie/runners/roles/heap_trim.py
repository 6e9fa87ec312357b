"""Returns freed heap memory to the system, so that a process does not keep its peak.

PyTorch requests aligned memory from the C library. glibc before 2.39 trims a block to its alignment and keeps the
trimmings for small requests, so that the block of a freed batch is a little too short for the next batch. When learning
with a convolutional network on the CPU, the heap grew by 60 kB per environment step, without limit (glibc bug 30723;
decision 0021).
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from functools import cache

SECONDS = 20.0
"""Time between two calls of `trim_heap`. A call costs some milliseconds: memory that is reused is mapped again."""


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim


def trim_heap() -> bool:
    """Return the free whole pages of the heap to the system; False if the C library has no function for it.

    Other Python threads run meanwhile; threads that allocate may wait some milliseconds.
    """
    trim = _malloc_trim()
    if trim is None:
        return False
    trim(0)
    return True


class HeapTrimmer:
    """Calls `trim_heap` every `SECONDS`."""

    def __init__(self) -> None:
        self._next = time.monotonic() + SECONDS

    def trim_if_due(self) -> None:
        """Call `trim_heap` if the last call was `SECONDS` ago. Cheap enough for every turn."""
        if time.monotonic() >= self._next:
            trim_heap()
            self._next = time.monotonic() + SECONDS
