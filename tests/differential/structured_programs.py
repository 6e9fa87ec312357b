"""Random programs for structured writers: patterns, conditions, priorities, parts of steps, missing values, episodes.

Left out is what differs on purpose, docs/decisions/0023: steps that give none of the fields that the configs refer to,
remainders of negative values or with an order, conditions that can never hold, td errors of a field that the pattern
lacks, and several cells with strides. `program` makes the data; `Run` is what the workers run.
"""

from __future__ import annotations

import operator
import random
from typing import Any

import worker

#: Two fields that patterns take, one for conditions, one of td errors. Every step gives the first.
FIELDS = ("a", "b", "flag", "td")
RELATIONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
BAD = [[0], [1, None, None], [-2, -3, None], [-2, -2, None], [-1, 1, None], [-3, None, 0], [-3, None, -1], [None] * 3]


class Run(worker.Run):
    """The operations of a program with a structured writer."""

    def structured(self, name: str, configs: list[dict[str, Any]]) -> None:
        """Makes the writer; where a part of a config is refused this is."""
        structured = self.reverb.structured_writer
        self.writers[name] = self.client.structured_writer([self._config(structured, config) for config in configs])

    def _config(self, structured: Any, config: dict[str, Any]) -> Any:
        structure = dict.fromkeys(FIELDS)
        step = structured.create_reference_step(structure)
        pattern = {name: step[field][_index(key)] for name, (field, key) in config["pattern"].items()}
        conditions = [self._condition(structured, structure, condition) for condition in config["conditions"]]
        kind, number = config["priority"]
        priority = structured.constant_priority_fn(number)
        if kind == "td":
            priority = structured.td_error(number, structure, lambda step: step["td"])
        return structured.create_config(pattern, config["table"], conditions, priority)

    def _condition(self, structured: Any, structure: Any, condition: list[Any]) -> Any:
        quantity, modulo, relation, number = condition
        if quantity == "is_end_episode":
            return structured.Condition.is_end_episode()
        flag = structured.Condition.data(structure)["flag"]
        compared = flag if quantity == "data" else getattr(structured.Condition, quantity)()
        return RELATIONS[relation](compared if modulo is None else compared % modulo, number)

    def step(self, name: str, data: dict[str, Any], partial: bool) -> bool:
        values = {field: None if field not in data else worker.arrays(data[field]) for field in FIELDS}
        self.writers[name].append(values, partial_step=partial)
        return bool(self.writers[name].step_is_open)

    def collect(self, name: str, table: str) -> Any:
        """The items that are new in the table, whose every item is sampled once."""
        self.writers[name].flush(0, worker.CONFIRMED_WITHIN)
        size = self.client.server_info()[table].current_size
        samples = self.client.sample(table, size, emit_timesteps=False) if size else ()
        return [[worker.plain(sample.data), round(sample.info.priority, 5)] for sample in samples]

    def close(self) -> None:
        # Theirs has no close; its end is the object's.
        self.writers.clear()
        super().close()


def _index(key: list[Any]) -> Any:
    return key[0] if len(key) == 1 else slice(*key)


def _key(rng: random.Random) -> list[Any]:
    if rng.random() < 0.4:
        return [-rng.randint(1, 5)]
    start = -rng.randint(1, 7)
    stop, step = rng.choice([None, *range(start + 1, 1)]), rng.choice([None, 1, 2, 3])
    # Over the border of two of its chunks dm-reverb takes a wrong cell of a slice with strides (a[-4::2] of the steps
    # 21 to 24 was [21, 22]).
    strides = step is not None and step > 1 and len(range(start, stop or 0, step)) > 1
    return [start, stop, None if strides else step]


def _condition(rng: random.Random) -> list[Any]:
    quantity = rng.choice(["step_index", "steps_since_applied", "data", "is_end_episode"])
    if rng.random() < 0.3:
        modulo = rng.randint(2, 4)
        return [quantity, modulo, rng.choice(["==", "!="]), rng.randrange(modulo)]
    number = rng.randint(-2, 3) if quantity == "data" else rng.randint(1, 4)
    return [
        quantity,
        None,
        rng.choice([*RELATIONS]) if number != 1 else rng.choice(["==", "!=", "<=", ">", ">="]),
        number,
    ]


def _config(rng: random.Random, first: bool) -> dict[str, Any]:
    fields = ["a"] if first else []
    fields += rng.choices(["a", "b"], k=rng.randint(0 if first else 1, 2))
    pattern = {f"c{at}": [field, _key(rng)] for at, field in enumerate(fields)}
    priority = ["constant", rng.choice([0.5, 1.0, 2.0])]
    if rng.random() < 0.3:
        pattern["errors"] = ["td", _key(rng)]
        priority = ["td", rng.choice([0.0, 0.25, 0.9, 1.0])]
    return {
        "table": rng.choice("uv"),
        "pattern": pattern,
        "conditions": [_condition(rng) for _ in range(rng.choice([0, 1, 1, 2]))],
        "priority": priority,
    }


def _values(rng: random.Random, at: int, td: str) -> dict[str, Any]:
    """One step. Flags are not negative, since conditions may take their remainders."""
    values = {
        "b": {"array": ["int64", [at, -at]]},
        "flag": {"array": ["int32", rng.randint(0, 3)]},
        "td": {"array": [td, rng.randint(-9, 9)]},
    }
    kept = {field: value for field, value in values.items() if rng.random() < 0.85}
    return {"a": {"array": ["float32", at]}, **kept}


def program(rng: random.Random) -> dict[str, Any]:
    """A random program of some configs and some episodes."""
    table = {
        "sampler": "Fifo",
        "remover": "Fifo",
        "max_size": 10_000,
        "limiter": ["MinSize", 1],
        "max_times_sampled": 1,
    }
    configs = [_config(rng, at == 0) for at in range(rng.randint(1, 3))]
    operations: list[list[Any]] = [["structured", "w", configs]]
    collect = [["collect", "w", name] for name in "uv"]
    td = rng.choice(["float32", "float64", "int32"])
    for at in range(rng.randint(10, 50)):
        values = _values(rng, at, td)
        if rng.random() < 0.2 and len(values) > 1:
            # In two parts, the first of which gives "a".
            later = rng.choice([field for field in values if field != "a"])
            operations.append(["step", "w", {k: v for k, v in values.items() if k != later}, True])
            if rng.random() < 0.3:
                operations += collect
            if rng.random() < 0.9:
                operations.append(["step", "w", {later: values[later]}, False])
            else:
                operations.append(["end_episode", "w", {"clear_buffers": rng.random() < 0.6}])
        else:
            operations.append(["step", "w", values, False])
        if rng.random() < 0.12:
            operations.append(["end_episode", "w", {"clear_buffers": rng.random() < 0.6}])
        if rng.random() < 0.1:
            operations += collect
    if rng.random() < 0.2:
        bad = {**configs[0], "pattern": {"x": ["a", rng.choice(BAD)]}, "priority": ["constant", 1.0]}
        operations.append(["structured", "bad", [bad]])
    if rng.random() < 0.05:
        operations.append(["structured", "bad", []])
    operations += collect
    return {
        "module": "structured_programs",
        "tables": [{"name": name, **table} for name in "uv"],
        "operations": operations,
    }
