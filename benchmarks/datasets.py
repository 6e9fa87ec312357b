"""Rates and memory of import and export: `python -m benchmarks.datasets` prints a row for each.

Rates are those of processor time, of all threads of the process: they depend little on what else runs.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import reverie
from reverie.integrations.datasets import TransferReport, export_table, import_dataset, open_dataset

TURNS = 3
#: The shape and dtype of an observation, the steps of an episode, and the episodes.
KINDS = {
    "vectors": ((17,), np.float32, 500, 40),
    "images": ((84, 84, 3), np.uint8, 100, 15),
}


def filled(client: reverie.Client, kind: str, episodes: int | None = None) -> None:
    """Fills the table "from" with episodes; the images are noise with a quiet half."""
    shape, dtype, steps, count = KINDS[kind]
    rng = np.random.default_rng(0)
    with client.episode_writer("from") as writer:
        for _ in range(episodes or count):
            block = rng.normal(size=(steps + 1, *shape)) if dtype == np.float32 else noise(rng, steps + 1, shape)
            for step in range(steps + 1):
                flags = {"terminated": step == steps - 1, "truncated": False}
                obs, action = block[step].astype(dtype), np.zeros(6, np.float32)
                writer.append({"obs": obs, "action": action, "reward": np.float32(step % 2), **flags})
            writer.end_episode()


def noise(rng: np.random.Generator, count: int, shape: tuple[int, ...]) -> np.ndarray:
    block = rng.integers(0, 255, (count, *shape))
    block[:, : shape[0] // 2] = 0
    return block


def server() -> reverie.Server:
    table = reverie.Table("from", reverie.selectors.Uniform(), reverie.selectors.Fifo(), 1_000_000)
    return reverie.Server([table, table.replace("to")], listen=False)


def row(name: str, run: Callable[[int], TransferReport], size: Callable[[], int]) -> None:
    """Prints the median of a few turns after one that warms up."""
    seconds = []
    for turn in range(TURNS + 1):
        start = time.process_time()
        report = run(turn)
        seconds.append(time.process_time() - start)
    middle, least, most = statistics.median(seconds[1:]), min(seconds[1:]), max(seconds[1:])
    rate = f"{report.rows / middle:,.0f} rows/s ({report.rows / most:,.0f} to {report.rows / least:,.0f})"
    print(f"{name}: {rate}, {report.size_bytes / middle / 1e6:.0f} MB/s; {size() / 1e6:.1f} MB on the disk", flush=True)


def rates(kind: str, episodes: int | None) -> None:
    """Exports to each format, and imports as each kind of items."""
    with server() as host, tempfile.TemporaryDirectory() as folder:
        client = host.client()
        filled(client, kind, episodes)
        for format, options in (("parquet", {}), ("minari", {}), ("lerobot", {"fps": 10})):
            paths = [Path(folder) / f"{format}-v{turn}" for turn in range(TURNS + 1)]
            disk = lambda: open_dataset(paths[0]).size_bytes  # noqa: B023, E731
            write = lambda turn: export_table(client, "from", paths[turn], format=format, **options)  # noqa: B023, E731
            row(f"{kind}, export to {format}", write, disk)
            for as_ in ("transitions", "sequences", "episodes"):
                given = {"length": 20, "period": 10} if as_ == "sequences" else {}

                def read(turn: int) -> TransferReport:
                    client.reset("to")
                    source = open_dataset(paths[0], columns=["obs", "action", "reward", "terminated", "truncated"])  # noqa: B023
                    return import_dataset(client, "to", source, as_=as_, **given)  # noqa: B023

                row(f"{kind}, import of {format} as {as_}", read, disk)


def memory(path: str, as_: str) -> None:
    """The growth of this process by an import into a queue-like small table: what an import itself holds."""
    table = reverie.Table("to", reverie.selectors.Uniform(), reverie.selectors.Fifo(), 10)
    with reverie.Server([table], listen=False) as host:
        client = host.client()
        import_dataset(client, "to", open_dataset(path), as_=as_, max_steps=200)
        before = peak()
        report = import_dataset(client, "to", open_dataset(path), as_=as_)
        print(
            f"{report.size_bytes / 1e6:.0f} MB as {as_}: the peak grew by {(peak() - before) / 1e6:.0f} MB", flush=True
        )


def peak() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--memory-of", nargs=2, metavar=("PATH", "AS"))
    parser.add_argument("--episodes", type=int, help="episodes of each kind, instead of their own number")
    options = parser.parse_args()
    if options.memory_of:
        memory(*options.memory_of)
        return
    for kind in options.kinds:
        rates(kind, options.episodes)
    with tempfile.TemporaryDirectory() as folder:
        for episodes in (20, 160):
            path = Path(folder) / f"{episodes}.parquet"
            with server() as host:
                filled(host.client(), "images", episodes)
                export_table(host.client(), "from", path)
            for as_ in ("transitions", "episodes"):
                command = [sys.executable, "-m", "benchmarks.datasets", "--memory-of", str(path), as_]
                subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
