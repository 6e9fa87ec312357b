"""Reverie with its server in another process; the row names the transport, and it is asserted."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import time
from typing import Any

import numpy as np

import reverie

from . import wire_payload as wire
from .serve import Loop, serve


class State:
    """The server that is up, so that the next row ends it."""

    server: wire.ServerProcess | None = None
    #: Those that are shards of one replay, for a row with several.
    shards: tuple[wire.ServerProcess, ...] = ()


def end() -> None:
    for server in (State.server, *State.shards):
        if server is not None:
            server.close()
    State.server, State.shards = None, ()


def client_of(row: dict[str, Any], sampler: str = "uniform") -> reverie.Client:
    end()
    State.server = wire.ServerProcess("workers.ours_server", row["capacity"], sampler)
    return connect(State.server.address, row["transport"])


def connect(address: str, transport: str) -> reverie.Client:
    client = reverie.Client(address, transport=transport)
    taken = client.info().transport
    expected = "shared-memory" if transport == "auto" else transport
    if taken != expected:
        raise RuntimeError(f"the row is about {expected}, the client took {taken}: {client.info().reason}")
    return client


def fill(client: reverie.Client, row: dict[str, Any]) -> None:
    data = wire.steps(64, row["payload"])
    left = row["capacity"]
    while left > 0:
        n = min(left, len(data))
        client.insert_batch(wire.TABLE, {"x": data[:n]})
        left -= n


def batches(row: dict[str, Any]) -> Loop:
    client = client_of(row)
    fill(client, row)
    iterator = iter(client.batches(wire.TABLE, wire.BATCH, prefetch=wire.in_flight(row["payload"])))

    def loop(n: int) -> None:
        for _ in range(n):
            next(iterator)

    return loop


def one_batch(row: dict[str, Any]) -> Loop:
    client = client_of(row)
    fill(client, row)

    def loop(n: int) -> None:
        for _ in range(n):
            client.sample_batch(wire.TABLE, wire.BATCH)

    return loop


def from_shards(count: int, row: dict[str, Any]) -> Loop:
    """One batch at a time of a replay that is spread over so many servers."""
    end()
    part = row["capacity"] // count
    State.shards = tuple(wire.ServerProcess("workers.ours_server", part, "uniform", shard) for shard in range(count))
    client = reverie.Client([connect(server.address, row["transport"]) for server in State.shards])
    for each in client.clients:
        fill(each, {**row, "capacity": part})

    def loop(n: int) -> None:
        for _ in range(n):
            client.sample_batch(wire.TABLE, wire.BATCH)

    return loop


def per_item(row: dict[str, Any]) -> Loop:
    client = client_of(row)
    fill(client, row)

    def loop(n: int) -> None:
        for _ in client.sample(wire.TABLE, n):
            pass

    return loop


def append(row: dict[str, Any]) -> Loop:
    client = client_of(row)
    data = wire.steps(64, row["payload"])
    writer = client.trajectory_writer(num_keep_alive_refs=1)
    steps = itertools.cycle([{"x": step} for step in data])

    def loop(n: int) -> None:
        for _ in range(n):
            writer.append(next(steps))
            writer.create_item(wire.TABLE, 1.0, {"x": writer.history["x"][-1:]})
        writer.flush()

    return loop


def insert_batch(row: dict[str, Any]) -> Loop:
    client = client_of(row)
    data = {"x": wire.steps(wire.BATCH, row["payload"])}

    def loop(n: int) -> None:
        for _ in range(n):
            client.insert_batch(wire.TABLE, data)

    return loop


def insert_batch_alone(row: dict[str, Any]) -> Loop:
    """The same without waiting for keys; the last flush is within the clock."""
    client = client_of(row)
    data = {"x": wire.steps(wire.BATCH, row["payload"])}

    def loop(n: int) -> None:
        for _ in range(n):
            client.insert_batch(wire.TABLE, data, wait=False)
        client.flush()

    return loop


def insert_batch_threads(row: dict[str, Any]) -> Loop:
    """The same from `THREADS` threads of one client: each call waits for its keys."""
    insert = insert_batch(row)
    pool = concurrent.futures.ThreadPoolExecutor(wire.THREADS)

    def loop(n: int) -> None:
        shares = [n // wire.THREADS + (thread < n % wire.THREADS) for thread in range(wire.THREADS)]
        for done in [pool.submit(insert, share) for share in shares]:
            done.result()

    return loop


def updates(row: dict[str, Any]) -> Loop:
    client = client_of(row, "prioritized")
    fill(client, row)
    keys = client.sample_batch(wire.TABLE, wire.UPDATES).info.key
    fresh = itertools.cycle(np.random.default_rng(1).exponential(1.0, (64, wire.UPDATES)) + 1e-3)

    def loop(n: int) -> None:
        for _ in range(n - 1):
            client.update_priorities(wire.TABLE, keys, next(fresh), wait=False)
        # The last one's answer comes after all others were done.
        client.update_priorities(wire.TABLE, keys, next(fresh))

    return loop


def one_update(row: dict[str, Any]) -> Loop:
    client = client_of(row, "prioritized")
    fill(client, row)
    keys = client.sample_batch(wire.TABLE, wire.UPDATES).info.key
    fresh = itertools.cycle(np.random.default_rng(1).exponential(1.0, (64, wire.UPDATES)) + 1e-3)

    def loop(n: int) -> None:
        for _ in range(n):
            client.update_priorities(wire.TABLE, keys, next(fresh))

    return loop


def _write(address: str, transport: str, payload: int, seconds: float, ready: Any, start: Any, written: Any) -> None:
    client = connect(address, transport)
    data = wire.steps(wire.STEPS, payload)
    writer = client.trajectory_writer(num_keep_alive_refs=1)

    def write() -> None:
        for step in data:
            writer.append({"x": step})
            writer.create_item(wire.TABLE, 1.0, {"x": writer.history["x"][-1:]})

    for _ in range(wire.warm_rounds(payload)):
        write()
    writer.flush()
    count = 0
    ready.release()
    start.wait()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        write()
        count += len(data)
    writer.flush()
    with written.get_lock():
        written.value += count
    ready.release()


def many_writers(processes: int, payload: int, capacity: int, transport: str, seconds: float) -> dict[str, float]:
    """Items per second that so many writer processes bring in together, from their common start to the last flush."""
    client_of({"capacity": capacity, "transport": transport})
    assert State.server is not None
    return {"items_per_second": wire.together(processes, _write, (State.server.address, transport, payload, seconds))}


if __name__ == "__main__":
    serve(
        ["reverie", "numpy"],
        {
            "batches": batches,
            "one_batch": one_batch,
            **{f"from_shards_{count}": functools.partial(from_shards, count) for count in (1, 2, 4)},
            "per_item": per_item,
            "append": append,
            "insert_batch": insert_batch,
            "insert_batch_alone": insert_batch_alone,
            "insert_batch_threads": insert_batch_threads,
            "updates": updates,
            "one_update": one_update,
        },
        {"many_writers": many_writers},
    )
