"""The buffers for Stable-Baselines3 next to SB3's own: rates of training, draws, and memory.

`python -m benchmarks.sb3` prints a row for each; `--rows cartpole` chooses. Both take turns, and a figure is a median.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from gymnasium import spaces
from stable_baselines3 import DQN, SAC
from stable_baselines3.common import buffers as sb3

from reverie.integrations.stable_baselines3 import ReplayBuffer

TURNS = 7
#: For memory: the class and its options.
STORES: dict[str, tuple[type, dict[str, Any]]] = {
    "SB3": (sb3.ReplayBuffer, {}),
    "SB3, optimize_memory_usage": (
        sb3.ReplayBuffer,
        {"optimize_memory_usage": True, "handle_timeout_termination": False},
    ),
    "Reverie": (ReplayBuffer, {}),
    "Reverie, frame_stack=4, compression none": (ReplayBuffer, {"frame_stack": 4, "compression": "none"}),
    "Reverie, frame_stack=4": (ReplayBuffer, {"frame_stack": 4}),
}


def in_turns(name: str, unit: str, run: Callable[[type], float]) -> None:
    """Prints the medians of SB3's buffer and of ours, and the ratio of these."""
    figures: dict[type, list[float]] = {sb3.ReplayBuffer: [], ReplayBuffer: []}
    for turn in range(TURNS + 1):
        for kind, seen in figures.items():
            figure = run(kind)
            if turn:  # The first turn warms up.
                seen.append(figure)
    theirs, ours = (statistics.median(seen) for seen in figures.values())
    spread = [f"{min(seen):.4g} to {max(seen):.4g}" for seen in figures.values()]
    print(f"{name}: SB3 {theirs:.4g} ({spread[0]}), Reverie {ours:.4g} ({spread[1]}) {unit}, ratio {ours / theirs:.2f}")


def learn(algorithm: type, env: str, steps: int, **options: Any) -> Callable[[type], float]:
    """Steps of training in a second."""

    def run(kind: type) -> float:
        model = algorithm("MlpPolicy", env, replay_buffer_class=kind, seed=1, device="cpu", **options)
        start = time.perf_counter()
        model.learn(steps)
        return steps / (time.perf_counter() - start)

    return run


def filled(kind: type, shape: tuple[int, ...], dtype: type, size: int, **options: Any) -> Any:
    """A full buffer of one environment, whose observations follow one another."""
    rng = np.random.default_rng(0)
    space = spaces.Box(0, 255, shape, dtype)
    buffer = kind(size, space, spaces.Discrete(6), "cpu", **options)
    block = [rng.integers(0, 255, (1, *shape)).astype(dtype) for _ in range(64)]
    for step in range(size):
        now, after = block[step % 64], block[(step + 1) % 64]
        buffer.add(now, after, np.array([1]), np.array([0.5]), np.array([step % 50 == 49]), [{}])
    return buffer


def draws(shape: tuple[int, ...], dtype: type, size: int, count: int) -> Callable[[type], float]:
    """Microseconds of a draw of 256 transitions."""
    buffers: dict[type, Any] = {}

    def run(kind: type) -> float:
        if kind not in buffers:
            buffers[kind] = filled(kind, shape, dtype, size)
        gc.collect()
        start = time.perf_counter()
        for _ in range(count):
            buffers[kind].sample(256)
        return (time.perf_counter() - start) / count * 1e6

    return run


def pong(size: int, count: int) -> Callable[[type], float]:
    """Microseconds of a draw of 256 transitions of Pong."""
    env = AtariVectorEnv(game="pong", num_envs=1, stack_num=4)
    rng = np.random.default_rng(1)
    seen = [env.reset(seed=1)[0], *(env.step(rng.integers(6, size=1))[0] for _ in range(size))]
    buffers: dict[type, Any] = {}

    def run(kind: type) -> float:
        if kind not in buffers:
            buffers[kind] = kind(size, spaces.Box(0, 255, seen[0].shape[1:], np.uint8), spaces.Discrete(6), "cpu")
            for now, after in itertools.pairwise(seen):
                buffers[kind].add(now, after, np.array([1]), np.array([0.5]), np.array([False]), [{}])
        start = time.perf_counter()
        for _ in range(count):
            buffers[kind].sample(256)
        return (time.perf_counter() - start) / count * 1e6

    return run


def adds(kind: type) -> float:
    """Microseconds of an `add` of one environment with four numbers."""
    buffer = kind(20_000, spaces.Box(-1, 1, (4,)), spaces.Discrete(2), "cpu")
    rows = np.random.default_rng(0).normal(size=(5_001, 1, 4)).astype(np.float32)
    action, reward, done, infos = np.array([1]), np.array([0.5]), np.array([False]), [{}]
    start = time.perf_counter()
    for step in range(5_000):
        buffer.add(rows[step], rows[step + 1], action, reward, done, infos)
    return (time.perf_counter() - start) / 5_000 * 1e6


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def store(name: str, steps: int) -> None:
    """Prints the bytes by which a buffer of Pong's stacked frames has grown this process, for each step."""
    kind, options = STORES[name]
    env = AtariVectorEnv(game="pong", num_envs=1, stack_num=4)
    space = spaces.Box(0, 255, env.single_observation_space.shape, np.uint8)
    obs, rng = env.reset(seed=1)[0], np.random.default_rng(1)
    buffer = None
    for step in range(steps + 500):
        action = rng.integers(6, size=1)
        after, reward, terminated, truncated, _ = env.step(action)
        if step == 500:  # The emulator has its memory by then.
            before = resident()
            buffer = kind(steps, space, spaces.Discrete(6), "cpu", **options)
        if buffer is not None:
            buffer.add(obs, after, action, reward, terminated | truncated, [{}])
        obs = after
    print(f"{name}: {(resident() - before) / steps / 1e3:.1f} kB for a step")


def memory() -> None:
    """One process for each way to store."""
    for name in STORES:
        subprocess.run([sys.executable, "-m", "benchmarks.sb3", "--store", name], check=True)


ROWS: dict[str, Callable[[], None]] = {
    "add": lambda: in_turns("add, 4 numbers", "us", adds),
    "vectors": lambda: in_turns("256 transitions of 4 numbers", "us", draws((4,), np.float32, 20_000, 500)),
    "images": lambda: in_turns("256 transitions of 4x84x84", "us", draws((4, 84, 84), np.uint8, 3_000, 10)),
    "pong": lambda: in_turns("256 transitions of Pong", "us", pong(3_000, 10)),
    "cartpole": lambda: in_turns(
        "DQN, CartPole", "steps/s", learn(DQN, "CartPole-v1", 2_000, learning_starts=100, train_freq=1, batch_size=256)
    ),
    "pendulum": lambda: in_turns(
        "SAC, Pendulum", "steps/s", learn(SAC, "Pendulum-v1", 500, learning_starts=100, batch_size=256)
    ),
    "memory": memory,
}


def main() -> None:
    """Runs the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--store", choices=STORES, help="one row of `memory`, in this process")
    parser.add_argument("--steps", type=int, default=5_000)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.store:
        store(chosen.store, chosen.steps)
        return
    for row in chosen.rows:
        ROWS[row]()


if __name__ == "__main__":
    main()
