"""Sizes on the command line, read and printed: a number of bytes, or one with a unit."""

from __future__ import annotations

import re

import typer

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}I": 1024**power for power, unit in enumerate("KMGT", 1)}
HELP = "in bytes, or with a unit: 500MB, 8GiB"


def size_in_bytes(text: str | int) -> int:
    """The bytes of `8589934592`, `8GiB`, `8 gib`, `8.5GB` or `500M`.

    Raises typer.BadParameter for everything else, and for less than one byte.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?\s*", str(text).upper())
    size = int(float(found[1]) * _UNITS[found[2]]) if found is not None and found[2] in _UNITS else 0
    if size < 1:
        raise typer.BadParameter(f"{text!r} is not a size: give it {HELP}")
    return size


def size(count: float) -> str:
    """Bytes as text, in a suitable unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
