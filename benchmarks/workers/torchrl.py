"""TorchRL's TensorDict buffers on a preallocated in-memory storage, batch size given at construction."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer, TensorDictReplayBuffer

from . import payload
from .serve import Loop, serve


def tensors(count: int, seed: int) -> TensorDict:
    columns = payload.transitions(count, seed)
    return TensorDict({name: torch.from_numpy(column) for name, column in columns.items()}, batch_size=[count])


def fill(buffer: Any, count: int) -> None:
    for start in range(0, count, payload.BLOCK):
        n = min(payload.BLOCK, count - start)
        index = buffer.extend(tensors(n, start))
        if isinstance(buffer, TensorDictPrioritizedReplayBuffer):
            buffer.update_priority(index, torch.from_numpy(payload.priorities(n, start)).float())


def prioritised(row: dict[str, Any]) -> Loop:
    buffer = TensorDictPrioritizedReplayBuffer(
        alpha=payload.ALPHA,
        beta=payload.BETA,
        storage=LazyTensorStorage(row["capacity"]),
        batch_size=payload.BATCH,
    )
    fill(buffer, row["capacity"])
    fresh = itertools.cycle([torch.from_numpy(p).float() for p in payload.new_priorities()])

    def loop(n: int) -> None:
        for _ in range(n):
            batch = buffer.sample()
            buffer.update_priority(batch["index"], next(fresh))

    return loop


def uniform(row: dict[str, Any]) -> Loop:
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(row["capacity"]), batch_size=payload.BATCH)
    fill(buffer, row["capacity"])

    def loop(n: int) -> None:
        for _ in range(n):
            buffer.sample()

    return loop


def push(row: dict[str, Any]) -> Loop:
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(row["capacity"]), batch_size=payload.BATCH)
    step = tensors(1, 0)[0]

    def loop(n: int) -> None:
        for _ in range(n):
            buffer.add(step)

    return loop


serve(["torchrl", "tensordict", "torch", "numpy"], {"prioritised": prioritised, "uniform": uniform, "push": push})
