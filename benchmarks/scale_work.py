"""The processes of `scale.py`: `serve`, which answers each line with the number of inserted items, or `clients PORT
TRANSPORT COUNT`, which then executes the commands on its stdin."""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import resource
import sys
import time
from collections.abc import Callable

import numpy as np

import reverie

TABLE, BATCH, PAYLOAD, CAPACITY = "replay", 64, 400, 20_000
#: Threads of a process that connect at the same time: a process may have many clients, and a round trip is short.
CONNECTING = 8


def serve() -> None:
    table = reverie.Table(
        TABLE,
        sampler=reverie.selectors.Uniform(),
        remover=reverie.selectors.Fifo(),
        max_size=CAPACITY,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )
    with reverie.Server([table]) as server:
        data = {"x": np.zeros((CAPACITY, PAYLOAD // 4), np.float32)}
        server.client().insert_batch(TABLE, data)
        print(server.port, flush=True)
        for _ in sys.stdin:
            print(server.client().info().tables[TABLE].num_inserts - CAPACITY, flush=True)


def clients(port: str, transport: str, count: int) -> None:
    address = f"127.0.0.1:{port}"
    made = [reverie.Client(address, transport=transport, patience=300.0, grace=300.0) for _ in range(count)]
    print(json.dumps("made"), flush=True)
    for line in sys.stdin:
        what, *seconds = line.split()
        print(json.dumps(connect(made) if what == "connect" else use(what, made, float(seconds[0]))), flush=True)


def connect(made: list[reverie.Client]) -> int:
    with concurrent.futures.ThreadPoolExecutor(CONNECTING) as pool:
        return len(list(pool.map(lambda client: client.info(timeout=300.0), made)))


def use(what: str, made: list[reverie.Client], seconds: float) -> tuple[int, int]:
    """Items that the clients moved in the time, one behind the other, and in all: every client at least once before."""
    data = {"x": np.random.default_rng(1).standard_normal((BATCH, PAYLOAD // 4), dtype=np.float32)}

    def insert(client: reverie.Client) -> None:
        client.insert_batch(TABLE, data, wait=False)

    def sample(client: reverie.Client) -> None:
        client.sample_batch(TABLE, BATCH)

    work: Callable[[reverie.Client], None] = {"insert": insert, "sample": sample}[what]
    for client in made:
        work(client)
        client.flush()
    count, end = 0, time.perf_counter() + seconds
    for client in itertools.cycle(made):
        work(client)
        count += BATCH
        if time.perf_counter() >= end:
            break
    for client in made:
        client.flush()
    return count, count + len(made) * BATCH


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if sys.argv[1] == "serve":
        serve()
    else:
        clients(sys.argv[2], sys.argv[3], int(sys.argv[4]))
