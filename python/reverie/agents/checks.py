"""Checks of agents' settings: raise errors that name the setting."""

from __future__ import annotations

import math
from typing import Any

from reverie._checks import integer


def at_least_one(settings: Any, *names: str) -> None:
    """Raise ValueError for counts below 1, TypeError for values that are not integers."""
    for name in names:
        if integer(name, getattr(settings, name)) < 1:
            raise ValueError(f"{name} is {getattr(settings, name)}, and must be at least 1")


def not_negative(settings: Any, *names: str) -> None:
    """Raise ValueError for numbers that are below 0 or not finite."""
    for name in names:
        if not (getattr(settings, name) >= 0 and math.isfinite(getattr(settings, name))):
            raise ValueError(f"{name} is {getattr(settings, name)}, and must not be below 0")


def above_zero(settings: Any, *names: str) -> None:
    """Raise ValueError for numbers that are 0, below 0, or not finite."""
    for name in names:
        if not (getattr(settings, name) > 0 and math.isfinite(getattr(settings, name))):
            raise ValueError(f"{name} is {getattr(settings, name)}, and must be above 0")


def within_unit(settings: Any, *names: str) -> None:
    """Raise ValueError for numbers outside [0, 1]."""
    for name in names:
        if not 0 <= getattr(settings, name) <= 1:
            raise ValueError(f"{name} is {getattr(settings, name)}, and must lie in [0, 1]")


def forgets(settings: Any, name: str) -> None:
    """Raise ValueError for a rate of forgetting outside (0, 1]."""
    if not 0 < getattr(settings, name) <= 1:
        raise ValueError(f"{name} is {getattr(settings, name)}, and must lie in (0, 1]")


def one_of(settings: Any, name: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError for a word that is not among `choices`."""
    if getattr(settings, name) not in choices:
        words = " or ".join(f'"{choice}"' for choice in choices)
        raise ValueError(f"{name} is {getattr(settings, name)!r}, and must be {words}")


def widths(settings: Any, *names: str) -> None:
    """Raise ValueError for networks without a hidden layer, and for layers without a unit."""
    for name in names:
        value = getattr(settings, name)
        if not value or min(value) < 1:
            raise ValueError(f"{name} is {value}, and must be widths of at least one layer")


def support(settings: Any, low: str, high: str, atoms: str) -> None:
    """Raise ValueError for values of a categorical distribution that are not at least two, in ascending order."""
    at_least_one(settings, atoms)
    bounds = getattr(settings, low), getattr(settings, high)
    if not (all(map(math.isfinite, bounds)) and bounds[0] < bounds[1]):
        raise ValueError(f"{low} is {bounds[0]} and {high} {bounds[1]}: set the least and the largest return to expect")
    if getattr(settings, atoms) < 2:
        raise ValueError(f"{atoms} is {getattr(settings, atoms)}, and must be at least 2")
