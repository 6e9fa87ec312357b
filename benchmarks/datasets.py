"""Rates and memory of import and export: `python -m benchmarks.datasets` prints a row for each."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import reverie
from reverie.integrations.datasets import Report, export_table, import_dataset, open_dataset

TURNS = 3
#: The shape and dtype of an observation, the steps of an episode, and the episodes.
KINDS = {
    "vectors": ((17,), np.float32, 500, 200),
    "images": ((84, 84, 3), np.uint8, 100, 40),
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


def row(name: str, reports: list[Report], size: int) -> None:
    seconds = [report.seconds for report in reports]
    report, middle = reports[0], statistics.median(seconds)
    rates = (
        f"{report.rows / middle:,.0f} rows/s ({report.rows / max(seconds):,.0f} to {report.rows / min(seconds):,.0f})"
    )
    print(f"{name}: {rates}, {report.size_bytes / middle / 1e6:.0f} MB/s; {size / 1e6:.1f} MB", flush=True)


def rates(kind: str) -> None:
    """Exports to each format, and imports as each kind of items."""
    with server() as host, tempfile.TemporaryDirectory() as folder:
        client = host.client()
        filled(client, kind)
        for format, options in (("parquet", {}), ("minari", {}), ("lerobot", {"fps": 10})):
            reports = []
            for turn in range(TURNS + 1):
                path = Path(folder) / f"{format}-v{turn}"
                reports.append(export_table(client, "from", path, format=format, **options))
            source = open_dataset(path)
            row(f"{kind}, export to {format}", reports[1:], source.size_bytes)
            columns = ["obs", "action", "reward", "terminated", "truncated"]
            for as_ in ("transitions", "sequences", "episodes"):
                reports = []
                for _ in range(TURNS + 1):
                    client.reset("to")
                    given = {"length": 20, "period": 10} if as_ == "sequences" else {}
                    chosen = open_dataset(path, columns=columns)
                    reports.append(import_dataset(client, "to", chosen, as_=as_, **given))
                row(f"{kind}, import of {format} as {as_}", reports[1:], source.size_bytes)


def memory(path: str, as_: str) -> None:
    """The growth of this process by an import into a queue-like small table: what an import itself holds."""
    table = reverie.Table("to", reverie.selectors.Uniform(), reverie.selectors.Fifo(), 100)
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
    options = parser.parse_args()
    if options.memory_of:
        memory(*options.memory_of)
        return
    for kind in options.kinds:
        rates(kind)
    with tempfile.TemporaryDirectory() as folder:
        for episodes in (20, 160):
            path = Path(folder) / f"{episodes}.parquet"
            with server() as host:
                filled(host.client(), "images", episodes)
                export_table(host.client(), "from", path)
            for as_ in ("transitions", "sequences"):
                command = [sys.executable, "-m", "benchmarks.datasets", "--memory-of", str(path), as_]
                subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
