"""Hindsight replay for Stable-Baselines3 next to SB3's own: `add`, draws, training, and memory.

`python -m benchmarks.sb3_her` prints a row for each; `--rows draws` chooses. Both take turns, and a figure is a median
of processor time, which other work on the machine changes less than the time on the clock.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3 import HerReplayBuffer as Theirs
from stable_baselines3.common.envs import BitFlippingEnv

from benchmarks.sb3 import resident
from reverie.integrations.stable_baselines3 import HerReplayBuffer as Ours

KINDS: dict[str, tuple[type, dict[str, Any]]] = {
    "SB3": (Theirs, {}),
    "Reverie": (Ours, {}),
    "Reverie, compression none": (Ours, {"compression": "none"}),
}
TURNS = 5


class Reach:
    """The part of an environment that a buffer calls: the reward is -1 where the goal is not the achieved one."""

    def env_method(self, name: str, achieved: Any, desired: Any, infos: Any, indices: Any) -> list[Any]:
        return [-(achieved != desired).reshape(len(achieved), -1).any(axis=1).astype(np.float32)]


def fetch(goal: tuple[int, ...], observation: tuple[int, ...], dtype: type) -> spaces.Dict:
    """A space as that of the Fetch robots; image goals with uint8."""
    goals, seen = (spaces.Box(0, 255, shape, dtype) for shape in (goal, observation))
    return spaces.Dict({"achieved_goal": goals, "desired_goal": goals, "observation": seen})


def filled(kind: type, space: spaces.Dict, length: int, size: int, **options: Any) -> tuple[Any, float]:
    """A full buffer of episodes of `length` steps, and the microseconds of an `add`."""
    rng = np.random.default_rng(0)
    parts = {name: rng.integers(0, 255, (size + 1, 1, *part.shape)) for name, part in space.spaces.items()}
    parts = {name: values.astype(space[name].dtype) for name, values in parts.items()}
    steps = [{name: values[step] for name, values in parts.items()} for step in range(size + 1)]
    buffer = kind(size, space, spaces.Box(-1, 1, (4,)), Reach(), "cpu", **options)
    action, reward = np.zeros((1, 4), np.float32), np.zeros(1)
    start = time.process_time()
    for step in range(size):
        buffer.add(steps[step], steps[step + 1], action, reward, np.array([step % length == length - 1]), [{}])
    return buffer, (time.process_time() - start) / size * 1e6


def in_turns(name: str, unit: str, run: Callable[[type], float]) -> None:
    """Prints the medians of SB3's buffer and of ours, and their ratio."""
    figures: dict[type, list[float]] = {Theirs: [], Ours: []}
    for turn in range(TURNS + 1):
        for kind, seen in figures.items():
            figure = run(kind)
            if turn:  # The first turn warms up.
                seen.append(figure)
    theirs, ours = (statistics.median(seen) for seen in figures.values())
    spread = [f"{min(seen):.4g} to {max(seen):.4g}" for seen in figures.values()]
    print(f"{name}: SB3 {theirs:.4g} ({spread[0]}), Reverie {ours:.4g} ({spread[1]}) {unit}, ratio {ours / theirs:.2f}")


def draws(space: spaces.Dict, length: int, size: int, count: int) -> Callable[[type], float]:
    """Microseconds of a draw of 256 transitions."""
    buffers = {kind: filled(kind, space, length, size)[0] for kind in (Theirs, Ours)}

    def run(kind: type) -> float:
        start = time.process_time()
        for _ in range(count):
            buffers[kind].sample(256)
        return (time.process_time() - start) / count * 1e6

    return run


def learn(kind: type) -> float:
    """Milliseconds of a step of DQN on bit flipping, with an update of 256 for each."""
    options = {"learning_starts": 50, "train_freq": 1, "batch_size": 256, "seed": 1, "device": "cpu"}
    model = DQN("MultiInputPolicy", BitFlippingEnv(n_bits=15), replay_buffer_class=kind, **options)
    start = time.process_time()
    model.learn(400)
    return (time.process_time() - start) / 400 * 1e3


def memory(name: str) -> None:
    """Prints the growth of this process by a buffer that is as large as its steps, for each of them."""
    kind, options = KINDS[name]
    for what, space, size in (("vectors", VECTORS, 20_000), ("images", IMAGES, 3_000)):
        filled(kind, space, 50, 200, **options)
        rng = np.random.default_rng(0)
        before = resident()
        buffer = kind(size, space, spaces.Box(-1, 1, (4,)), Reach(), "cpu", **options)
        action, now = np.zeros((1, 4), np.float32), None
        for step in range(size):
            after = {n: rng.integers(0, 255, (1, *p.shape)).astype(p.dtype) for n, p in space.spaces.items()}
            now = after if now is None else now
            after["desired_goal"] = now["desired_goal"]
            buffer.add(now, after, action, np.zeros(1), np.array([step % 50 == 49]), [{}])
            now = after
        print(f"{name}, {what}: {(resident() - before) / size / 1e3:.2f} kB for a step")


VECTORS, IMAGES = fetch((3,), (25,), np.float32), fetch((36, 36), (36, 36), np.uint8)
ROWS: dict[str, Callable[[], None]] = {
    "add": lambda: in_turns("add, episodes of 50", "us", lambda kind: filled(kind, VECTORS, 50, 5_000)[1]),
    "draws": lambda: in_turns("256, episodes of 50", "us", draws(VECTORS, 50, 20_000, 100)),
    "long": lambda: in_turns("256, episodes of 1,000", "us", draws(VECTORS, 1_000, 20_000, 100)),
    "images": lambda: in_turns("256, image goals, episodes of 50", "us", draws(IMAGES, 50, 3_000, 20)),
    "learn": lambda: in_turns("DQN on 15 bits", "ms", learn),
    "memory": lambda: [subprocess.run([sys.executable, "-m", __spec__.name, "--store", kind]) for kind in KINDS],
}


def main() -> None:
    """Runs the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--store", choices=KINDS, help="one row of `memory`, in this process")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.store:
        memory(chosen.store)
        return
    for row in chosen.rows:
        ROWS[row]()


if __name__ == "__main__":
    main()
