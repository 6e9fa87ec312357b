"""Configs: which items a structured writer makes for which table, when, and with which priority."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from reverie import _checks, _native, _tensorflow
from reverie.specs import TensorSpec, signature
from reverie.structured.conditions import Condition
from reverie.structured.patterns import Data, Field, Pattern, PatternNode, create_reference_step

__all__ = [
    "Config",
    "Priority",
    "constant_priority_fn",
    "create_config",
    "for_engine",
    "infer_signature",
    "inferred",
    "one_structure",
    "td_error",
    "unpack_pattern",
]


@final
class Priority(Data):
    """How a config's items get their priorities; `constant_priority_fn` and `td_error` make it."""

    __slots__ = ("number", "field", "paths")  # noqa: RUF023 (the order of the parts)

    number: float
    field: int | None
    paths: tuple[str, ...] | None

    def __repr__(self) -> str:
        if self.field is None or self.paths is None:
            return f"constant_priority_fn({self.number})"
        return f"td_error({self.number}, '{self.paths[self.field]}')"


def constant_priority_fn(value: float) -> Priority:
    """A priority source that gives every item of a config the same priority."""
    return Priority(_checks.number("value", value), None, None)


def td_error(max_priority_weight: float, step_structure: Any, get_field_from_step_fn: Callable[[Any], Any]) -> Priority:
    """Priorities `w * max|x| + (1 - w) * mean|x|` over the item's cells of one field.

    Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed Reinforcement Learning", section 2.3, with
    `w` = 0.9.

    Args:
        max_priority_weight: `w`, within [0, 1].
        step_structure: the structure of the step.
        get_field_from_step_fn: takes such a nest and returns the leaf that holds x: one float32, float64 or integer
            for each step. The pattern must contain exactly one slice of this field.

    Raises:
        ValueError: for a weight outside [0, 1], or a function that does not return a leaf of the structure.
    """
    weight = _checks.number("max_priority_weight", max_priority_weight)
    if not 0.0 <= weight <= 1.0:
        raise ValueError(f"max_priority_weight must be within [0, 1], got {weight}")
    field = get_field_from_step_fn(create_reference_step(step_structure))
    if not isinstance(field, Field):
        raise ValueError(f"get_field_from_step_fn must return one leaf of the step structure, got {field!r}")
    return Priority(weight, field.index, field.paths)


@final
class Config(Data):
    """A pattern, its table, its conditions and its priority; `create_config` makes it.

    Attributes:
        structure: the pattern's structure.
        flat: the pattern's `PatternNode`s in flattening order.
        table, conditions, priority: the arguments of `create_config`.
    """

    __slots__ = ("structure", "flat", "table", "conditions", "priority")  # noqa: RUF023

    structure: _native.Structure
    flat: tuple[PatternNode, ...]
    table: str
    conditions: tuple[Condition, ...]
    priority: Priority

    @property
    def pattern(self) -> Pattern:
        """The pattern as a nest of `PatternNode`s."""
        return self.structure.unflatten(self.flat)

    def __reduce__(self) -> tuple[Any, ...]:
        return create_config, (self.pattern, self.table, self.conditions, self.priority)

    def __repr__(self) -> str:
        return f"Config({self.pattern!r}, table={self.table!r}, conditions={list(self.conditions)}, {self.priority!r})"


def create_config(
    pattern: Pattern, table: str, conditions: Sequence[Condition] = (), priority: Priority | None = None
) -> Config:
    """A config that makes items of this pattern for a table.

    Args:
        pattern: a nest of slices of a reference step.
        table: the name of the table that the items go into.
        conditions: an item is made where all of them hold.
        priority: from `constant_priority_fn` or `td_error`; None means a priority of 1.

    Raises:
        TypeError: for a leaf that is not a slice of a reference step, a condition without a comparison, or a priority
            of another type.
        ValueError: for a pattern without leaves, parts that were made from steps with different fields, or a `td_error`
            whose field the pattern does not contain exactly once.
    """
    if not isinstance(conditions, Sequence):
        raise TypeError(f"conditions must be a sequence, got {conditions!r}; write [{conditions!r}]")
    priority = constant_priority_fn(1.0) if priority is None else priority
    if not isinstance(priority, Priority):
        raise TypeError(f"priority must come from constant_priority_fn or td_error, got {priority!r}")
    leaves, structure = _native.flatten(pattern)
    if not leaves:
        raise ValueError("the pattern has no leaves; an item needs at least one column")
    for path, leaf in zip(structure.paths, leaves, strict=True):
        if not isinstance(leaf, PatternNode):
            hint = f"; {leaf!r} needs an index, as in [-1] or [-3:]" if isinstance(leaf, Field) else ""
            raise TypeError(f"column '{path}' of the pattern must be a slice of a reference step, got {leaf!r}{hint}")
    for condition in conditions:
        if not isinstance(condition, Condition):
            raise TypeError(f"a condition is a comparison, as in Condition.step_index() >= 2; got {condition!r}")
    config = Config(structure, tuple(leaves), table, tuple(conditions), priority)
    _paths([config])
    if priority.field is not None:
        count = sum(node.flat_source_index == priority.field for node in config.flat)
        if count != 1:
            raise ValueError(f"the pattern has {count} slices of the field of {priority!r}; it must have one")
    return config


