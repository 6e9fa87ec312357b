"""The data that every worker stores: the same numbers from the same seed. Needs NumPy only."""

from __future__ import annotations

from pathlib import Path

import numpy as np

BATCH = 256
ALPHA = 0.6
BETA = 0.4
BLOCK = 10_000
FRAME = (84, 84)
STACK = 4


def transitions(count: int, seed: int = 7) -> dict[str, np.ndarray]:
    """Five columns of `count` transitions: obs and next_obs `[count, 4]` float32, the others `[count]`."""
    rng = np.random.default_rng(seed)
    return {
        "obs": rng.standard_normal((count, 4), dtype=np.float32),
        "action": rng.integers(0, 2, count),
        "reward": rng.standard_normal(count, dtype=np.float32),
        "next_obs": rng.standard_normal((count, 4), dtype=np.float32),
        "discount": np.full(count, 0.99, dtype=np.float32),
    }


def priorities(count: int, seed: int = 11) -> np.ndarray:
    """Positive priorities `[count]` float64 with a spread like TD errors have."""
    return np.random.default_rng(seed).exponential(1.0, count) + 1e-3


def new_priorities(seed: int = 13) -> list[np.ndarray]:
    """Sixty-four sets of priorities `[BATCH]` to update with, so that trees keep changing."""
    return [priorities(BATCH, seed + k) for k in range(64)]


def noise_frames(count: int, seed: int = 17) -> np.ndarray:
    """Frames `[count, 84, 84]` uint8 that nothing compresses."""
    return np.random.default_rng(seed).integers(0, 256, (count, *FRAME), dtype=np.uint8)


def frames(count: int, source: str | None) -> np.ndarray:
    """Frames `[count, 84, 84]` uint8: noise, or those of a file, repeated where it holds fewer."""
    if source is None:
        return noise_frames(count)
    stored = np.load(Path(source), mmap_mode="r")
    return np.concatenate([stored] * -(-count // len(stored)))[:count]
