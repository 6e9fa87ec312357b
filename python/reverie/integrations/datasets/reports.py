"""The figures of an import or export, and its limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from reverie import _checks

__all__ = ["Budget", "Limit", "Progress", "TransferReport"]

#: The limits of an import or export.
Limit = Literal["max_bytes", "max_steps", "max_episodes"]


@dataclasses.dataclass(slots=True)
class TransferReport:
    """The figures of an import or export so far."""

    path: str
    """The file or folder."""
    format: str
    """"parquet", "minari" or "lerobot"."""
    table: str
    """The table."""
    as_: str
    """The form of the rows in the table: "items", "transitions", "sequences" or "episodes"."""
    items: int = 0
    """Items that were inserted or exported."""
    rows: int = 0
    """Rows that were read or written."""
    episodes: int = 0
    """Episodes that were read or written whole."""
    size_bytes: int = 0
    """Bytes of the rows' arrays, before any compression."""
    left_out: int = 0
    """Rows that are in no item, or items that left the table before they were exported."""
    stopped_by: Limit | None = None
    """The limit that ended it; None where it reached the end."""
    seconds: float = 0.0
    """Seconds that it took."""


#: Called now and then with the report so far.
Progress = Callable[[TransferReport], None]


class Budget:
    """The rows, episodes and bytes that are left.

    Raises:
        ValueError: for limits below 1.
    """

    def __init__(self, max_bytes: int | None, max_steps: int | None, max_episodes: int | None) -> None:
        limits = {"max_bytes": max_bytes, "max_steps": max_steps, "max_episodes": max_episodes}
        self._left = {
            name: None if limit is None else _checks.count(name, limit, 1, _checks.MANY)
            for name, limit in limits.items()
        }
        self._is_limited = any(limit is not None for limit in limits.values())
        #: The limit that a row did not fit into.
        self.reached: Limit | None = None

    def row(self, size: int, is_last: bool) -> bool:
        """Takes one row, the last of its episode or not; False where it does not fit."""
        return self.rows(1, size, int(is_last)) == 1

    def rows(self, count: int, size: int, episodes: int = 0) -> int:
        """Takes as many of these rows of one size each as fit; their number."""
        if not self._is_limited:
            return count
        taken = count
        costs: dict[Limit, int] = {"max_bytes": size, "max_steps": count}
        for name, cost in costs.items():
            left = self._left[name]
            if left is not None and cost > left:
                fits = left * count // cost
                if fits < taken:
                    taken, self.reached = fits, name
        if self._left["max_episodes"] == 0 and taken:
            taken, self.reached = 0, "max_episodes"
        spent: dict[Limit, int] = {
            "max_bytes": size * taken // count if count else 0,
            "max_steps": taken,
            "max_episodes": episodes if taken == count else 0,
        }
        for name, cost in spent.items():
            left = self._left[name]
            if left is not None:
                self._left[name] = left - cost
        return taken
