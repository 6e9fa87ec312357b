"""Settings out of range, refused by name: what the configurations of all agents say of their numbers."""

from __future__ import annotations

import math
from typing import Any

from reverie._checks import integer


def at_least_one(settings: Any, *names: str) -> None:
    """Refuse counts below 1: ValueError; TypeError for what is no count."""
    for name in names:
        if integer(name, getattr(settings, name)) < 1:
            raise ValueError(f"{name} is {getattr(settings, name)}, and must be at least 1")


def not_negative(settings: Any, *names: str) -> None:
    """Refuse numbers below 0, and what is not finite: ValueError."""
    for name in names:
        if not (getattr(settings, name) >= 0 and math.isfinite(getattr(settings, name))):
            raise ValueError(f"{name} is {getattr(settings, name)}, and must not be below 0")


def above_zero(settings: Any, *names: str) -> None:
    """Refuse numbers of 0 and below, and what is not finite: ValueError."""
    for name in names:
        if not (getattr(settings, name) > 0 and math.isfinite(getattr(settings, name))):
            raise ValueError(f"{name} is {getattr(settings, name)}, and must be above 0")


def within_unit(settings: Any, *names: str) -> None:
    """Refuse what lies outside [0, 1]: ValueError."""
    for name in names:
        if not 0 <= getattr(settings, name) <= 1:
            raise ValueError(f"{name} is {getattr(settings, name)}, and must lie in [0, 1]")


def one_of(settings: Any, name: str, choices: tuple[str, ...]) -> None:
    """Refuse words that mean nothing here: ValueError."""
    if getattr(settings, name) not in choices:
        words = " or ".join(f'"{choice}"' for choice in choices)
        raise ValueError(f"{name} is {getattr(settings, name)!r}, and must be {words}")


def widths(settings: Any, *names: str) -> None:
    """Refuse networks without a hidden layer, and layers without a unit: ValueError."""
    for name in names:
        value = getattr(settings, name)
        if not value or min(value) < 1:
            raise ValueError(f"{name} is {value}, and must be widths of at least one layer")
