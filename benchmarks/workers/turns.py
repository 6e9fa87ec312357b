"""Rows in which the ways to do the same take turns in one process: times, memory, a server, and the JSON of a run.

The order rotates from turn to turn. A figure is the median over the turns of processor time, which other work on the
machine changes less than the time on the clock; a ratio is the median of those of single turns, with the least and the
most.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime
import gc
import importlib.metadata
import json
import logging
import os
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import reverie
from benchmarks.peers import ROOT, pong_frames
from benchmarks.report import duration, machine

TABLE = "replay"
#: Returns freed memory of the C library to the system.
TRIM = ctypes.CDLL(None).malloc_trim
SAMPLERS = {
    "prioritized": reverie.selectors.Prioritized(0.6),
    "alpha-0": reverie.selectors.Prioritized(0.0),
    "uniform": reverie.selectors.Uniform(),
}
#: A turn ends after so much processor time, or four times as much by the clock.
SECONDS = 0.05
#: Sizes: of a table of vectors, of one of images, and of an episode in each.
VECTORS, IMAGES, LONG, SHORT = 10_000, 1_000, 200, 50


@dataclass(frozen=True)
class Way:
    """One side of a row.

    Args:
        call: what is measured.
        finish: ends a turn, and is part of it: waits for what is on its way.
        server: the process that serves `call`, of which processor time is counted apart.
    """

    call: Callable[[], Any]
    finish: Callable[[], Any] = lambda: None
    server: int | None = None


@dataclass(frozen=True)
class Options:
    """The length of a run: its turns, and sizes for a smoke test."""

    turns: int
    smoke: bool

    def size(self, count: int) -> int:
        """A size, or the tenth of it in a smoke run."""
        return count // 10 if self.smoke else count


@dataclass(frozen=True)
class ServerProcess:
    """A server in another process of this machine."""

    address: str
    pid: int


@contextlib.contextmanager
def server_process(sampler: str, max_size: int, compression: str = "auto") -> Iterator[ServerProcess]:
    """A server with one table, in a process of its own that ends with the block.

    Args:
        sampler: a name of `SAMPLERS`.
        max_size, compression: of the table.
    """
    command = [sys.executable, "-m", "benchmarks.workers.turns", sampler, str(max_size), compression]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield ServerProcess(process.stdout.readline().strip(), process.pid)
        process.communicate()  # The end of its standard input ends it.


def serve(sampler: str, max_size: str, compression: str) -> None:
    """Serves until standard input ends."""
    table = reverie.Table(
        TABLE,
        SAMPLERS[sampler],
        reverie.selectors.Fifo(),
        int(max_size),
        reverie.rate_limiters.MinSize(1),
        compression=compression,  # type: ignore[arg-type]
    )
    with reverie.Server([table]) as server:
        print(server.address, flush=True)
        sys.stdin.read()


def in_turns(name: str, options: Options, ways: dict[str, Way]) -> dict[str, Any]:
    """Measures a row and prints it; the first way is the one that ratios refer to."""
    seen: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in ways}
    kinds = list(ways)
    for turn in range(options.turns + 1):
        first = turn % len(kinds)
        for kind in kinds[first:] + kinds[:first]:
            figures = _turn(ways[kind], SECONDS / 10 if options.smoke else SECONDS)
            if turn:  # The first turn warms up.
                seen[kind].append(figures)
    row: dict[str, Any] = {"name": name, "processor_seconds": {}, "wall_seconds": {}, "server_processor_seconds": {}}
    for kind, figures in seen.items():
        row["processor_seconds"][kind] = [cpu for cpu, _, _ in figures]
        row["wall_seconds"][kind] = [wall for _, wall, _ in figures]
        if ways[kind].server is not None:
            row["server_processor_seconds"][kind] = [served for _, _, served in figures]
    row["ratios"] = {kind: _ratio(row["processor_seconds"], kind, kinds[0]) for kind in kinds[1:]}
    print(f"{name}: " + ", ".join(_shown(row, kind) for kind in kinds), flush=True)
    return row


def _turn(way: Way, seconds: float) -> tuple[float, float, float]:
    """Processor time, time on the clock and the server's processor time of a call."""
    gc.collect()
    served = processor_of(way.server)
    cpu, wall, calls = time.process_time(), time.perf_counter(), 0
    while time.process_time() - cpu < seconds and time.perf_counter() - wall < 4 * seconds:
        for _ in range(4):
            way.call()
        calls += 4
    way.finish()
    took = time.process_time() - cpu, time.perf_counter() - wall, processor_of(way.server) - served
    return took[0] / calls, took[1] / calls, took[2] / calls


