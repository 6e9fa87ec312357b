"""`python -m benchmarks.pause`: the delays of inserting and sampling threads by a checkpoint of a large table.

A prioritised table is filled with transitions. Then one thread inserts batches of 64, one inserts single steps and one
draws 256 and writes 256 priorities back, while the main thread rests, takes a first checkpoint, rests, and takes a
second. For each kind of call and each phase the file has the longest call and the 99.9th percentile, twice: as the
clock on the wall saw it, and as processor time of the calling thread, which leaves out waiting for a processor or for
the interpreter, both of which a busy machine adds to either phase. Next to them are the most page faults that a call
had, and for how long the tables stood still, as measured under their locks.
"""

from __future__ import annotations

import argparse
import datetime
import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import reverie
from reverie import Server, Table, selectors
from reverie.checkpointers import DefaultCheckpointer

from .peers import ROOT
from .report import duration, machine

REST_SECONDS = 3.0
KINDS = ("insert_batch of 64", "insert of one step", "sample of 256", "update of 256")


def transitions(count: int, rng: np.random.Generator) -> dict[str, Any]:
    return {
        "obs": rng.random((count, 4), np.float32),
        "action": rng.integers(0, 4, count),
        "reward": rng.random(count, np.float32),
        "discount": np.ones(count, np.float32),
        "next_obs": rng.random((count, 4), np.float32),
    }


def page_faults() -> int:
    """Page faults of the calling thread so far, without those that read the disk."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


class Load:
    """Threads that use the table, and what every call of theirs took: (kind, start, seconds, processor seconds, page
    faults)."""

    def __init__(self, client: reverie.Client) -> None:
        self.calls: list[tuple[str, float, float, float, int]] = []
        self._end = threading.Event()
        rng = np.random.default_rng(1)
        rows, keys = transitions(64, rng), np.zeros(256, np.int64)
        step = {name: column[0] for name, column in rows.items()}
        priorities = rng.random(256) + 0.1

        def sample() -> None:
            keys[:] = client.sample_batch("replay", 256).info.key

        loops: list[list[tuple[str, Callable[[], object]]]] = [
            [(KINDS[0], lambda: client.insert_batch("replay", rows))],
            [(KINDS[1], lambda: client.insert(step, {"replay": 1.0}))],
            [(KINDS[2], sample), (KINDS[3], lambda: client.update_priorities("replay", keys, priorities))],
        ]
        self._threads = [threading.Thread(target=self._run, args=(loop,)) for loop in loops]
        for thread in self._threads:
            thread.start()

    def _run(self, loop: list[tuple[str, Callable[[], object]]]) -> None:
        calls = []
        while not self._end.is_set():
            for kind, call in loop:
                faults, worked, start = page_faults(), time.thread_time_ns(), time.perf_counter()
                call()
                took, worked = time.perf_counter() - start, time.thread_time_ns() - worked
                calls.append((kind, start, took, worked * 1e-9, page_faults() - faults))
        self.calls += calls

    def stop(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()


def figures(load: Load, phases: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """Figures of each phase and kind of call, over the calls that were under way in the phase."""
    found: dict[str, Any] = {}
    for phase, (begin, end) in phases.items():
        found[phase] = {}
        for kind in KINDS:
            during = [call for call in load.calls if call[0] == kind and call[1] < end and call[1] + call[2] > begin]
            wall = np.array([call[2] for call in during])
            worked = np.array([call[3] for call in during])
            found[phase][kind] = {
                "calls": len(during),
                "longest": wall.max(),
                "p999": np.quantile(wall, 0.999),
                "longest_processor": worked.max(),
                "p999_processor": np.quantile(worked, 0.999),
                "most_faults": max(call[4] for call in during),
            }
    return found


def run(items: int, folder: str) -> dict[str, Any]:
    table = Table("replay", selectors.Prioritized(0.6), selectors.Fifo(), items)
    with Server([table], checkpointer=DefaultCheckpointer(folder), listen=False) as server, server.client() as client:
        rng = np.random.default_rng(0)
        for begin in range(0, items, 1_000):
            client.insert_batch(
                "replay", transitions(min(1_000, items - begin), rng), rng.random(min(1_000, items - begin))
            )
        load, phases, checkpoints = Load(client), {}, []
        for number in (1, 2):
            begin = time.perf_counter()
            time.sleep(REST_SECONDS)
            middle = time.perf_counter()
            saved = server._checkpoints.save()
            end = time.perf_counter()
            phases[f"rest {number}"], phases[f"checkpoint {number}"] = (begin, middle), (middle, end)
            checkpoints.append({**saved, "seconds": end - middle})
        load.stop()
    return {"items": items, "checkpoints": checkpoints, "phases": figures(load, phases)}


def show(found: dict[str, Any]) -> None:
    for checkpoint in found["checkpoints"]:
        print(
            f"checkpoint of {checkpoint['num_items']:,} items: {checkpoint['bytes_written'] / 1e6:,.0f} MB in"
            f" {checkpoint['seconds']:.2f} s, {checkpoint['num_new_chunks']:,} of {checkpoint['num_chunks']:,} chunks"
            f" new; the table stood still for {duration(checkpoint['pause'])}; of"
            f" {checkpoint['spare_bytes'] / 1e6:,.0f} MB for what changed meanwhile"
            f" {checkpoint['spare_bytes_used'] / 1e6:,.0f} MB were used"
        )
    print(f"{'':20}{'':16}{'longest':>12}{'p99.9':>12}{'longest cpu':>14}{'p99.9 cpu':>12}{'faults':>8}{'calls':>10}")
    for kind in KINDS:
        for phase, kinds in found["phases"].items():
            of = kinds[kind]
            times = [duration(of[name]) for name in ("longest", "p999", "longest_processor", "p999_processor")]
            print(
                f"{kind:20}{phase:16}{times[0]:>12}{times[1]:>12}{times[2]:>14}{times[3]:>12}{of['most_faults']:>8,}"
                f"{of['calls']:>10,}"
            )


def main() -> int:
    """Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pause", description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000, help="items of the table (%(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder for the result")
    options = parser.parse_args()
    # Three threads of one interpreter otherwise wait 5 ms for one another, checkpoint or not.
    sys.setswitchinterval(1e-4)
    with tempfile.TemporaryDirectory() as folder:
        found = run(options.items, folder)
    show(found)
    options.out.mkdir(parents=True, exist_ok=True)
    name = f"{datetime.datetime.now():%Y-%m-%d-%H%M}-pause.json"
    for checkpoint in found["checkpoints"]:
        del checkpoint["path"]
    (options.out / name).write_text(json.dumps({"machine": machine(), **found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
