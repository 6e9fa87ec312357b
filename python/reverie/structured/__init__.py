"""Patterns, conditions and priorities: which items a `StructuredWriter` makes from its steps, and when.

A pattern is a nest whose leaves are slices of the fields of a *reference step*: `step["obs"][-3:]` is the latest three
cells of `obs`, `step["action"][-1]` the latest one without a time axis. A config is a pattern, the table that its items
go into, conditions that must all hold, and a priority. These are plain values: the engine applies them at every step.
"""

from reverie.structured.conditions import Comparable, Condition
from reverie.structured.configs import (
    Config,
    Priority,
    constant_priority_fn,
    create_config,
    infer_signature,
    td_error,
    unpack_pattern,
)
from reverie.structured.patterns import (
    Pattern,
    PatternNode,
    PatternTransform,
    ReferenceStep,
    create_reference_step,
    pattern_from_transform,
)

__all__ = [
    "Comparable",
    "Condition",
    "Config",
    "Pattern",
    "PatternNode",
    "PatternTransform",
    "Priority",
    "ReferenceStep",
    "constant_priority_fn",
    "create_config",
    "create_reference_step",
    "infer_signature",
    "pattern_from_transform",
    "td_error",
    "unpack_pattern",
]
