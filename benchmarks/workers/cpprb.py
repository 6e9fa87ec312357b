"""cpprb, as in its manual: one buffer, batches added at once, indexes straight back into update_priorities."""

from __future__ import annotations

import itertools
from typing import Any

import cpprb

from . import payload
from .serve import Loop, serve

COLUMNS = {
    "obs": {"shape": 4},
    "action": {"dtype": "int64"},
    "reward": {},
    "next_obs": {"shape": 4},
    "discount": {},
}


def fill(buffer: Any, count: int, *, with_priorities: bool) -> None:
    for start in range(0, count, payload.BLOCK):
        n = min(payload.BLOCK, count - start)
        extra = {"priorities": payload.priorities(n, start)} if with_priorities else {}
        buffer.add(**payload.transitions(n, start), **extra)


def prioritised(row: dict[str, Any]) -> Loop:
    buffer = cpprb.PrioritizedReplayBuffer(row["capacity"], COLUMNS, alpha=payload.ALPHA)
    fill(buffer, row["capacity"], with_priorities=True)
    fresh = itertools.cycle(payload.new_priorities())

    def loop(n: int) -> None:
        for _ in range(n):
            batch = buffer.sample(payload.BATCH, beta=payload.BETA)
            buffer.update_priorities(batch["indexes"], next(fresh))

    return loop


def uniform(row: dict[str, Any]) -> Loop:
    buffer = cpprb.ReplayBuffer(row["capacity"], COLUMNS)
    fill(buffer, row["capacity"], with_priorities=False)

    def loop(n: int) -> None:
        for _ in range(n):
            buffer.sample(payload.BATCH)

    return loop


def push(row: dict[str, Any]) -> Loop:
    buffer = cpprb.ReplayBuffer(row["capacity"], COLUMNS)
    step = {name: column[0] for name, column in payload.transitions(1).items()}

    def loop(n: int) -> None:
        for _ in range(n):
            buffer.add(**step)

    return loop


def atari(row: dict[str, Any]) -> Loop:
    columns = {
        "obs": {"shape": (*payload.FRAME, payload.STACK), "dtype": "uint8"},
        "action": {"dtype": "int64"},
        "reward": {},
        "discount": {},
    }
    # Frames shared between stacks (the stacked axis must be last) and between obs and next_obs.
    buffer = cpprb.ReplayBuffer(row["capacity"], columns, next_of="obs", stack_compress="obs")
    frames = payload.frames(row["capacity"] + payload.STACK + 1, row.get("frames"))
    for k in range(row["capacity"]):
        stack = frames[k : k + payload.STACK + 1].transpose(1, 2, 0)
        buffer.add(obs=stack[..., :-1], next_obs=stack[..., 1:], action=0, reward=0.0, discount=0.99)

    def loop(n: int) -> None:
        for _ in range(n):
            buffer.sample(payload.BATCH)

    return loop


serve(["cpprb", "numpy"], {"prioritised": prioritised, "uniform": uniform, "push": push, "atari": atari})
