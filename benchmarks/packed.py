"""`python -m benchmarks.packed`: bytes of a step and the time of a draw, for each setting of `compression=`.

One process has a table for each setting, filled with the same steps; they take turns. A figure is processor time of the
process, all threads together, in the lower tenth of the turns, next to that of the table that is not compressed. The
times of the clock are the second figure: several threads unpack a batch where cores are idle. `--rows` chooses rows.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import reverie

SETTINGS = ("none", "auto:speed", "auto", "auto:size")
TABLE = "replay"
Fill = Callable[[reverie.Client], int]


def client_of(setting: str) -> reverie.Client:
    table = reverie.Table(
        TABLE,
        max_size=100_000,
        sampler=reverie.selectors.Uniform(seed=1),
        remover=reverie.selectors.Fifo(),
        rate_limiter=reverie.rate_limiters.MinSize(1),
        compression=setting,  # type: ignore[arg-type]
    )
    return reverie.Server([table], listen=False).client()


def stacks(frames: np.ndarray) -> Fill:
    """Transitions of four stacked frames; each frame is stored once."""

    def fill(client: reverie.Client) -> int:
        quiet = np.zeros(1, dtype=bool)
        action, reward = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.float32)
        with client.transition_writer(TABLE, num_envs=1, frame_stack=4) as writer:
            for frame in frames:
                writer.append(frame[None], action, reward, quiet, quiet)
        return len(frames)

    return fill


def single_steps(steps: np.ndarray) -> Fill:
    """Items of one step, each in a chunk of its own."""

    def fill(client: reverie.Client) -> int:
        for step in steps:
            client.insert({"x": step}, {TABLE: 1.0})
        return len(steps)

    return fill


def sequences(steps: np.ndarray, length: int) -> Fill:
    """Items of `length` steps, a new one at every second step."""

    def fill(client: reverie.Client) -> int:
        with client.trajectory_writer(length) as writer:
            for index, step in enumerate(steps):
                writer.append({"x": step})
                if index >= length and index % 2:
                    writer.create_item(TABLE, 1.0, {"x": writer.history["x"][-length:]})
        return len(steps)

    return fill


def pong(count: int) -> np.ndarray:
    """Frames `[count, 84, 84]` uint8 of Pong, played at random."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pong.npy"
        script = Path(__file__).parent / "workers" / "pong.py"
        subprocess.run([sys.executable, script, str(path), str(count)], check=True)
        return np.load(path)


def images(count: int) -> np.ndarray:
    """Steps `[count, 316, 316]` float32 of 400 kB: a slow picture of 256 levels with a noise of one."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:316, 0:316]
    levels = [
        127 + 100 * np.sin((x + step) / 40) * np.cos((y - step) / 50) + rng.normal(0, 1.0, x.shape)
        for step in range(count)
    ]
    return np.round(levels).astype(np.float32) / np.float32(255)


def observations(count: int) -> np.ndarray:
    """Observations `[count, 441]` float32 that move slowly, with two decimals."""
    rng = np.random.default_rng(0)
    moved = np.cumsum(rng.normal(0, 0.02, (count, 441)), axis=0) + rng.normal(0, 1, 441)
    return np.round(moved, 2).astype(np.float32)


def rows() -> dict[str, tuple[Callable[[], Fill], int]]:
    """By the row's name: a function that fills a table, and the size of a batch."""
    rng = np.random.default_rng(1)
    grain = lambda frames: frames + rng.integers(0, 2, frames.shape, dtype=np.uint8)  # noqa: E731
    return {
        "Atari frames (Pong), stacks of 4": (lambda: stacks(pong(20_000)), 256),
        "the same with a noise of one grey level": (lambda: stacks(grain(pong(5_000))), 256),
        "similar steps of 400 kB, drawn alone": (lambda: single_steps(images(200)), 64),
        "equal steps of 400 kB, in sequences of 2": (lambda: sequences(np.repeat(images(1), 200, axis=0), 2), 32),
        "float observations of 1.8 kB, sequences of 8": (lambda: sequences(observations(10_000), 8), 256),
        "noise of 4 kB, drawn alone": (lambda: single_steps(rng.random((10_000, 1000), np.float32)), 256),
    }


def measure(fill: Fill, batch: int, turns: int) -> dict[str, tuple[float, float, float]]:
    """Bytes of a step, and seconds of a batch by processor time and by the clock, for each setting."""
    clients, size = {}, {}
    for setting in SETTINGS:
        client = clients[setting] = client_of(setting)
        size[setting] = fill(client)
        size[setting] = client.info().tables[TABLE].size_bytes / size[setting]
        client.sample_batch(TABLE, batch)
    spent: dict[str, list[tuple[float, float]]] = {setting: [] for setting in SETTINGS}
    for turn in range(turns):
        for index in range(len(SETTINGS)):
            setting = SETTINGS[(index + turn) % len(SETTINGS)]
            processor, clock = time.process_time(), time.perf_counter()
            for _ in range(4):
                clients[setting].sample_batch(TABLE, batch)
            spent[setting].append(((time.process_time() - processor) / 4, (time.perf_counter() - clock) / 4))
    tenth = {setting: np.quantile(np.array(times), 0.1, axis=0) for setting, times in spent.items()}
    return {setting: (size[setting], float(tenth[setting][0]), float(tenth[setting][1])) for setting in SETTINGS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="", help="only rows whose names contain this")
    parser.add_argument("--turns", type=int, default=30)
    options = parser.parse_args()
    print("Bytes of a step; processor time and time of a draw, next to the same without compression.\n")
    print(f"| steps | {' | '.join(SETTINGS)} |")
    print("|---" * (1 + len(SETTINGS)) + "|")
    for name, (fill, batch) in rows().items():
        if options.rows not in name:
            continue
        found = measure(fill(), batch, options.turns)
        _, *least = found["none"]
        cells = [f"{found['none'][0]:,.0f} B; {least[0] * 1e3:.2f} ms, {least[1] * 1e3:.2f} ms a batch of {batch}"]
        for size, *times in (found[setting] for setting in SETTINGS[1:]):
            cells.append(f"{size:,.0f} B; x{times[0] / least[0]:.2f}, x{times[1] / least[1]:.2f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
