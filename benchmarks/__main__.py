"""`python -m benchmarks`: runs the rows, prints the table, writes JSON and a plot under benchmarks/results/."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import report
from .peers import PEERS, ROOT, Worker, pong_frames
from .rows import ATARI_STEPS, ROWS, Row

SMOKE_CAPACITY = 2_000
OWN = ("reverie", "numpy", "limits")


def main() -> int:
    """Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="how often each peer has its turn in a row (%(default)s)")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long a turn is (%(default)s)")
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--peers", default=",".join(PEERS), help="who takes part (%(default)s)")
    parser.add_argument("--smoke", action="store_true", help="small, short, no peers: shows that the harness runs")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder for JSON and plot")
    options = parser.parse_args()
    if unknown := set(options.peers.split(",")) - set(PEERS):
        parser.error(f"unknown peers {sorted(unknown)}; there are {', '.join(PEERS)}")
    if options.smoke:
        options.rounds, options.seconds, options.peers = 2, 0.05, ",".join(OWN)
    rows = [row for row in ROWS if options.rows in row.name]
    if options.smoke:
        # Other sizes, other names, and nothing to reach.
        rows = [
            replace(row, capacity=SMOKE_CAPACITY, name=f"smoke ({SMOKE_CAPACITY} items): {row.name}", targets={})
            for row in rows
            if not row.real_frames
        ]

    started = time.time()
    workers = {name: Worker(PEERS[name]) for name in options.peers.split(",")}
    try:
        results = [run_row(row, workers, options.rounds, options.seconds) for row in rows]
        memory = [] if options.rows else memory_rows(smoke=options.smoke)
    finally:
        for worker in workers.values():
            worker.close()
    imports = {} if options.rows else import_times(2 if options.smoke else 15)
    versions = {name: worker.versions for name, worker in workers.items()}
    run = {
        "machine": report.machine(),
        "versions": versions,
        "transport": "in-process",
        "rounds": options.rounds,
        "seconds_per_turn": options.seconds,
        "wall_seconds": time.time() - started,
        "rows": results,
        "memory": memory,
        "imports": imports,
    }
    print(report.table(run))
    if not options.smoke:
        print(*report.write(run, options.out), sep="\n")
    return 0


def run_row(row: Row, workers: dict[str, Worker], rounds: int, seconds: float) -> dict[str, Any]:
    """All who take part in a row are prepared first, then take turns; the order changes from round to round."""
    names = [name for name in ("reverie", *row.peers) if name in workers]
    frames = str(pong_frames(ATARI_STEPS + 8)) if row.real_frames else None
    print(f"==> {row.name}: {', '.join(names)}", file=sys.stderr, flush=True)
    for name in names:
        workers[name].ask("prepare", row=row.request(name, frames))
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for k in range(len(names)):
            name = names[(turn + k) % len(names)]
            answer = workers[name].ask("run", seconds=seconds, busy_threads=row.busy_threads)
            times[name].append(answer["seconds_per_call"])
    for name in names:
        workers[name].ask("drop")
    return {
        "name": row.name,
        "columns": row.columns,
        "capacity": row.capacity,
        "unit": row.unit,
        "targets": row.targets,
        "seconds": times,
    }


def memory_rows(*, smoke: bool) -> list[dict[str, Any]]:
    """Bytes a step of Atari holds, raw and compressed; measured on fewer steps than a million and scaled."""
    steps = SMOKE_CAPACITY if smoke else ATARI_STEPS
    rows: list[dict[str, Any]] = []
    for name, target, frames in (
        ("memory of an Atari step, raw", 7_500, None),
        ("memory of an Atari step, compressed Pong", 1_500, None if smoke else str(pong_frames(ATARI_STEPS + 8))),
    ):
        if smoke and rows:
            continue
        print(f"==> {name}", file=sys.stderr, flush=True)
        ours = Worker(PEERS["reverie"])  # a new process: what earlier rows freed would hide what this one takes
        held = ours.ask("measure", what="memory_per_step", arguments={"steps": steps, "frames": frames})
        ours.close()
        rows.append({"name": name, "steps": steps, "target_bytes": target, **held})
    return rows


def import_times(rounds: int) -> dict[str, list[float]]:
    """Seconds of a fresh interpreter that imports one module, in turns; the interpreter's own start included."""
    times: dict[str, list[float]] = {"numpy": [], "reverie": []}
    for turn in range(rounds + 1):
        for module, found in times.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
            if turn:  # the first turn fills the page cache
                found.append(time.perf_counter() - start)
    return times


if __name__ == "__main__":
    sys.exit(main())
