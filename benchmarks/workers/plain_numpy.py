"""Plain NumPy: preallocated columns, one fancy index per column. No locks, no checks, no policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import payload
from .serve import Loop, serve


def uniform(row: dict[str, Any]) -> Loop:
    columns = payload.transitions(row["capacity"])
    rng = np.random.default_rng(1)
    capacity = row["capacity"]

    def loop(n: int) -> None:
        for _ in range(n):
            index = rng.integers(0, capacity, payload.BATCH)
            _ = {name: column[index] for name, column in columns.items()}

    return loop


def push(row: dict[str, Any]) -> Loop:
    capacity = row["capacity"]
    columns = {name: np.zeros_like(column) for name, column in payload.transitions(capacity).items()}
    obs, action, reward, next_obs, discount = columns.values()
    o, a, r, x, d = (column[0] for column in payload.transitions(1).values())
    at = 0

    def loop(n: int) -> None:
        nonlocal at
        for _ in range(n):
            obs[at], action[at], reward[at], next_obs[at], discount[at] = o, a, r, x, d
            at = (at + 1) % capacity

    return loop


def atari(row: dict[str, Any]) -> Loop:
    """The frames of a batch taken from where they lie into two warm arrays: what the memory gives where it is not warm.

    The draws are made beforehand.
    """
    stored = payload.frames(row["capacity"] + 1, row.get("frames"))
    firsts = np.random.default_rng(2).integers(0, row["capacity"] - payload.STACK, (64, payload.BATCH, 1))
    obs = firsts + np.arange(payload.STACK)
    targets = np.zeros((2, payload.BATCH, payload.STACK, *payload.FRAME), dtype=np.uint8)
    at = 0

    def loop(n: int) -> None:
        nonlocal at
        for _ in range(n):
            stored.take(obs[at], axis=0, out=targets[0], mode="clip")
            stored.take(obs[at] + 1, axis=0, out=targets[1], mode="clip")
            at = (at + 1) % len(obs)

    return loop


serve(["numpy"], {"uniform": uniform, "push": push, "atari": atari})
