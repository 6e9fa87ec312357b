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
        # The table must have room for the items that the limiter waits for, or nothing ever happens.
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
    """Single steps: what tables keep, return and release."""
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


def index_of(rng: random.Random, steps: int) -> Any:
    """An index into a history of so many steps: mostly existing cells, now and then one from before the first.

    Left out are indexes that dm-reverb accepts and then fails on: an index behind the last gives the oldest cell, the
    history's length as the end of a slice counts as 0, an end without a start forgets expired cells, a cell that is
    named twice cannot be sampled ("Cannot slice (0, 2) out of tensor"), and a slice of no cells ends its process.
    """
    if not steps:
        return -1
    at = lambda: rng.randint(-steps - (rng.random() < 0.1), steps - 1)  # noqa: E731
    draw = rng.random()
    if draw < 0.3:
        return at()
    if draw < 0.45:
        return sorted({at() % steps for _ in range(rng.randint(1, 3))})
    start = rng.choice([-1, -2, -3, None, at()])
    first = steps + start if start is not None and start < 0 else start or 0
    stop = (
        rng.randint(max(first, 0) + 1, steps - 1)
        if start is not None and max(first, 0) + 1 < steps and rng.random() < 0.4
        else None
    )
    if stop is not None and rng.random() < 0.5:
        stop -= steps
    return {"slice": [start, stop, rng.choice([None, None, 1, 2])]}


class Steps:
    """Steps that a trajectory writer was given so far: programs that go wrong by accident teach little."""

    FIELDS = ("o", "r", "x")

    def __init__(self, rng: random.Random, whole: bool) -> None:
        self.rng, self.whole, self.count, self.number, self.given = rng, whole, 0, 0, set[str]()

    def append(self) -> list[Any]:
        """A step, or a part of one; sometimes with a field that the open step has already."""
        rng, whole = self.rng, {**step_data(self.number), "x": {"array": ["uint8", [self.number % 256] * 3]}}
        fields = [name for name in self.FIELDS if name not in self.given]
        if self.whole:
            self.count, self.number = self.count + 1, self.number + 1
            return ["append", "w", whole, {"partial_step": False}]
        data = {name: whole[name] for name in fields if rng.random() < 0.8}
        partial = rng.random() < 0.25
        if self.given and rng.random() < 0.1:
            return ["append", "w", {**data, rng.choice(sorted(self.given)): whole["r"]}, {"partial_step": partial}]
        if not data and not self.given:
            data = {"o": whole["o"]}
        data.update({name: None for name in fields if name not in data and rng.random() < 0.3})
        self.count += not self.given
        self.number += 1
        if partial:
            self.given |= {name for name, value in data.items() if value is not None}
        else:
            self.given = set()
        return ["append", "w", data, {"partial_step": partial}]


def of_trajectories(rng: random.Random) -> Program:
    """The trajectory writer: parts of steps, missing fields, histories, expired cells, columns of their own."""
    tables = [table(rng, name) for name in NAMES[: rng.randint(1, 2)]]
    # A column of its own counts its own cells in dm-reverb, and the steps here: alike where every step has them all.
    keep, of_its_own = rng.randint(1, 6), rng.random() < 0.3
    steps = Steps(rng, of_its_own)
    operations: list[list[Any]] = [["writer", "w", "trajectory_writer", {"num_keep_alive_refs": keep}]]
    if of_its_own:
        # Not more than the others: dm-reverb makes the column's history before it is given the longer length.
        own = rng.randint(1, keep)
        options = {"num_keep_alive_refs": own, "max_chunk_length": rng.choice([None, 1, own])}
        operations.append(["configure", "w", [rng.choice(Steps.FIELDS)], options])
    # All columns at first: what their names mean in a history does not hang on chance.
    whole = {**step_data(0), "x": {"array": ["uint8", [0] * 3]}}
    operations.append(["append", "w", whole, {"partial_step": False}])
    steps.count, steps.number = 1, 1
    for _ in range(rng.randint(20, 60)):
        draw = rng.random()
        if draw < 0.45:
            operations.append(steps.append())
        elif draw < 0.7:
            chosen = rng.sample(Steps.FIELDS, rng.randint(1, 2))
            columns = {f"c{at}": [[name], index_of(rng, steps.count)] for at, name in enumerate(chosen)}
            operations.append(["create_trajectory", "w", rng.choice(tables)["name"], priority_of(rng), columns])
        elif draw < 0.78:
            operations.append(["column", "w", [rng.choice(Steps.FIELDS)], index_of(rng, steps.count)])
        elif draw < 0.82:
            operations.append(rng.choice([["length", "w", [rng.choice(Steps.FIELDS)]], ["episode_steps", "w"]]))
        elif draw < 0.85 and not steps.given:
            # Not within a step: there dm-reverb's writer still takes it for open in the next episode.
            clear = rng.random() < 0.7
            operations.append(["end_episode", "w", {"clear_buffers": clear}])
            steps.count = 0 if clear else steps.count
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
        {"limiter": ["Queue", rng.randint(1, 2)]},  # dm-reverb takes 0, which nothing ever goes into
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
