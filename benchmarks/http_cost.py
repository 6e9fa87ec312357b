"""`python -m benchmarks.http_cost`: what a page that is open, and a scrape each five seconds, cost a server.

One thread inserts batches of 64 rows and draws batches of 256, for some seconds without a reader and for some seconds
with one, in an order that changes from round to round. The reader is a process of its own: it reads the events that
the page reads, and scrapes the metrics each five seconds. For each round the file has the ratio of the calls per
second, with the reader over without, and the same of the calls per second of processor time of this process, which has
the server: that leaves out what other processes take from it. No figure counts alone, only the median of the ratios.

`--threads` asks another question, which a busy machine answers as well: the processor time of the server's HTTP threads
alone, as the kernel counts it, while the same thread inserts and draws. All work for readers is in these threads. A
table's lock is held by them for a part of that time, so that it bounds what they take from other threads, too.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reverie import Client, Server, Table, rate_limiters, selectors

from .report import machine

SCRAPE_SECONDS = 5.0


#: The name of the server's threads for readers.
HTTP_THREADS = "reverie-http"
#: Requests of a reader.
READERS = ("page", "scrape", "both")


def scrape(address: str) -> None:
    with contextlib.closing(http.client.HTTPConnection(address)) as connection:
        connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text"})
        connection.getresponse().read()


def read(address: str, what: str) -> None:
    """Reads events, scrapes, or both, until it is ended. Prints a line when it has read."""
    if what == "scrape":
        while True:
            scrape(address)
            print("read", flush=True)
            time.sleep(SCRAPE_SECONDS)
    stream = http.client.HTTPConnection(address)
    stream.request("GET", "/api/events")
    events, next_scrape = stream.getresponse(), 0.0
    while events.readline():
        if time.monotonic() >= next_scrape:
            next_scrape = time.monotonic() + SCRAPE_SECONDS
            if what == "both":
                scrape(address)
            print("read", flush=True)


@contextlib.contextmanager
def reader(address: str, what: str = "both") -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.http_cost", "--read", address, "--what", what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "read\n":
                raise RuntimeError(f"the reader of {address} ended")
            yield
        finally:
            process.terminate()


def work(client: Client, rows: np.ndarray, seconds: float) -> tuple[float, float]:
    """Calls per second, and per second of processor time of this process."""
    calls, started, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - started < seconds:
        client.insert_batch("t", {"obs": rows})
        client.sample_batch("t", 256)
        calls += 2
    return calls / (time.perf_counter() - started), calls / (time.process_time() - used)


def measure(transport: str, rounds: int, seconds: float, tables: int) -> dict[str, Any]:
    made = [
        Table(name, selectors.Prioritized(0.6), selectors.Fifo(), 100_000, rate_limiters.MinSize(1))
        for name in ["t", *(f"t{number}" for number in range(1, tables))]
    ]
    rows = np.random.default_rng(1).random((64, 16), np.float32)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server(made, http=0, listen=transport != "in-process"))
        if transport == "in-process":
            client = server.client()
        else:
            client = stack.enter_context(Client(server.address, transport=transport))
        work(client, rows, seconds)
        found: dict[str, list[float]] = {"wall": [], "processor": []}
        for number in range(rounds):
            turns: dict[bool, tuple[float, float]] = {}
            for read_by in (False, True) if number % 2 else (True, False):
                with reader(server.http_address) if read_by else contextlib.nullcontext():
                    turns[read_by] = work(client, rows, seconds)
            for kind, at in (("wall", 0), ("processor", 1)):
                found[kind].append(turns[True][at] / turns[False][at])
            print(
                f"{transport}: " + ", ".join(f"{kind} {ratios[-1]:.4f}" for kind, ratios in found.items()), flush=True
            )
    return {"transport": transport, "tables": tables, "ratios": found}


def processor_seconds() -> dict[bool, float]:
    """Processor time of this process's threads since they began: of those for readers (True), and of the others."""
    used = {True: 0.0, False: 0.0}
    for task in Path("/proc/self/task").iterdir():
        is_http = (task / "comm").read_text().startswith(HTTP_THREADS)
        used[is_http] += int((task / "schedstat").read_text().split()[0]) / 1e9
    return used


def measure_threads(seconds: float, tables: int) -> dict[str, Any]:
    """The share of one core that the HTTP threads use, for each kind of reader."""
    made = [
        Table(name, selectors.Prioritized(0.6), selectors.Fifo(), 100_000, rate_limiters.MinSize(1))
        for name in ["t", *(f"t{number}" for number in range(1, tables))]
    ]
    rows = np.random.default_rng(1).random((64, 16), np.float32)
    shares: dict[str, float] = {}
    with Server(made, http=0, listen=False) as server:
        client = server.client()
        work(client, rows, 1.0)
        for what in ("nothing", *READERS):
            with contextlib.nullcontext() if what == "nothing" else reader(server.http_address, what):
                before, began = processor_seconds(), time.perf_counter()
                calls, _ = work(client, rows, seconds)
                after, took = processor_seconds(), time.perf_counter() - began
            shares[what] = (after[True] - before[True]) / took
            others = (after[False] - before[False]) / took
            print(
                f"{tables} tables, {what}: HTTP threads {shares[what]:.4%} of one core, other threads {others:.1%}, "
                f"{calls:.0f} calls a second",
                flush=True,
            )
    return {"tables": tables, "seconds": seconds, "shares": shares}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--read", metavar="ADDRESS", help="be the reader of a server")
    parser.add_argument("--what", choices=READERS, default="both", help="what the reader does")
    parser.add_argument("--threads", action="store_true", help="the processor time of the HTTP threads instead")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=6.0, help="of a turn")
    parser.add_argument("--tables", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a JSON file")
    given = parser.parse_args()
    if given.read is not None:
        return read(given.read, given.what)
    load = os.getloadavg()[0]
    if given.threads:
        measure_threads(given.seconds, given.tables)
        print(f"load before: {load:.1f}")
        return None
    parts = [measure(way, given.rounds, given.seconds, given.tables) for way in ("in-process", "shared-memory")]
    for part in parts:
        for kind, ratios in part["ratios"].items():
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(f"{part['transport']}, {kind}: median {middle:.4f}, quartiles {low:.4f} and {high:.4f}")
    if given.out is not None:
        when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        run = {"when": when, "machine": machine(), "load_before": load, "seconds": given.seconds, "parts": parts}
        given.out.write_text(json.dumps(run, indent=1) + "\n")


if __name__ == "__main__":
    main()