def _ratio(seconds: dict[str, list[float]], kind: str, base: str) -> list[float]:
    turns = [ours / theirs for ours, theirs in zip(seconds[kind], seconds[base], strict=True)]
    return [statistics.median(turns), min(turns), max(turns)]


def _shown(row: dict[str, Any], kind: str) -> str:
    text = f"{kind} {duration(statistics.median(row['processor_seconds'][kind]))}"
    if kind in row["server_processor_seconds"]:
        text += f" + {duration(statistics.median(row['server_processor_seconds'][kind]))} of the server"
    if kind in row["ratios"]:
        text += " (x{:.2f}, {:.2f} to {:.2f})".format(*row["ratios"][kind])
    return text


def processor_of(pid: int | None) -> float:
    """The processor time in seconds of all threads of another process, in nanoseconds' steps; 0 for None."""
    if pid is None:
        return 0.0
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def resident(pid: int | str) -> int:
    """The bytes of a process that are in memory and belong to no file; of memory that is shared, too."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:"))) * 1024


class Memory:
    """A row of bytes of a step.

    Args:
        name: the kind of observations.
        steps: how many a buffer has when it is filled.
    """

    def __init__(self, name: str, steps: int) -> None:
        self._name, self._steps, self._found = f"memory of a step, {name}", steps, dict[str, float]()

    def measure(self, kind: str, fill: Callable[[int], Any], server: int | None = None) -> None:
        """Measures the growth of this process, or of the server's, by a buffer with so many steps; in a copy of it."""
        there, here = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                fill(self._steps // 10)  # What is compiled or loaded at the first step is no part of it.
                gc.collect()
                TRIM(0)  # What was freed would be filled first, without growth.
                before = resident(server or "self")
                kept = fill(self._steps)
                gc.collect()
                os.write(here, str(resident(server or "self") - before).encode())
                status = 0 if kept is not None else 1
            finally:
                os._exit(status)  # Nothing that was inherited is ended twice.
        os.close(here)
        with os.fdopen(there) as answer:
            self._found[kind] = int(answer.read()) / self._steps
        os.waitpid(pid, 0)

    def shown(self) -> dict[str, Any]:
        """The row, which is also printed."""
        print(f"{self._name}: " + ", ".join(f"{kind} {size / 1e3:.2f} kB" for kind, size in self._found.items()))
        return {"name": self._name, "bytes": self._found}


def stacks(frames: npt.NDArray[np.uint8], axis: int) -> list[npt.NDArray[np.uint8]]:
    """Observations of four frames each, one frame apart, stacked along an axis; copies, as a wrapper returns."""
    return [np.ascontiguousarray(np.moveaxis(frames[k : k + 4], 0, axis)) for k in range(len(frames) - 3)]


def observations(options: Options, count: int, axis: int) -> Iterator[tuple[str, list[npt.NDArray[Any]]]]:
    """Observations for measurements of memory, by name: `count` vectors, then stacks of noise and of Pong."""
    rng = np.random.default_rng(3)
    yield "4 numbers", list(rng.normal(size=(count, 4)).astype(np.float32))
    images = options.size(IMAGES) + 4
    yield "4 x 84 x 84, noise", stacks(rng.integers(0, 256, (images, 84, 84), np.uint8), axis)
    yield "4 x 84 x 84, Pong", stacks(np.load(pong_frames(images)), axis)


def main(suite: str, packages: Sequence[str], rows: dict[str, Callable[[Options], list[dict[str, Any]]]]) -> None:
    """Runs the rows and writes their JSON."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.frameworks {suite.split('-')[0]}")
    parser.add_argument("--rows", nargs="*", choices=rows, default=list(rows))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="small and short; writes nothing")
    given = parser.parse_args()
    options, began = Options(1 if given.smoke else given.turns, given.smoke), time.perf_counter()
    logging.getLogger("reverie").setLevel(logging.ERROR)  # Clients report that their server has stopped.
    load, found = os.getloadavg(), []
    for row in given.rows:
        found += rows[row](options)
    # The package has no metadata where it is imported from its folder.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = {name: importlib.metadata.version(name) for name in (*packages, "numpy", "gymnasium")}
    run = {
        "suite": suite,
        "machine": machine(),
        "versions": {"reverie": project["version"], **versions},
        "load": {"before": load, "after": os.getloadavg()},
        "turns": options.turns,
        "run_seconds": time.perf_counter() - began,
        "rows": found,
    }
    print(f"{run['run_seconds']:.0f} s; load {load[0]:.1f} before, {os.getloadavg()[0]:.1f} after")
    if not given.smoke:
        path = ROOT / "benchmarks" / "results" / f"{datetime.datetime.now():%Y-%m-%d-%H%M}-{suite}.json"
        path.write_text(json.dumps(run, indent=1) + "\n")
        print(path)


if __name__ == "__main__":
    serve(*sys.argv[1:])
