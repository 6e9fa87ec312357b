"""The processes of `server_model.py`: `serve HOST SIZE`, `use KIND SIZE BATCH ADDRESS`, and `memory WHAT COUNT`."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import reverie
from reverie import Table, rate_limiters, selectors

TABLE, TOKEN = "replay", "a-token-of-the-benchmark"
#: Bytes of payload that a table holds.
HELD = 64_000_000


def payload(size: int, items: int) -> dict[str, Any]:
    """Items of so many bytes of noise each."""
    return {"x": np.random.default_rng(1).integers(0, 2**32, (items, size // 4), dtype=np.uint32)}


def serve(host: str, size: int) -> None:
    """Prints its port; then, for each line, its processor seconds and what its table has counted."""
    held = min(20_000, HELD // size)
    table = Table(TABLE, selectors.Prioritized(0.6), selectors.Fifo(), held, rate_limiters.MinSize(1))
    with reverie.Server([table], host=host, port=0, token=TOKEN, insecure=True) as server:
        client = server.client()
        for begin in range(0, held, 500):
            client.insert_batch(TABLE, payload(size, min(500, held - begin)))
        print(json.dumps(server.port), flush=True)
        for _ in sys.stdin:
            info = client.info().tables[TABLE]
            figures = {"in": info.num_inserts, "out": info.num_samples, "updates": info.num_updates}
            print(json.dumps({"seconds": time.process_time(), "clock": time.perf_counter(), **figures}), flush=True)


def use(kind: str, size: int, batch: int, address: str) -> None:
    """Inserts, draws or updates batches until its stdin ends."""
    client = reverie.Client(address, transport="grpc", token=TOKEN)
    data = payload(size, batch)
    keys = client.sample_batch(TABLE, batch).info.key
    batches = iter(client.batches(TABLE, batch)) if kind == "out" else None
    work: dict[str, Callable[[], object]] = {
        "in": lambda: client.insert_batch(TABLE, data, wait=False),
        "out": lambda: next(batches) if batches else None,
        "updates": lambda: client.update_priorities(TABLE, keys, np.ones(batch), wait=False),
    }
    threading.Thread(target=end_with_stdin, daemon=True).start()
    while True:
        work[kind]()


def end_with_stdin() -> None:
    """Prints that it is ready, and at the end the cores that were busy; what is on its way then is not waited for."""
    print(json.dumps("ready"), flush=True)
    processor, clock = time.process_time(), time.perf_counter()
    sys.stdin.read()
    print(json.dumps((time.process_time() - processor) / (time.perf_counter() - clock)), flush=True)
    os._exit(0)


def used() -> int:
    """Bytes of memory of this process alone."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty", "Private_Clean"))) * 1024


def memory(what: str, count: int) -> None:
    """Prints the bytes that one more of `what` takes, of `count`, without its payload."""
    make, limiter, size = WHATS[what]
    table = Table(TABLE, selectors.Uniform(), selectors.Fifo(), count + 1, limiter)
    with reverie.Server([table], listen=False) as server:
        client = server.client()
        one = payload(size, 1)
        client.insert_batch(TABLE, one)
        before = used()
        kept = make(client, one, count)
        print(json.dumps((used() - before) / count - (size if size > 4 else 0)), flush=True)
        del kept


def of_items(client: reverie.Client, one: dict[str, Any], count: int) -> object:
    """Items that name the same cell."""
    writer = client.trajectory_writer(num_keep_alive_refs=1)
    writer.append(one)
    for _ in range(count):
        writer.create_item(TABLE, 1.0, {"x": writer.history["x"][-1]})
    writer.flush()
    return writer


def of_chunks(client: reverie.Client, one: dict[str, Any], count: int) -> object:
    """Items so large that each has a chunk of its own."""
    for _ in range(count):
        client.insert_batch(TABLE, one)
    return None


def of_inserts(client: reverie.Client, one: dict[str, Any], count: int) -> object:
    """Inserts that a limiter holds back."""
    for _ in range(count):
        client.insert_batch(TABLE, one, wait=False)
    return client


#: By kind: a function that makes so many of them, the limiter of its table, and the bytes of an item.
WHATS: dict[str, tuple[Callable[[reverie.Client, dict[str, Any], int], object], Any, int]] = {
    "item": (of_items, rate_limiters.MinSize(1), 4),
    "item with a chunk of its own": (of_chunks, rate_limiters.MinSize(1), 40_000),
    "insert that waits": (of_inserts, rate_limiters.Queue(1), 4),
}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", host, size]:
            serve(host, int(size))
        case ["use", kind, size, batch, address]:
            use(kind, int(size), int(batch), address)
        case ["memory", what, count]:
            memory(what, int(count))
