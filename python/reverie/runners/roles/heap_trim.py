"""Freed memory goes back to the system, so that a process holds what it uses and not all that it ever used.

torch asks the C library for aligned memory. That of GNU before 2.39 cuts a block to its alignment and keeps the cuts
for small requests, so that a batch that was freed is a little too short for the next one: learning with a convolutional
network on the CPU, the heap grew by 60 kB for each environment step, without end (glibc bug 30723; decision 0048).
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from functools import cache

SECONDS = 20.0
"""Between two calls of `trim_heap`: one costs some milliseconds, as what is used again is mapped again."""


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim


def trim_heap() -> bool:
    """Give the whole pages that are free in the heap back; False where the C library has no way to.

    Other threads of Python go on meanwhile; those that allocate may wait some milliseconds.
    """
    trim = _malloc_trim()
    if trim is None:
        return False
    trim(0)
    return True


class HeapTrimmer:
    """To be asked often: gives freed memory back when it is time."""

    def __init__(self) -> None:
        self._next = time.monotonic() + SECONDS

    def trim_if_due(self) -> None:
        """Call `trim_heap` if the last time is `SECONDS` ago."""
        if time.monotonic() >= self._next:
            trim_heap()
            self._next = time.monotonic() + SECONDS
