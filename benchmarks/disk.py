"""`python -m benchmarks.disk`: what a journal costs, against plain files on the same disk.

Rows of inserts: threads insert one item or 64 per call. Without a journal, with one at each `sync`, and as plain files:
as many bytes appended to one file without a sync, with an fsync by another thread every second, and an fsync after
each. Contenders take turns, in an order that rotates from round to round, each with a fresh folder. A figure is the
median over the rounds; a ratio is the median of the ratios of single rounds, with the least and the most next to it.

Other rows: a checkpoint, against dm-reverb's in its environment (`make bench-network` makes it); the start of a server
from its journal, against reading the same files; the longest draw while another thread inserts and the journal syncs;
tables larger than memory (`larger.py`).

`--folder` names the disk that is measured: not one in memory, where a sync does nothing. A row is a function of the
options in `ROWS`.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

import reverie
from reverie import Server
from reverie.checkpointers import DefaultCheckpointer

from . import larger, stalls
from .disk_rows import INTERVAL, NONE, SYNCS, Options, fill, in_turns, journal, payload, row_of, table
from .peers import NETWORK_PEERS, ROOT, VENVS
from .report import duration, machine

RESULTS = ROOT / "benchmarks" / "results"
PLAIN, FSYNC, PERIODIC = "plain writes", "plain writes and fsync", "plain writes, an fsync a second"


@contextlib.contextmanager
def synced(file: IO[bytes], period: float) -> Iterator[None]:
    """Another thread syncs the file once in each period, and the end waits for a last sync."""
    end = threading.Event()

    def sync() -> None:
        while not end.wait(period):
            os.fsync(file.fileno())

    thread = threading.Thread(target=sync)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


# ---------------------------------------------------------------- inserts


def calls_per_second(call: Callable[[int], None], writers: int, seconds: float) -> float:
    """Calls of all threads per second. None begins after the time; the clock runs to the end of the last."""
    counts, start = [0] * writers, threading.Barrier(writers + 1)

    def work(number: int) -> None:
        start.wait()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            call(number)
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began)


def insert_turn(options: Options, contender: str, size: int, items: int, writers: int) -> float:
    data = payload(size, items)
    with options.fresh() as folder:
        if contender in (PLAIN, PERIODIC, FSYNC):
            lock, raw = threading.Lock(), data.tobytes()
            with open(folder / "plain", "wb", buffering=0) as file:

                def append(_: int) -> None:
                    with lock:
                        file.write(raw)
                        if contender == FSYNC:
                            os.fsync(file.fileno())

                with synced(file, INTERVAL) if contender == PERIODIC else contextlib.nullcontext():
                    return calls_per_second(append, writers, options.seconds)
        kept = None if contender == NONE else journal(folder, contender)
        most = max(1_000, (256 << 20) // size)
        with Server([table(most)], listen=False, journal=kept) as server:
            clients = [server.client() for _ in range(writers)]

            def insert(number: int) -> None:
                clients[number].insert_batch("t", {"x": data})

            return calls_per_second(insert, writers, options.seconds)


def insert_rows(options: Options) -> list[dict[str, Any]]:
    contenders = (NONE, *SYNCS, PLAIN, PERIODIC, FSYNC)
    against: dict[str, tuple[str, ...]] = {
        NONE: SYNCS,
        PLAIN: ("os", "interval"),
        PERIODIC: ("interval",),
        FSYNC: ("always",),
    }
    rows = []
    for size, items in ((400, 1), (400, 64), (40_000, 1)):
        for writers in (1, 64):
            what = f"{size} B" if items == 1 else f"{items} x {size} B"
            name = f"inserts of {what}, {writers} {'writer' if writers == 1 else 'writers'}"
            turn = functools.partial(insert_turn, options, size=size, items=items, writers=writers)
            rows.append(row_of(name, "calls/s", in_turns(name, contenders, options.rounds, turn), against))
    return rows


# ---------------------------------------------------------------- checkpoints, starts, stalls


def checkpoint_rows(options: Options) -> list[dict[str, Any]]:
    """A first checkpoint of items of 400 B: all bytes are written."""
    name = f"checkpoint of {options.items} items of 400 B"

    def ours(with_journal: bool) -> float:
        with options.fresh() as folder:
            kept = journal(folder, "interval") if with_journal else None
            checkpointer = None if with_journal else DefaultCheckpointer(folder / "checkpoints")
            with Server([table(options.items)], None, checkpointer, listen=False, journal=kept) as server:
                fill(server, options.items, 400)
                began = time.perf_counter()
                server.client().checkpoint()
                return time.perf_counter() - began

    python = VENVS / "dm-reverb" / "bin" / "python"
    turns: dict[str, Callable[[], float]] = {
        "reverie": lambda: ours(False),
        "reverie with a journal": lambda: ours(True),
    }
    skipped = {}
    if options.smoke:
        skipped["dm-reverb"] = "no peers in a smoke run"
    elif not python.exists():
        wanted = " ".join(NETWORK_PEERS["dm-reverb"].requirements)
        skipped["dm-reverb"] = f"{wanted} is not installed: `make bench-network ARGS='--peers dm-reverb'` makes it"
    else:
        turns["dm-reverb"] = lambda: reverb_checkpoint(options, python)
    seconds = in_turns(name, tuple(turns), options.rounds, lambda of: turns[of]())
    against = {"dm-reverb": ("reverie", "reverie with a journal")} if "dm-reverb" in turns else {}
    return [row_of(name, "s", seconds, against) | {"skipped": skipped}]


def reverb_checkpoint(options: Options, python: Path) -> float:
    """Seconds of dm-reverb's first checkpoint of as many items."""
    with options.fresh() as folder:
        command = [python, "-W", "ignore", "-m", "workers.dm_reverb_checkpoint", folder, str(options.items)]
        done = subprocess.run(command, cwd=ROOT / "benchmarks", check=True, capture_output=True, text=True)
        return float(done.stdout.splitlines()[-1])


