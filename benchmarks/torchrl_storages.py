"""The buffers for TorchRL next to TorchRL's own: rates of `extend`, and of a draw with new priorities.

`python -m benchmarks.torchrl_storages` prints a row for each. All take turns, and a figure is a median.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from torchrl.data import LazyMemmapStorage, LazyTensorStorage, TensorDictPrioritizedReplayBuffer

from reverie.integrations.torchrl import PrioritizedReplayBuffer

BATCH = 256
FOLDER = tempfile.TemporaryDirectory()
KINDS: dict[str, Callable[[int], Any]] = {
    "LazyTensorStorage": lambda size: _theirs(LazyTensorStorage(size)),
    "LazyMemmapStorage": lambda size: _theirs(LazyMemmapStorage(size, scratch_dir=tempfile.mkdtemp(dir=FOLDER.name))),
    "Reverie": lambda size: PrioritizedReplayBuffer(size, alpha=0.6, batch_size=BATCH, compression="none"),
}


def _theirs(storage: Any) -> Any:
    return TensorDictPrioritizedReplayBuffer(alpha=0.6, beta=0.4, storage=storage, batch_size=BATCH)


def steps(count: int, shape: tuple[int, ...], dtype: torch.dtype) -> TensorDict:
    """Steps as a collector returns them: noise."""
    observation = (torch.rand(count, *shape) * 255).to(dtype)
    next_steps = {"observation": observation.flip(0), "reward": torch.rand(count, 1), "done": torch.zeros(count, 1) > 0}
    return TensorDict({"observation": observation, "action": torch.zeros(count), "next": next_steps}, [count])


def extends(shape: tuple[int, ...], dtype: torch.dtype, size: int, block: int, count: int) -> Callable[[str], float]:
    """Microseconds of an `extend` of a block into a full buffer."""
    buffers: dict[str, Any] = {}
    data = steps(block, shape, dtype)

    def run(kind: str) -> float:
        if kind not in buffers:
            buffers[kind] = KINDS[kind](size)
            for _ in range(size // 640):
                buffers[kind].extend(steps(640, shape, dtype))
        start = time.perf_counter()
        for _ in range(count):
            buffers[kind].extend(data)
        return (time.perf_counter() - start) / count * 1e6

    return run


def draws(shape: tuple[int, ...], dtype: torch.dtype, size: int, count: int, update: bool) -> Callable[[str], float]:
    """Microseconds of a draw of 256 steps, with their new priorities if `update`."""
    buffers: dict[str, Any] = {}
    data = steps(1000, shape, dtype)

    def run(kind: str) -> float:
        if kind not in buffers:
            buffers[kind] = KINDS[kind](size)
            for _ in range(size // 1000):
                keys = buffers[kind].extend(data)
                buffers[kind].update_priority(keys, torch.rand(1000))
        errors = torch.rand(BATCH)
        start = time.perf_counter()
        for _ in range(count):
            sample = buffers[kind].sample()
            if update:
                buffers[kind].update_tensordict_priority(sample.set("td_error", errors))
        return (time.perf_counter() - start) / count * 1e6

    return run


def main() -> None:
    """Measures the rows, contenders alternating."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=7)
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    image, numbers = ((4, 84, 84), torch.uint8), ((4,), torch.float32)
    rows = {
        "extend of 1 step, 4 numbers": extends(*numbers, 6_400, 1, 50),
        "extend of 64 steps, 4 numbers": extends(*numbers, 6_400, 64, 50),
        "extend of 64 steps, 4 x 84 x 84": extends(*image, 2_560, 64, 10),
        "sample of 256, 4 numbers, 100,000 items": draws(*numbers, 100_000, 50, False),
        "sample of 256 and priorities, 4 numbers, 100,000 items": draws(*numbers, 100_000, 50, True),
        "sample of 256 and priorities, 4 x 84 x 84, 4,000 items": draws(*image, 4_000, 5, True),
    }
    for name, run in rows.items():
        seen: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for turn in range(turns + 1):
            for kind, figures in seen.items():
                figure = run(kind)
                if turn:  # The first turn warms up.
                    figures.append(figure)
        texts = [
            f"{kind} {statistics.median(all_):.4g} ({min(all_):.4g} to {max(all_):.4g})" for kind, all_ in seen.items()
        ]
        print(f"{name}: {', '.join(texts)} us", flush=True)


if __name__ == "__main__":
    main()