def unpack_pattern(config: Config) -> Pattern:
    """The config's pattern, a nest of `PatternNode`s."""
    return config.pattern


def infer_signature(configs: Sequence[Config], step_spec: Any) -> Any:
    """The signature of the items that configs make, for `Table(signature=...)`.

    Args:
        configs: all configs of one table, with patterns of one structure. If columns differ in length, the size of that
            axis is None.
        step_spec: a nest of specs with the structure of the step; it may leave out fields that no config refers to.

    Returns:
        A nest of `TensorSpec`s named by their paths; of `tf.TensorSpec`s in a program that uses TensorFlow and in which
        this package replaces dm-reverb.

    Raises:
        ValueError: for no configs, configs of different tables or structures, or columns that differ in dtype or shape.
    """
    tables = sorted({config.table for config in configs})
    if len(tables) > 1:
        listed = ", ".join(map(repr, tables))
        raise ValueError(f"the configs are of different tables: {listed}; pass the configs of one table")
    return _tensorflow.as_program_expects(inferred(configs, step_spec))


def inferred(configs: Sequence[Config], step_spec: Any) -> Any:
    """The signature of the items that the configs make, whatever their tables."""
    paths, structure = _paths(configs), one_structure(configs)
    specs, step = _native.flatten(signature(step_spec))
    known = dict(zip(step.paths, specs, strict=True))
    if paths == ("",):
        known[""] = specs[0]  # A reference step that is one leaf stands for the first field of any step.
    needed = {node.path for config in configs for node in config.flat}
    if needed - known.keys():
        raise ValueError(
            f"step_spec has the fields {', '.join(step.paths)}; the configs refer to {', '.join(sorted(needed))}"
        )
    columns = zip(structure.paths, *(config.flat for config in configs), strict=True)
    return structure.unflatten([_merged(path, nodes, known) for path, *nodes in columns])


def one_structure(configs: Sequence[Config]) -> _native.Structure:
    """The structure that all patterns have; ValueError where they differ."""
    structures = {config.structure for config in configs}
    if len(structures) > 1:
        listed = " and ".join(sorted(f"({', '.join(structure.paths)})" for structure in structures))
        raise ValueError(f"the patterns of the configs have different structures: {listed}; they must have one")
    return structures.pop()


def _merged(path: str, nodes: list[PatternNode], specs: Mapping[str, TensorSpec]) -> TensorSpec:
    """The spec of one column, from the nodes of all configs that fill it."""
    first = specs[nodes[0].path]
    shapes: list[tuple[int | None, ...]] = []
    for node in nodes:
        spec = specs[node.path]
        if spec.dtype != first.dtype:
            raise ValueError(
                f"column '{path}': the configs give {first.dtype} and {spec.dtype}; a column has one dtype"
            )
        shapes.append(spec.shape if node.squeezed else (len(node), *spec.shape))
    if len({(len(shape), shape[1:]) for shape in shapes}) > 1:
        listed = " and ".join(str(list(shape)) for shape in dict.fromkeys(shapes))
        raise ValueError(f"column '{path}': the configs give the shapes {listed}; only the first axis may differ")
    leading = {shape[:1] for shape in shapes}
    return TensorSpec(shapes[0] if len(leading) == 1 else (None, *shapes[0][1:]), first.dtype, path)


def _paths(configs: Sequence[Config]) -> tuple[str, ...]:
    """The fields of the step that all parts of the configs were made from; ValueError where they differ."""
    if not configs:
        raise ValueError("at least one config is needed")
    known: tuple[str, ...] | None = None
    for config in configs:
        parts: list[PatternNode | Condition | Priority] = [*config.flat, *config.conditions, config.priority]
        for part in parts:
            if part.paths is None or part.paths == known:
                continue
            if known is not None:
                raise ValueError(
                    f"{part!r} was made from a step with the fields {', '.join(part.paths)}, other parts from one with "
                    f"{', '.join(known)}; make all parts from one step structure"
                )
            known = part.paths
    return known or ()


def for_engine(configs: Sequence[Config], *, priorities: bool = True) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The fields of the step, and the configs as the engine reads them; its nodes count from the latest step, 0.

    With `priorities=False` every item gets priority 1: a dataset does not use them.
    """
    for config in configs:
        if not isinstance(config, Config):
            raise TypeError(f"configs must come from create_config, got {config!r}")
    paths = _paths(configs)
    given = []
    for config in configs:
        nodes = [(node.flat_source_index, node.start + 1, node.step, len(node), node.squeezed) for node in config.flat]
        conditions = [(c.quantity, c.field, c.modulo, c.relation, c.number) for c in config.conditions]
        priority = (config.priority.number, config.priority.field) if priorities else (1.0, None)
        given.append((config.table, config.structure, nodes, conditions, priority))
    return list(paths), given
