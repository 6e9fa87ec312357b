"""Runs programs against one of the two packages: `python worker.py theirs`, `python worker.py ours [transport]`.

The code is one for both: whatever differs in the outcomes differs in the packages. It imports nothing of this project
but the package itself, since the other's environment has neither.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from typing import Any

import numpy as np

#: The first of these that an error is an instance of is its kind; names that only one package has are of neither.
KINDS = (ValueError, TypeError, IndexError, KeyError, RuntimeError, AttributeError, TimeoutError)

#: Milliseconds that an item may take to get into its table where the limiter has room for it.
CONFIRMED_WITHIN = 20_000


def load(which: str) -> Any:
    """The package under the name `reverb`, as ported code has it."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if which == "ours":
        import reverie

        sys.modules["reverb"] = reverie
    return importlib.import_module("reverb")


class Run:
    """One program's server, client, writers, and the items that it saw."""

    def __init__(self, reverb: Any, program: dict[str, Any], transport: str | None) -> None:
        self.reverb = reverb
        self.tables = {spec["name"]: self._table(spec) for spec in program["tables"]}
        self.consuming = {
            spec["name"]
            for spec in program["tables"]
            if spec.get("max_times_sampled") or spec.get("kind") in ("queue", "stack")
        }
        #: Tables of which each item is drawn once: deleting one gives its place to another here, and not in dm-reverb.
        self.once = {
            spec["name"]
            for spec in program["tables"]
            if spec.get("max_times_sampled") == 1 or spec.get("kind") in ("queue", "stack")
        }
        self.server = reverb.Server(list(self.tables.values()))
        address = f"localhost:{self.server.port}"
        self.client = reverb.Client(address) if transport is None else reverb.Client(address, transport=transport)
        self.writers: dict[str, Any] = {}
        #: Keys by (table, the item's data): keys themselves differ from run to run.
        self.keys: dict[tuple[str, str], int] = {}

    def _table(self, spec: dict[str, Any]) -> Any:
        rv = self.reverb
        kind = spec.get("kind", "table")
        if kind in ("queue", "stack"):
            return getattr(rv.Table, kind)(spec["name"], spec["max_size"])
        limiter, *arguments = spec["limiter"]
        arguments = [tuple(a) if isinstance(a, list) else a for a in arguments]
        return rv.Table(
            name=spec["name"],
            sampler=self._selector(spec["sampler"]),
            remover=self._selector(spec["remover"]),
            max_size=spec["max_size"],
            rate_limiter=getattr(rv.rate_limiters, limiter)(*arguments),
            max_times_sampled=spec.get("max_times_sampled", 0),
        )

    def _selector(self, spec: Any) -> Any:
        name, *arguments = spec if isinstance(spec, list) else [spec]
        return getattr(self.reverb.selectors, name)(*arguments)

    def close(self) -> None:
        for writer in self.writers.values():
            with contextlib.suppress(Exception):
                writer.close()
        self.server.stop()

    # Each operation of a program is a method; what it returns is compared.

    def insert(self, data: Any, priorities: dict[str, float]) -> None:
        if all(self.tables[name].can_insert(1) for name in priorities if name in self.tables):
            return self.client.insert(arrays(data), priorities)
        raise Waits

    def sample(self, table: str, count: int, timesteps: bool) -> Any:
        # If a draw may remove its item, the limiter's answer is valid for the next draw only.
        requests = [1] * count if table in self.consuming else [count]
        samples = []
        for request in requests:
            if table in self.tables and not self.tables[table].can_sample(request):
                if samples:
                    return [*samples, "waits"]
                raise Waits
            samples += self._sample(table, request, timesteps)
        return samples

    def _sample(self, table: str, count: int, timesteps: bool) -> list[Any]:
        samples = []
        for sampled in self.client.sample(table, count, emit_timesteps=timesteps):
            of_item = sampled if timesteps else [sampled]
            info, data = of_item[0].info, [plain(sample.data) for sample in of_item]
            self.keys[table, json.dumps(data)] = info.key
            samples.append([data, info.table_size, info.priority, info.times_sampled, round(info.probability, 6)])
        return samples

    def drain(self, table: str) -> Any:
        """All items in the order in which the sampler gives them, each deleted once it was drawn."""
        drawn = []
        while self.tables[table].info.current_size and self.tables[table].can_sample(1):
            [sampled] = self.client.sample(table, 1, emit_timesteps=False)
            drawn.append([plain(sampled.data), sampled.info.priority])
            self.client.mutate_priorities(table, deletes=[sampled.info.key])
        return [drawn, self.tables[table].info.current_size]

    def mutate(self, table: str, updates: list[Any], deletes: list[Any]) -> None:
        """Updates and deletes items, which are numbered in the order in which they were seen first."""
        seen = [key for (name, _), key in self.keys.items() if name == table]
        if not seen:
            return
        self.client.mutate_priorities(
            table,
            updates={seen[at % len(seen)]: priority for at, priority in updates},
            deletes=[] if table in self.once else [seen[at % len(seen)] for at in deletes],
        )

    def reset(self, table: str) -> None:
        self.client.reset(table)
        for entry in [entry for entry in self.keys if entry[0] == table]:
            del self.keys[entry]

    def can_sample(self, table: str, count: int) -> bool:
        return bool(self.tables[table].can_sample(count))

    def can_insert(self, table: str, count: int) -> bool:
        return bool(self.tables[table].can_insert(count))

    def info(self, table: str) -> Any:
        info = self.client.server_info()[table]
        limiter = info.rate_limiter_info
        return {
            "name": info.name,
            "max_size": info.max_size,
            "max_times_sampled": info.max_times_sampled,
            "current_size": info.current_size,
            "num_episodes": info.num_episodes,
            "num_deleted_episodes": info.num_deleted_episodes,
            "num_unique_samples": info.num_unique_samples,
            "sampler": info.sampler_options.WhichOneof("distribution"),
            "remover": info.remover_options.WhichOneof("distribution"),
            "min_heap": [info.sampler_options.heap.min_heap, info.remover_options.heap.min_heap],
            "deterministic": [info.sampler_options.is_deterministic, info.remover_options.is_deterministic],
            "limiter": [
                limiter.samples_per_insert,
                limiter.min_diff,
                limiter.max_diff,
                limiter.min_size_to_sample,
                limiter.insert_stats.completed,
                limiter.sample_stats.completed,
            ],
        }

    def make_table(self, spec: dict[str, Any]) -> None:
        self._table(spec)

    def writer(self, name: str, kind: str, arguments: dict[str, Any]) -> None:
        self.writers[name] = getattr(self.client, kind)(**arguments)

    def append(self, writer: str, data: Any, options: dict[str, Any]) -> None:
        self.writers[writer].append(arrays(data), **options)

    def append_sequence(self, writer: str, data: Any) -> None:
        self.writers[writer].append_sequence(arrays(data))

    def create_item(self, writer: str, table: str, count: int, priority: float) -> None:
        """The legacy writer's; confirmed before the next operation."""
        if table in self.tables and not self.tables[table].can_insert(1):
            raise Waits
        self.writers[writer].create_item(table, count, priority)
        self.writers[writer].flush()

    def create_trajectory(self, writer: str, table: str, priority: float, columns: Any) -> None:
        """The trajectory writer's `create_item` over slices of its history; confirmed before the next operation."""
        if table in self.tables and not self.tables[table].can_insert(1):
            raise Waits
        trajectory = {name: self._column(writer, path, index) for name, (path, index) in columns.items()}
        self.writers[writer].create_item(table, priority, trajectory)
        self.writers[writer].flush(0, CONFIRMED_WITHIN)

    def column(self, writer: str, path: list[Any], index: Any) -> Any:
        column = self._column(writer, path, index)
        return [list(column.shape), str(np.dtype(column.dtype)), column.is_squeezed, plain(column.numpy())]

    def length(self, writer: str, path: list[Any]) -> int:
        return len(self._history(writer, path))

    def episode_steps(self, writer: str) -> int:
        return int(self.writers[writer].episode_steps)

    def configure(self, writer: str, path: list[Any], options: dict[str, Any]) -> None:
        self.writers[writer].configure(tuple(path), **options)

    def end_episode(self, writer: str, options: dict[str, Any]) -> None:
        self.writers[writer].end_episode(timeout_ms=CONFIRMED_WITHIN, **options)

    def close_writer(self, writer: str) -> None:
        self.writers[writer].close()

    def _history(self, writer: str, path: list[Any]) -> Any:
        column = self.writers[writer].history
        for part in path:
            column = column[part]
        return column

    def _column(self, writer: str, path: list[Any], index: Any) -> Any:
        column = self._history(writer, path)
        return column[slice(*index["slice"])] if isinstance(index, dict) else column[index]


