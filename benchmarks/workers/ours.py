"""Reverie, in-process: the calls of the README, nothing tuned for the benchmark."""

from __future__ import annotations

import itertools
import resource
from typing import Any

import numpy as np

import reverie

from . import payload
from .serve import Loop, serve

TABLE = "replay"


def client_of(capacity: int, sampler: Any, **options: Any) -> reverie.Client:
    table = reverie.Table(
        TABLE,
        max_size=capacity,
        sampler=sampler,
        remover=reverie.selectors.Fifo(),
        rate_limiter=reverie.rate_limiters.MinSize(1),
        **options,
    )
    return reverie.Server([table], listen=False).client()


def fill(client: reverie.Client, count: int) -> None:
    for start in range(0, count, payload.BLOCK):
        n = min(payload.BLOCK, count - start)
        client.insert_batch(TABLE, payload.transitions(n, start), priorities=payload.priorities(n, start))


def prioritised(row: dict[str, Any]) -> Loop:
    client = client_of(row["capacity"], reverie.selectors.Prioritized(payload.ALPHA))
    fill(client, row["capacity"])
    fresh = itertools.cycle(payload.new_priorities())

    def loop(n: int) -> None:
        for _ in range(n):
            batch = client.sample_batch(TABLE, payload.BATCH)
            batch.weights(beta=payload.BETA)
            client.update_priorities(TABLE, batch.info.key, next(fresh))

    return loop


def uniform(row: dict[str, Any]) -> Loop:
    client = client_of(row["capacity"], reverie.selectors.Uniform())
    fill(client, row["capacity"])

    def loop(n: int) -> None:
        for _ in range(n):
            client.sample_batch(TABLE, payload.BATCH)

    return loop


def push(row: dict[str, Any]) -> Loop:
    client = client_of(row["capacity"], reverie.selectors.Uniform())
    step = {name: column[0] for name, column in payload.transitions(1).items()}
    priorities = {TABLE: 1.0}

    def loop(n: int) -> None:
        for _ in range(n):
            client.insert(step, priorities)

    return loop


def push_writer(row: dict[str, Any]) -> Loop:
    """One `append` of a trajectory writer and one item over the step just written."""
    client = client_of(row["capacity"], reverie.selectors.Uniform())
    step = {name: column[0] for name, column in payload.transitions(1).items()}
    writer = client.trajectory_writer(num_keep_alive_refs=1)
    writer.append(step)
    item = {name: column[-1:] for name, column in writer.history.items()}
    writer.create_item(TABLE, 1.0, item)

    def loop(n: int) -> None:
        for _ in range(n):
            writer.append(step)
            history = writer.history
            writer.create_item(TABLE, 1.0, {name: history[name][-1:] for name in step})

    return loop


def write_frames(client: reverie.Client, frames: np.ndarray, n_step: int) -> None:
    """A stream of single frames through the transition writer; each is stored once."""
    quiet = np.zeros(1, dtype=bool)
    action, reward = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.float32)
    with client.transition_writer(TABLE, n_step=n_step, num_envs=1, frame_stack=payload.STACK) as writer:
        for frame in frames:
            writer.append(frame[None], action, reward, quiet, quiet)


def atari(row: dict[str, Any]) -> Loop:
    source = row.get("frames")
    client = client_of(row["capacity"], reverie.selectors.Uniform(), compression="none" if source is None else "auto")
    write_frames(client, payload.frames(row["capacity"] + 1, source), n_step=1)

    def loop(n: int) -> None:
        for _ in range(n):
            client.sample_batch(TABLE, payload.BATCH)

    return loop


def memory_per_step(steps: int, frames: str | None) -> dict[str, float]:
    """Bytes that `steps` Atari steps with 3-step items hold, each divided by the steps."""
    data = payload.frames(steps + 3, frames)
    before = resident_bytes()
    client = client_of(steps, reverie.selectors.Uniform(), compression="none" if frames is None else "auto")
    write_frames(client, data, n_step=3)
    info = client.info().tables[TABLE]
    return {
        "items": info.current_size,
        "table_bytes": info.size_bytes / steps,
        "resident_bytes": (resident_bytes() - before) / steps,
    }


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


serve(
    ["reverie", "numpy"],
    {"prioritised": prioritised, "uniform": uniform, "push": push, "push_writer": push_writer, "atari": atari},
    {"memory_per_step": memory_per_step},
)
