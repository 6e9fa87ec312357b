"""Stable-Baselines3's ReplayBuffer, one environment, as its DQN uses it."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from . import payload
from .serve import Loop, serve


def vector_buffer(capacity: int) -> ReplayBuffer:
    return ReplayBuffer(capacity, spaces.Box(-np.inf, np.inf, (4,), np.float32), spaces.Discrete(2), device="cpu")


def sampling(buffer: ReplayBuffer) -> Loop:
    def loop(n: int) -> None:
        for _ in range(n):
            buffer.sample(payload.BATCH)

    return loop


def uniform(row: dict[str, Any]) -> Loop:
    buffer = vector_buffer(row["capacity"])
    # The same contents as after a call of `add` for each row, in less time.
    columns = payload.transitions(row["capacity"])
    buffer.observations[:, 0] = columns["obs"]
    buffer.next_observations[:, 0] = columns["next_obs"]
    buffer.actions[:, 0, 0] = columns["action"]
    buffer.rewards[:, 0] = columns["reward"]
    buffer.full = True
    return sampling(buffer)


def push(row: dict[str, Any]) -> Loop:
    buffer = vector_buffer(row["capacity"])
    step = payload.transitions(1)
    done, infos = np.zeros(1), [{}]

    def loop(n: int) -> None:
        for _ in range(n):
            buffer.add(step["obs"], step["next_obs"], step["action"], step["reward"], done, infos)

    return loop


def atari(row: dict[str, Any]) -> Loop:
    space = spaces.Box(0, 255, (payload.STACK, *payload.FRAME), np.uint8)
    # next_obs is shared with the following obs; the frames of a stack are not.
    buffer = ReplayBuffer(
        row["capacity"],
        space,
        spaces.Discrete(6),
        device="cpu",
        optimize_memory_usage=True,
        handle_timeout_termination=False,
    )
    frames = payload.frames(row["capacity"] + payload.STACK, row.get("frames"))
    for k in range(row["capacity"]):
        buffer.observations[k, 0] = frames[k : k + payload.STACK]
    buffer.full = True
    return sampling(buffer)


serve(["stable-baselines3", "torch", "numpy"], {"uniform": uniform, "push": push, "atari": atari})
