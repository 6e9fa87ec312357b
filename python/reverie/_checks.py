"""Checks of arguments: the call that receives an invalid one refuses it, by the caller's name for it."""

from __future__ import annotations

import math
import operator
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MANY", "count", "functions", "host_and_port", "integer", "is_loopback", "number", "path", "priority"]

#: The largest count that the engine accepts.
MANY = sys.maxsize


def integer(name: str, value: Any) -> int:
    """The value as an int; TypeError for another type. NumPy's ints and bools are ints."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, got {value!r}") from None


def count(name: str, value: Any, least: int, most: int | None = None) -> int:
    """The value as an int from `least` to `most`; TypeError for another type, ValueError outside these bounds.

    The engine checks its own upper bounds. `most` is for a value that is too large to be passed to it: `MANY`.
    """
    number = integer(name, value)
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most}, got {number}")
    return number


def number(name: str, value: Any) -> float:
    """The value as a float; TypeError for another type. NumPy's scalars are numbers, text is not."""
    if isinstance(value, str | bytes):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except TypeError:
        raise TypeError(f"{name} must be a number, got {value!r}") from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at this host."""
    import ipaddress

    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def path(name: str, value: Any) -> Path:
    """The value as a path; TypeError for another type."""
    from pathlib import Path

    if isinstance(value, str | os.PathLike):
        return Path(value)
    raise TypeError(f"{name} must be a path, got {value!r}")


def host_and_port(name: str, value: Any) -> tuple[str, int]:
    """The host and the port of an address to listen on; a port alone is one of 127.0.0.1.

    `9090`, `"9090"`, `":9090"` and `"127.0.0.1:9090"` are the same. TypeError for another type, ValueError for other
    text. An IPv6 address is in brackets.
    """
    wanted = f'{name} must be a port like 9090, or a host and a port like "127.0.0.1:9090"'
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError(f"{wanted}, got {value!r}")
    host, _, port = str(value).rpartition(":")
    is_port = port.isascii() and port.isdigit() and int(port) < 65536
    if not is_port or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        raise ValueError(f"{wanted}, got {value!r}")
    return host or "127.0.0.1", int(port)


def functions(**values: Any) -> None:
    """Raises TypeError for a value that is neither None nor callable."""
    for name, value in values.items():
        if not (value is None or callable(value)):
            raise TypeError(f"{name} must be a function, got {value!r}")


def priority(value: Any) -> None:
    """Checks a priority: TypeError for what is neither a number nor "max", ValueError for NaN and infinities.

    A table's selectors may refuse more, such as negative numbers; the table checks that.
    """
    if isinstance(value, str) and value == "max":
        return
    try:
        finite = math.isfinite(value)
    except TypeError:
        raise TypeError(f'a priority is a number or "max", got {value!r}') from None
    if not finite:
        raise ValueError(f"a priority must be a finite number, got {value!r}")
