"""Random programs: plain data that both packages run, made from a seed alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import structured_programs

Program = dict[str, Any]

SELECTORS = ["Fifo", "Lifo", "MaxHeap", "MinHeap"]
NAMES = ["a", "b"]


def table(rng: random.Random, name: str) -> dict[str, Any]:
    """A table whose every decision follows from what was done to it."""
    kind = rng.choice(["table", "table", "table", "queue", "stack"])
    spec: dict[str, Any] = {"name": name, "kind": kind, "max_size": rng.randint(1, 6)}
    if kind != "table":
        return spec
    limiter: list[Any] = ["MinSize", rng.randint(1, 3)]
    draw = rng.random()
    if draw < 0.25:
        samples_per_insert, least = rng.choice([0.5, 1.0, 2.0, 3.5]), rng.randint(1, 3)
        limiter = ["SampleToInsertRatio", samples_per_insert, least, rng.choice([8.0, 16.0, [-3.0, 12.0]])]
    elif draw < 0.4:
        limiter = ["RateLimiter", rng.choice([1.0, 1.5]), rng.randint(1, 3), rng.choice([-4.0, 0.0]), 6.0]
    if limiter[0] != "MinSize":
        # What the limiter asks for must have room, or nothing ever happens.
        spec["max_size"] = rng.randint(3, 8)
    else:
        limiter[1] = min(limiter[1], spec["max_size"])
    return {
        **spec,
        "sampler": rng.choice(SELECTORS),
        "remover": rng.choice(SELECTORS),
        "limiter": limiter,
        "max_times_sampled": rng.choice([0, 0, 1, 2, 3]),
    }


def on_tables(rng: random.Random, tables: list[dict[str, Any]]) -> list[Any]:
    """One operation that needs no writer."""
    name = rng.choice(tables)["name"]
    priority = rng.choice([0.0, 0.5, 1.0, 1.0, 2.0, 7.25])
    return rng.choice(
        [
            ["sample", name, rng.randint(1, 3), False],
            ["sample", name, 1, rng.random() < 0.3],
            ["mutate", name, [[rng.randint(0, 9), priority]], []],
            ["mutate", name, [[rng.randint(0, 9), priority]], [rng.randint(0, 9)]],
            ["can_sample", name, rng.randint(1, 4)],
            ["can_insert", name, rng.randint(1, 4)],
            ["info", name],
            *([["reset", name]] if rng.random() < 0.2 else []),
        ]
    )


def ending(tables: list[dict[str, Any]]) -> list[list[Any]]:
    names = [spec["name"] for spec in tables]
    return [operation for name in names for operation in (["info", name], ["drain", name], ["info", name])]


def priority_of(rng: random.Random) -> float:
    return rng.choice([0.0, 0.5, 1.0, 1.0, 2.0, 3.0, 7.25])


def of_inserts(rng: random.Random) -> Program:
    """Single steps: what tables keep, give and let go."""
    tables = [table(rng, name) for name in NAMES[: rng.randint(1, 2)]]
    operations = []
    for step in range(rng.randint(20, 60)):
        if rng.random() < 0.5:
            names = rng.sample([spec["name"] for spec in tables], rng.randint(1, len(tables)))
            data = [{"array": ["int64", step]}, {"array": ["float32", [step, 0.5]]}]
            operations.append(["insert", data, {name: priority_of(rng) for name in names}])
        else:
            operations.append(on_tables(rng, tables))
    return {"tables": tables, "operations": operations + ending(tables)}


def step_data(step: int, shape: int = 2) -> dict[str, Any]:
    return {"o": {"array": ["float32", [step + at / 4 for at in range(shape)]]}, "r": {"array": ["int64", step]}}


def of_sequences(rng: random.Random) -> Program:
    """The legacy writer."""
    tables = [table(rng, name) for name in NAMES[: rng.randint(1, 2)]]
    length = rng.randint(1, 6)
    # Chunks of one step: after a flush in the middle of a chunk dm-reverb's writer miscounts its steps, takes items of
    # steps that it does not have, and fails to sample them ("Cannot slice (-2, 2) out of tensor with shape [2,2]").
    options: dict[str, Any] = {"max_sequence_length": length, "chunk_length": 1, "delta_encoded": rng.random() < 0.3}
    operations: list[list[Any]] = [["writer", "w", "writer", options]]
    step = 0
    for _ in range(rng.randint(20, 60)):
        draw = rng.random()
        if draw < 0.45:
            operations.append(["append", "w", step_data(step), {}])
            step += 1
        elif draw < 0.5:
            rows = rng.randint(1, 4)
            data = {
                "o": {"array": ["float32", [[step + row, 0.25] for row in range(rows)]]},
                "r": {"array": ["int64", [step + row for row in range(rows)]]},
            }
            operations.append(["append_sequence", "w", data])
            step += rows
        elif draw < 0.75:
            count = rng.choice([1, 1, 2, 3, length, length + 1, 0])
            operations.append(["create_item", "w", rng.choice(tables)["name"], count, priority_of(rng)])
        elif draw < 0.78:
            operations.append(["writer", "w", "writer", options])
        else:
            operations.append(on_tables(rng, tables))
    return {"tables": tables, "operations": operations + ending(tables)}


def index_of(rng: random.Random, length: int) -> Any:
    near = lambda: rng.randint(-length - 1, length)  # noqa: E731
    draw = rng.random()
    if draw < 0.3:
        return near()
    if draw < 0.45:
        return [near() for _ in range(rng.randint(1, 3))]
    start = rng.choice([None, -1, -2, -3, near()])
    stop = rng.choice([None, None, near()])
    return {"slice": [start, stop, rng.choice([None, None, 1, 2])]}


def of_trajectories(rng: random.Random) -> Program:
    """The trajectory writer: parts of steps, missing fields, histories, expired cells, columns of their own."""
    tables = [table(rng, name) for name in NAMES[: rng.randint(1, 2)]]
    keep = rng.randint(1, 6)
    operations: list[list[Any]] = [["writer", "w", "trajectory_writer", {"num_keep_alive_refs": keep}]]
    fields = ["o", "r", "x"]
    if rng.random() < 0.3:
        own = rng.randint(1, 8)
        options = {"num_keep_alive_refs": own, "max_chunk_length": rng.choice([None, 1, own])}
        operations.append(["configure", "w", [rng.choice(fields)], options])
    step = 0
    for _ in range(rng.randint(20, 60)):
        draw = rng.random()
        if draw < 0.45:
            whole = {**step_data(step), "x": {"array": ["uint8", [step % 256] * 3]}}
            given = {name: whole[name] for name in fields if rng.random() < 0.8}
            given.update({name: None for name in fields if name not in given and rng.random() < 0.3})
            if any(value is not None for value in given.values()):
                operations.append(["append", "w", given, {"partial_step": rng.random() < 0.15}])
                step += 1
        elif draw < 0.7:
            chosen = rng.sample(fields, rng.randint(1, 2))
            columns = {f"c{at}": [[name], index_of(rng, keep + 2)] for at, name in enumerate(chosen)}
            operations.append(["create_trajectory", "w", rng.choice(tables)["name"], priority_of(rng), columns])
        elif draw < 0.78:
            operations.append(["column", "w", [rng.choice(fields)], index_of(rng, keep + 2)])
        elif draw < 0.82:
            operations.append(rng.choice([["length", "w", [rng.choice(fields)]], ["episode_steps", "w"]]))
        elif draw < 0.85:
            operations.append(["end_episode", "w", {"clear_buffers": rng.random() < 0.7}])
        else:
            operations.append(on_tables(rng, tables))
    return {"tables": tables, "operations": operations + ending(tables)}


def of_arguments(rng: random.Random) -> Program:
    """Arguments at and beyond their limits: what is refused, and as what."""
    tables = [{**table(rng, "a"), "name": "a"}]
    good: dict[str, Any] = {
        "name": "made",
        "sampler": "Fifo",
        "remover": "Fifo",
        "max_size": 3,
        "limiter": ["MinSize", 1],
        "max_times_sampled": 0,
    }
    changes = [
        {"name": ""},
        {"max_size": rng.randint(-1, 1)},
        {"max_times_sampled": rng.randint(-2, 1)},
        {"limiter": ["MinSize", rng.randint(-1, 1)]},
        {"limiter": ["Queue", rng.randint(-1, 2)]},
        {
            "limiter": [
                "SampleToInsertRatio",
                rng.choice([-1.0, 0.0, 0.5, 1.0, 4.0]),
                rng.randint(0, 3),
                rng.choice([0.5, 1.0, 2.0, 8.0, [0.0, 1.0], [0.0, 12.0], [-10.0, 10.0], [30.0, 60.0]]),
            ]
        },
    ]
    operations: list[list[Any]] = [["make_table", {**good, **change}] for change in changes]
    length = rng.randint(-1, 3)
    options = {"max_sequence_length": length, "chunk_length": rng.choice([None, 0, 1, 2, 4])}
    operations.append(["writer", "w", "writer", {**options, "max_in_flight_items": rng.choice([None, 0, 1, 25])}])
    operations.append(["writer", "w", "trajectory_writer", {"num_keep_alive_refs": rng.randint(-1, 1)}])
    operations.append(["insert", {"x": {"array": ["int64", 1]}}, {}])
    operations.append(["writer", "w", "trajectory_writer", {"num_keep_alive_refs": 2}])
    operations.append(["length", "w", ["o"]])
    keep = rng.randint(0, 2)
    operations.append(["configure", "w", ["o"], {"num_keep_alive_refs": keep, "max_chunk_length": rng.randint(0, 2)}])
    operations.append(["append", "w", step_data(0), {}])
    operations.append(["create_trajectory", "w", "nobody", 1.0, {"c": [["o"], -1]}])
    rng.shuffle(operations[:6])
    return {"tables": tables, "operations": operations}


MAKERS: dict[str, Callable[[random.Random], Program]] = {
    "inserts": of_inserts,
    "sequences": of_sequences,
    "trajectories": of_trajectories,
    "arguments": of_arguments,
    "structured": structured_programs.program,
}


def program(kind: str, seed: int) -> Program:
    """The program of that kind and seed."""
    return MAKERS[kind](random.Random(f"{kind} {seed}"))