def start_rows(options: Options) -> list[dict[str, Any]]:
    """The start of a server from a journal without a checkpoint of its items."""
    name = f"start from a journal of {options.items} items of 400 B"
    with options.fresh() as made:
        with Server([table(options.items)], listen=False, journal=journal(made, "interval")) as server:
            fill(server, options.items, 400)
        files = list((made / "journal").glob("*.segment"))
        written = sum(file.stat().st_size for file in files)

        def turn(of: str) -> float:
            if of == "reading the files":
                began = time.perf_counter()
                for file in files:
                    file.read_bytes()
                return time.perf_counter() - began
            with options.fresh() as folder:
                shutil.copytree(made / "journal", folder / "journal")
                began = time.perf_counter()
                with Server([table(options.items)], listen=False, journal=journal(folder, "interval")) as server:
                    took = time.perf_counter() - began
                    assert server.tables[0].info.current_size == options.items
                return took

        seconds = in_turns(name, ("reverie", "reading the files"), options.rounds, turn)
    return [row_of(name, "s", seconds, {"reading the files": ("reverie",)}) | {"bytes": written}]


#: Functions that measure, by the name that `--rows` takes.
ROWS: dict[str, Callable[[Options], list[dict[str, Any]]]] = {
    "inserts": insert_rows,
    "checkpoint": checkpoint_rows,
    "start": start_rows,
    "stall": stalls.rows,
    "larger": larger.rows,
}


# ---------------------------------------------------------------- figures


def text(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = ["| row | contender | median | ratios (least to most of a round) |", "|---|---|---|---|"]
    for row in rows:
        for contender, value in row["medians"].items():
            shown = duration(value) if row["unit"] == "s" else f"{value:,.0f} {row['unit']}"
            ratios = [
                f"{ratio:.3g} of {of.partition(' / ')[2]} ({least:.3g} to {most:.3g})"
                for of, (ratio, least, most) in row["ratios"].items()
                if of.partition(" / ")[0] == contender
            ]
            lines.append(f"| {row['name']} | {contender} | {shown} | {'; '.join(ratios)} |")
        lines += [f"| {row['name']} | {peer} | skipped | {why} |" for peer, why in row.get("skipped", {}).items()]
        lines += [
            f"| where it goes | {contender} | {account} | |" for contender, account in row.get("where", {}).items()
        ]
    return "\n".join(lines)


def main() -> int:
    """Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.disk", description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT, help="a folder on the disk to measure (%(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender in a row (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a turn of inserts or draws (%(default)s)")
    parser.add_argument("--items", type=int, default=1_000_000, help="of checkpoints and starts (%(default)s)")
    parser.add_argument("--rows", default="", help=f"only these, by commas: {', '.join(ROWS)}")
    parser.add_argument("--smoke", action="store_true", help="small and short: shows that it runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the JSON")
    given = parser.parse_args()
    names = [name for name in given.rows.split(",") if name] or list(ROWS)
    if unknown := set(names) - set(ROWS):
        parser.error(f"unknown rows {sorted(unknown)}; there are {', '.join(ROWS)}")
    rounds, seconds, items = (1, 0.05, 2_000) if given.smoke else (given.rounds, given.seconds, given.items)
    options = Options(given.folder, rounds, seconds, items, given.smoke)
    began = time.time()
    rows = [row for name in names for row in ROWS[name](options)]
    print(text(rows))
    if given.smoke:
        return 0
    run = {
        "suite": "disk",
        "machine": machine(),
        "versions": {"reverie": reverie.__version__, "numpy": np.__version__},
        "folder": str(given.folder),
        "rounds": rounds,
        "seconds_per_turn": seconds,
        "wall_seconds": time.time() - began,
        "rows": rows,
    }
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"{time.strftime('%Y-%m-%d-%H%M', time.gmtime())}-disk.json"
    path.write_text(json.dumps(run, indent=1) + "\n")
    print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
