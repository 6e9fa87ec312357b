"""dm-reverb over its own network, its server in another process, in its documented best settings."""

from __future__ import annotations

import itertools
import os
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import reverb
import tensorflow as tf

from . import wire_payload as wire
from .serve import Loop, serve

#: "2 to 3 times the batch" is the documentation's advice.
SAMPLES_IN_FLIGHT = 3 * wire.BATCH


class State:
    """The server that is up, so that the next row ends it."""

    server: wire.ServerProcess | None = None


def client_of(row: dict[str, Any], sampler: str = "uniform") -> reverb.Client:
    if State.server is not None:
        State.server.close()
    State.server = wire.ServerProcess("workers.dm_reverb_server", row["capacity"], sampler)
    return reverb.Client(State.server.address)


def fill(client: reverb.Client, row: dict[str, Any], count: int | None = None) -> None:
    data = wire.steps(64, row["payload"])
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for index in range(count or row["capacity"]):
            writer.append({"x": data[index % len(data)]})
            writer.create_item(wire.TABLE, 1.0, {"x": writer.history["x"][-1:]})
            if index % 200 == 0:
                writer.flush()


def batches(row: dict[str, Any]) -> Loop:
    client = client_of(row)
    fill(client, row)
    dataset = reverb.TrajectoryDataset(
        client.server_address,
        wire.TABLE,
        dtypes={"x": tf.float32},
        shapes={"x": tf.TensorShape([1, row["payload"] // 4])},
        max_in_flight_samples_per_worker=SAMPLES_IN_FLIGHT,
    )
    iterator = dataset.batch(wire.BATCH).prefetch(wire.in_flight(row["payload"])).as_numpy_iterator()

    def loop(n: int) -> None:
        for _ in range(n):
            next(iterator)

    return loop


def per_item(row: dict[str, Any]) -> Loop:
    client = client_of(row)
    fill(client, row)

    def loop(n: int) -> None:
        for _ in client.sample(wire.TABLE, num_samples=n):
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


def updates(row: dict[str, Any]) -> Loop:
    client = client_of(row, "prioritized")
    fill(client, row)
    keys = sorted({sample[0].info.key for sample in client.sample(wire.TABLE, num_samples=4 * wire.UPDATES)})
    keys = keys[: wire.UPDATES]
    values = np.random.default_rng(1).exponential(1.0, (64, len(keys))) + 1e-3
    fresh = itertools.cycle([dict(zip(keys, row.tolist(), strict=True)) for row in values])

    def loop(n: int) -> None:
        for _ in range(n):
            client.mutate_priorities(wire.TABLE, updates=next(fresh))

    return loop


def _write(address: str, payload: int, seconds: float, ready: Any, start: Any, written: Any) -> None:
    data = wire.steps(wire.STEPS, payload)
    writer = reverb.Client(address).trajectory_writer(num_keep_alive_refs=1)

    def write() -> None:
        for step in data:
            writer.append({"x": step})
            writer.create_item(wire.TABLE, 1.0, {"x": writer.history["x"][-1:]})
        writer.flush()

    for _ in range(wire.warm_rounds(payload)):
        write()
    count = 0
    ready.release()
    start.wait()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        write()
        count += len(data)
    with written.get_lock():
        written.value += count
    ready.release()


def many_writers(processes: int, payload: int, capacity: int, transport: str, seconds: float) -> dict[str, float]:
    """Items per second that so many writer processes bring in together; `transport` is the only one there is."""
    client = client_of({"capacity": capacity})
    return {"items_per_second": wire.together(processes, _write, (client.server_address, payload, seconds))}


if __name__ == "__main__":
    serve(
        ["dm-reverb", "tensorflow", "numpy"],
        {"batches": batches, "per_item": per_item, "append": append, "updates": updates},
        {"many_writers": many_writers},
    )
