"""The limits of the machine's memory for the same bytes: nothing that stores experience can be faster than this."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import payload
from .serve import Loop, serve


def atari(row: dict[str, Any]) -> Loop:
    """One memcpy of a batch's bytes (obs and next_obs), warm source to warm target."""
    size = 2 * payload.BATCH * payload.STACK * payload.FRAME[0] * payload.FRAME[1]
    source = np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8)
    target = np.zeros_like(source)

    def loop(n: int) -> None:
        for _ in range(n):
            np.copyto(target, source)

    return loop


def uniform(row: dict[str, Any]) -> Loop:
    """A random gather of whole 44-byte rows into one warm array, the indices drawn beforehand."""
    width = 11
    rows = np.random.default_rng(1).standard_normal((row["capacity"], width), dtype=np.float32)
    draws = np.random.default_rng(2).integers(0, row["capacity"], (4_096, payload.BATCH))
    target = np.empty((payload.BATCH, width), dtype=np.float32)
    at = 0

    def loop(n: int) -> None:
        nonlocal at
        for _ in range(n):
            rows.take(draws[at], axis=0, out=target, mode="clip")
            at = (at + 1) & 4_095

    return loop


serve(["numpy"], {"atari": atari, "uniform": uniform})
