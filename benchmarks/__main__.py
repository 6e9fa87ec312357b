"""`python -m benchmarks`: runs the rows, prints the table, writes JSON and a plot under benchmarks/results/."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import last, network_rows, report, scale, wan
from . import rows as in_process_rows
from .peers import BEFORE, NETWORK_PEERS, PEERS, ROOT, Peer, Worker, WorkerError, pong_frames
from .rows import ATARI_STEPS, Row

SMOKE_CAPACITY = 2_000
RESULTS = ROOT / "benchmarks" / "results"
OWN = ("reverie", "numpy", "limits")
SUITES: dict[str, tuple[list[Row], dict[str, Peer]]] = {
    "in-process": (in_process_rows.ROWS, PEERS),
    "network": (network_rows.ROWS, NETWORK_PEERS),
}
#: Writer processes that write at once; of peers, whose processes are large, fewer.
WRITERS = {"reverie": (1, 2, 8, 16, 64), BEFORE: (1, 2, 8, 16, 64), "dm-reverb": (1, 2, 8)}
TRANSPORTS = {"reverie": ("auto", "grpc"), BEFORE: ("auto", "grpc"), "dm-reverb": ("grpc",)}
#: For how long they write: many turns of each of 64 processes on two cores.
WRITER_SECONDS = 10.0


def main() -> int:
    """Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--suite", choices=SUITES, default="in-process", help="which rows (%(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="how often each peer has its turn in a row (%(default)s)")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long a turn is (%(default)s)")
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--peers", default="", help="which take part, by names and commas (all)")
    parser.add_argument(
        "--before",
        type=Path,
        help="another checkout of this project with its extension built: takes part in every row, and alone with this "
        "one if no --peers are named",
    )
    parser.add_argument("--smoke", action="store_true", help="small, short, no peers: shows that the harness runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for JSON and plot")
    parser.add_argument("--wan", action="store_true", help="instead: links with delay and loss (root; suite network)")
    parser.add_argument(
        "--scale", action="store_true", help="instead: thousands of clients of one server (suite network)"
    )
    options = parser.parse_args()
    if options.wan or options.scale:
        if options.suite != "network" or (options.wan and options.scale):
            parser.error("--wan and --scale are parts of --suite network, one at a time")
        return network_part(options)
    all_rows, known = SUITES[options.suite]
    default = list(known)
    if options.before:
        known = {**known, BEFORE: known["reverie"].earlier(options.before)}
        default = ["reverie"]
    names = [name for name in options.peers.split(",") if name] or default
    names += [BEFORE] if options.before and BEFORE not in names else []
    if unknown := set(names) - set(known):
        parser.error(f"unknown peers {sorted(unknown)}; there are {', '.join(known)}")
    rows = [row for row in all_rows if options.rows in row.name]
    if options.smoke:
        options.rounds, options.seconds = 2, 0.05
        names = [name for name in names if name in (*OWN, BEFORE)]
        rows = [small(row) for row in rows if not row.real_frames]

    started = time.time()
    workers = {name: Worker(known[name]) for name in names}
    try:
        results, failed = run_rows(rows, workers, options.rounds, options.seconds)
        whole = not options.rows
        in_process = options.suite == "in-process"
        memory = memory_rows(smoke=options.smoke) if whole and in_process else []
        writers, lost = writer_rows(workers, smoke=options.smoke) if whole and not in_process else ([], {})
        failed |= lost
    finally:
        for worker in workers.values():
            worker.close()
    run = {
        "suite": options.suite,
        "machine": report.machine(),
        "versions": {name: worker.versions for name, worker in workers.items()},
        "rounds": options.rounds,
        "seconds_per_turn": options.seconds,
        "wall_seconds": time.time() - started,
        "rows": results,
        "failed": failed,
        "memory": memory,
        "writers": writers,
        "imports": import_times(2 if options.smoke else 15, options.before) if whole and in_process else {},
    }
    print(report.table(run))
    if not options.smoke:
        print(*report.write(run, options.out), sep="\n")
        if options.out == RESULTS and not options.before:
            last.write(ROOT / "benchmarks" / "README.md", RESULTS)
    return 1 if failed else 0


def network_part(options: argparse.Namespace) -> int:
    """The rows of links, or those of many clients; their JSON lies with the others."""
    stamp = time.strftime("%Y-%m-%d-%H%M", time.gmtime())
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out / f"{stamp}-{'wan' if options.wan else 'scale'}.json"
    if options.scale:
        return scale.main(seconds=0.2 if options.smoke else 5.0, out=out, smoke=options.smoke)
    seconds, rounds = (0.5, 1) if options.smoke else (max(options.seconds, 4.0), min(options.rounds, 3))
    return wan.main(rounds=rounds, seconds=seconds, rows=options.rows, out=out, smoke=options.smoke)


def small(row: Row) -> Row:
    """The row with another size and so another name, and with nothing to reach."""
    capacity = min(row.capacity, SMOKE_CAPACITY, (32 << 20) // max(row.payload, 1))
    return replace(row, capacity=capacity, name=f"smoke ({capacity} items): {row.name}", targets={}, piece_seconds=0.02)


def run_rows(
    rows: list[Row], workers: dict[str, Worker], rounds: int, seconds: float
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Results of the rows, and errors of the failed ones by name: after a failure the others run, with a new worker."""
    results, failed = [], {}
    for row in rows:
        try:
            results.append(run_row(row, workers, rounds, seconds))
        except WorkerError as error:
            print(f"==> {row.name}: {error}", file=sys.stderr, flush=True)
            failed[row.name] = str(error)
            for name, worker in list(workers.items()):
                if not worker.is_alive():
                    workers[name] = Worker(worker.peer)
    return results, failed


def run_row(row: Row, workers: dict[str, Worker], rounds: int, seconds: float) -> dict[str, Any]:
    """All that take part in a row are prepared first, then take turns; the order changes from round to round.

    Two versions of one program differ by less than two processes of one version, whose memory lies elsewhere: against
    an earlier version each turn has a process of its own.
    """
    names = [name for name in ("reverie", BEFORE, *row.peers) if name in workers]
    frames = str(pong_frames(ATARI_STEPS + 8)) if row.real_frames else None
    print(f"==> {row.name}: {', '.join(names)}", file=sys.stderr, flush=True)
    alone = BEFORE in names
    for name in () if alone else names:
        workers[name].ask("prepare", row=row.request(name, frames))
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for k in range(len(names)):
            name = names[(turn + k) % len(names)]
            if alone:
                workers[name].close()
                workers[name] = Worker(workers[name].peer)
                workers[name].ask("prepare", row=row.request(name, frames))
            answer = workers[name].ask(
                "run", seconds=seconds, busy_threads=row.busy_threads, piece_seconds=row.piece_seconds
            )
            times[name].append(answer["seconds_per_call"])
            if alone:
                workers[name].ask("drop")
    for name in () if alone else names:
        workers[name].ask("drop")
    return {
        "name": row.name,
        "columns": row.columns,
        "capacity": row.capacity,
        "transport": row.transport,
        "payload": row.payload,
        "items": row.items,
        "unit": row.unit,
        "targets": {**row.targets, BEFORE: report.NOT_SLOWER},
        "seconds": times,
    }


def writer_rows(workers: dict[str, Worker], *, smoke: bool) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Items per second that some writer processes bring in together; each count in a round of its own."""
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    for name, worker in list(workers.items()):
        for transport in TRANSPORTS.get(name, ()):
            for processes in WRITERS[name][:2] if smoke else WRITERS[name]:
                row = f"{name}, {processes} writer processes, {transport}"
                print(f"==> {row}", file=sys.stderr, flush=True)
                arguments = {
                    "processes": processes,
                    "payload": 400,
                    "capacity": network_rows.MOST_ITEMS,
                    "transport": transport,
                    "seconds": 0.3 if smoke else WRITER_SECONDS,
                }
                try:
                    measured = workers[name].ask("measure", what="many_writers", arguments=arguments)
                    rows.append({"peer": name, **arguments, **measured})
                except WorkerError as error:
                    failed[row] = str(error)
                    workers[name] = Worker(worker.peer)
    return rows, failed


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


def import_times(rounds: int, before: Path | None) -> dict[str, list[float]]:
    """Seconds of a fresh interpreter that imports one module, peers alternating; the interpreter's start included."""
    folders = {"numpy": ROOT, "reverie": ROOT} | ({BEFORE: before.resolve()} if before else {})
    times: dict[str, list[float]] = {name: [] for name in folders}
    for turn in range(rounds + 1):
        for name, found in times.items():
            module = "reverie" if name == BEFORE else name
            environment = {**os.environ, "PYTHONPATH": str(folders[name] / "python")}
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", f"import {module}"], check=True, env=environment)
            if turn:  # the first turn fills the page cache
                found.append(time.perf_counter() - start)
    return times


if __name__ == "__main__":
    sys.exit(main())
