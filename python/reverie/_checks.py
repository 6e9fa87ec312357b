"""Arguments that are refused where they are given, by the name that the caller knows."""

from __future__ import annotations

import math
import operator
from typing import Any

__all__ = ["count", "integer", "number", "priority"]


def integer(name: str, value: Any) -> int:
    """The value as an int; TypeError for what is none. NumPy's ints and bools are ints."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, got {value!r}") from None


def count(name: str, value: Any, least: int) -> int:
    """The value as an int of at least `least`: TypeError for what is no int, ValueError for less."""
    number = integer(name, value)
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number


def number(name: str, value: Any) -> float:
    """The value as a float, TypeError for what is no number. NumPy's scalars are numbers; text is none."""
    if isinstance(value, str | bytes):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except TypeError:
        raise TypeError(f"{name} must be a number, got {value!r}") from None


def priority(value: Any) -> None:
    """Refuses what no table takes as a priority: TypeError for what is neither a number nor "max", ValueError for NaN
    and infinities. What a table's selectors refuse beyond is the table's business."""
    if isinstance(value, str) and value == "max":
        return
    try:
        finite = math.isfinite(value)
    except TypeError:
        raise TypeError(f'a priority is a number or "max", got {value!r}') from None
    if not finite:
        raise ValueError(f"a priority must be a finite number, got {value!r}")