class Waits(Exception):
    """The operation would wait for a limiter: it is left out, on both sides or there is a difference."""


def arrays(data: Any) -> Any:
    """A program's data: `[dtype, values]` under "array", numbers as they are, structures of these."""
    if isinstance(data, dict):
        if set(data) == {"array"}:
            dtype, values = data["array"]
            return np.array(values, dtype)
        return {key: arrays(value) for key, value in data.items()}
    if isinstance(data, list):
        return [arrays(value) for value in data]
    return data


def plain(data: Any) -> Any:
    """Data as JSON has it, with dtypes and shapes."""
    if isinstance(data, dict):
        return {key: plain(data[key]) for key in sorted(data)}
    if isinstance(data, list | tuple):
        return [plain(value) for value in data]
    array = np.asarray(data)
    return [str(array.dtype), list(array.shape), array.tolist()]


def kind_of(reverb: Any, error: BaseException) -> str:
    if isinstance(error, Waits):
        return "waits"
    if isinstance(error, reverb.DeadlineExceededError):
        return "DeadlineExceededError"
    for kind in KINDS:
        if isinstance(error, kind):
            return kind.__name__
    return "ReverbError" if isinstance(error, reverb.ReverbError) else type(error).__name__


def outcome(reverb: Any, run: Any, operation: list[Any]) -> dict[str, Any]:
    name, *arguments = operation
    try:
        return {"value": getattr(run, name)(*arguments)}
    except Exception as error:
        return {"error": kind_of(reverb, error), "text": str(error)[:300]}


def main() -> None:
    which, transport = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    reverb = load(which)
    # Output of libraries must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(line: dict[str, Any]) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    for line in sys.stdin:
        program = json.loads(line)
        module = importlib.import_module(program.get("module", "worker"))
        try:
            run = module.Run(reverb, program, transport)
        except Exception as error:
            answer({"error": kind_of(reverb, error), "text": str(error)[:300]})
            continue
        answer({"value": "ready"})
        for operation in program["operations"]:
            answer(outcome(reverb, run, operation))
        run.close()


if __name__ == "__main__":
    # As the module that others import: its classes must be the same ones for all.
    importlib.import_module("worker").main()
