"""`reverie bench`: the speed of replay on this machine over each transport, and the machine's own limit."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import reverie
from reverie.cli.common import refuse
from reverie.cli.sizes import size
from reverie.testing import TRANSPORTS, Transport, serve

EPILOG = "Exit codes: 0 measured; 2 invalid arguments, or this machine has too little memory."
TABLE = "replay"
PIECE_SECONDS = 0.02
"""A figure is the median over pieces of this length: other work on the machine affects only a few of them."""
AHEAD = 4


def bench(
    transport: Annotated[
        list[str] | None, typer.Option(help=f"Transports to measure: {', '.join(TRANSPORTS)} (default: all).")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Transitions in a batch.")] = 256,
    capacity: Annotated[
        int, typer.Option(min=1, help="Transitions in the table, which is full during the measurement.")
    ] = 20_000,
    obs_shape: Annotated[str, typer.Option(help="Shape of an observation, such as 4 or 84x84x3.")] = "4",
    obs_dtype: Annotated[str, typer.Option(help="Dtype of an observation, by its NumPy name.")] = "float32",
    seconds: Annotated[float, typer.Option(min=PIECE_SECONDS, help="Seconds for each measurement.")] = 0.5,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure the time of each call on this machine: prioritised replay of transitions, in-process and remote.

    A transition is `obs`, `next_obs`, `action`, `reward` and `discount`. The data is noise and does not compress.
    """
    transports = [_transport(name) for name in transport or TRANSPORTS]
    columns = _columns(obs_shape, obs_dtype, capacity)
    step_bytes = sum(column.nbytes for column in columns.values()) // capacity
    if batch_size > capacity:
        refuse(f"a batch of {batch_size:,} does not fit a table of {capacity:,}: raise --capacity")
    try:
        rows = {transport: dict(measured(transport, columns, batch_size, seconds)) for transport in transports}
    except (MemoryError, reverie.ReplayError) as error:
        refuse(error)
    source = next(iter(columns.values()))[:batch_size].copy()
    limit = per_call(lambda: source.copy(), seconds) * step_bytes * batch_size / max(source.nbytes, 1)
    document = {
        "batch_size": batch_size,
        "capacity": capacity,
        "transition_bytes": step_bytes,
        "seconds_per_call": rows,
        "seconds_per_copy_of_a_batch": limit,
    }
    if as_json:
        print(json.dumps(document))
        return
    console = Console(highlight=False)
    console.print(
        f"prioritised, {capacity:,} transitions of {size(step_bytes)}; batches of {batch_size:,},"
        f" {size(step_bytes * batch_size)}, which this machine copies in {_time(limit)}",
        soft_wrap=True,
    )
    console.print(view(document))


def measured(
    transport: Transport, columns: dict[str, np.ndarray[Any, Any]], batch_size: int, seconds: float
) -> Iterator[tuple[str, float]]:
    """The name and seconds of each call, on a full table over this transport."""
    capacity = len(columns["action"])
    table = reverie.Table(
        TABLE,
        max_size=capacity,
        sampler=reverie.selectors.Prioritized(0.6),
        remover=reverie.selectors.Fifo(),
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )
    rng = np.random.default_rng(0)
    with serve([table], transport) as client:
        for start in range(0, capacity, 1_000):
            some = {name: column[start : start + 1_000] for name, column in columns.items()}
            client.insert_batch(TABLE, some, priorities=rng.exponential(size=len(some["action"])))
        yield "append of a transition", _append(client, columns, seconds)
        rows = {name: column[:batch_size] for name, column in columns.items()}
        yield "insert_batch", per_call(lambda: client.insert_batch(TABLE, rows), seconds)
        yield "sample_batch", per_call(lambda: client.sample_batch(TABLE, batch_size), seconds)
        with client.batches(TABLE, batch_size=batch_size, prefetch=AHEAD) as batches:
            yield f"batches, {AHEAD} ahead", per_call(lambda: next(batches), seconds)
        keys = client.sample_batch(TABLE, batch_size).info.key
        priorities = rng.exponential(size=batch_size)
        yield "update_priorities", per_call(lambda: client.update_priorities(TABLE, keys, priorities), seconds)


def per_call(call: Callable[[], Any], seconds: float) -> float:
    """Seconds per call: the median over pieces of `PIECE_SECONDS`, without the first piece."""
    pieces = []
    end = time.perf_counter() + PIECE_SECONDS + seconds
    while True:
        count, start = 0, time.perf_counter()
        while (now := time.perf_counter()) - start < PIECE_SECONDS:
            call()
            count += 1
        pieces.append((now - start) / count)
        if now >= end:
            return statistics.median(pieces[1:] or pieces)


def view(document: dict[str, Any]) -> Table:
    """One line per call and transport."""
    grid = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("call", "transport", "time", "transitions/s", "bytes/s"):
        grid.add_column(heading, justify="left" if heading in ("call", "transport") else "right")
    transports = document["seconds_per_call"]
    for call in next(iter(transports.values())):
        for transport, rows in transports.items():
            rate = (1 if call.startswith("append") else document["batch_size"]) / rows[call]
            moved = "-" if call.startswith("update") else f"{size(rate * document['transition_bytes'])}/s"
            grid.add_row(call, transport, _time(rows[call]), f"{rate:,.0f}", moved)
    return grid


def _append(client: reverie.Client, columns: dict[str, np.ndarray[Any, Any]], seconds: float) -> float:
    observations = cycle(columns["obs"][: 1 + 1_000 // max(columns["obs"][0].nbytes // 1_000, 1)])
    with client.transition_writer(TABLE) as writer:
        return per_call(lambda: writer.append(next(observations), 1, 0.5, False, False), seconds)


def _columns(shape: str, dtype: str, capacity: int) -> dict[str, np.ndarray[Any, Any]]:
    try:
        sides = tuple(int(side) for side in shape.split("x")) if shape else ()
        kind = np.dtype(dtype)
        if min(sides, default=1) < 1 or kind.hasobject or kind.itemsize == 0:
            raise ValueError
    except (ValueError, TypeError):
        refuse(
            f"--obs-shape {shape!r} and --obs-dtype {dtype!r} do not describe an observation; write them as 84x84x3"
            " and uint8"
        )
    rng = np.random.default_rng(0)
    try:
        noise = rng.bytes((capacity + 1) * int(np.prod(sides)) * kind.itemsize)
        obs = np.frombuffer(noise, kind).reshape(capacity + 1, *sides)
        return {
            "obs": obs[:-1],
            "next_obs": obs[1:],
            "action": rng.integers(0, 2, capacity),
            "reward": np.zeros(capacity, np.float32),
            "discount": np.ones(capacity, np.float32),
        }
    except (MemoryError, OverflowError, ValueError):
        refuse(f"{capacity:,} observations of {shape} {dtype} do not fit in memory: lower --capacity")


def _transport(name: str) -> Transport:
    for transport in TRANSPORTS:
        if name == transport:
            return transport
    refuse(f"unknown transport {name!r}: known are {', '.join(TRANSPORTS)}")


def _time(seconds: float) -> str:
    for unit, scale in (("ns", 1e9), ("us", 1e6), ("ms", 1e3)):
        if seconds * scale < 1000:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"
