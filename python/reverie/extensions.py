"""Extensions of tables: what a table does in addition to its own work."""

from __future__ import annotations

import math
from typing import Any, final

from reverie import _checks

__all__ = ["InsertOnSample", "insert_on_sample"]


@final
class InsertOnSample:
    """The option that `insert_on_sample` returns; tables may share it. It is compared and pickled by its fields."""

    __slots__ = ("target", "timeout")

    target: str
    """The name of the table that the copies go into."""
    timeout: float | None
    """Seconds that a copy may wait to be admitted; None for as long as it takes."""

    def __init__(self, target: str, timeout: float | None) -> None:
        object.__setattr__(self, "target", target)
        object.__setattr__(self, "timeout", timeout)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an extension cannot be changed ({name}); make a new one")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InsertOnSample):
            return NotImplemented
        return (self.target, self.timeout) == (other.target, other.timeout)

    def __hash__(self) -> int:
        return hash((self.target, self.timeout))

    def __reduce__(self) -> tuple[Any, ...]:
        return InsertOnSample, (self.target, self.timeout)

    def __repr__(self) -> str:
        return f"insert_on_sample({self.target!r}, timeout={self.timeout!r})"


def insert_on_sample(target_table: Any, timeout: float | None) -> InsertOnSample:
    """Copies an item into another table the first time that it is sampled.

    It shares its steps with the first one, has the same key and the priority of that moment, and `times_sampled` 1: the
    other table counts one insert and no sample. Priorities and deletes that are sent to the other table under that key
    reach the copy; those that are sent to the first table do not. A copy is there when `sample` returns, where the
    other table's limits admit it at once. If they do not, the copy waits and `sample` does not: at most 1,024 copies
    at a time, and each at most for `timeout` seconds, then it is dropped. `TableInfo.copies` of the first table counts
    those that went in, that were dropped, and that wait. Copies that wait are not part of a checkpoint.

    Args:
        target_table: the target table, on the same server, or its name. Extensions must not form a cycle of tables.
        timeout: seconds, at least 0; with 0 a copy that would wait is dropped. None waits without a limit.

    Raises:
        TypeError: for a target that is neither a table nor a name.
        ValueError: for an empty name or a timeout below 0. The server checks that the target exists.
    """
    name = target_table if isinstance(target_table, str) else getattr(target_table, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"target_table must be a reverie.Table or its name, got a {type(target_table).__name__}")
    if not name:
        raise ValueError("target_table must be the name of a table, got ''")
    if timeout is not None:
        timeout = _checks.number("timeout", timeout)
        if not timeout >= 0:
            raise ValueError(f"timeout must be at least 0 seconds, or None, got {timeout}")
        if math.isinf(timeout):
            timeout = None
    return InsertOnSample(name, timeout)
