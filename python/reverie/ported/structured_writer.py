"""`reverb.structured_writer`: `StructuredWriter` and its patterns."""

from reverie.structured import (
    Condition,
    Config,
    Pattern,
    PatternTransform,
    ReferenceStep,
    constant_priority_fn,
    create_config,
    create_reference_step,
    infer_signature,
    pattern_from_transform,
    td_error,
    unpack_pattern,
)
from reverie.writers.structured import StructuredWriter

__all__ = [
    "Condition",
    "Config",
    "Pattern",
    "PatternTransform",
    "ReferenceStep",
    "StructuredWriter",
    "constant_priority_fn",
    "create_config",
    "create_reference_step",
    "infer_signature",
    "pattern_from_transform",
    "td_error",
    "unpack_pattern",
]
