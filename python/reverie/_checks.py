"""Arguments that are refused where they are given, by the name that the caller knows."""

from __future__ import annotations

import math
import operator
import os
import sys
from pathlib import Path
from typing import Any

__all__ = ["MANY", "count", "functions", "integer", "number", "path", "priority"]

#: The largest count that the engine is given.
MANY = sys.maxsize


def integer(name: str, value: Any) -> int:
    """The value as an int; TypeError for what is none. NumPy's ints and bools are ints."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, got {value!r}") from None


def count(name: str, value: Any, least: int, most: int | None = None) -> int:
    """The value as an int of at least `least` and at most `most`: TypeError for what is no int, ValueError for others.

    Where the engine has a bound of its own it is left to that; `most` is for what would not reach it: `MANY`.
    """
    number = integer(name, value)
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most}, got {number}")
    return number


def number(name: str, value: Any) -> float:
    """The value as a float, TypeError for what is no number. NumPy's scalars are numbers; text is none."""
    if isinstance(value, str | bytes):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except TypeError:
        raise TypeError(f"{name} must be a number, got {value!r}") from None


def path(name: str, value: Any) -> Path:
    """The value as a path, TypeError for what is none."""
    if isinstance(value, str | os.PathLike):
        return Path(value)
    raise TypeError(f"{name} must be a path, got {value!r}")


def functions(**values: Any) -> None:
    """Refuses what can not be called, None apart, with a TypeError."""
    for name, value in values.items():
        if not (value is None or callable(value)):
            raise TypeError(f"{name} must be a function, got {value!r}")


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
