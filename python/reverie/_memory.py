"""How much memory a server may use, and how it is divided."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Division", "allowed", "divide"]

#: The part of what the process may use that a server keeps to: the rest is the program's own.
SHARE = 0.75
#: What connections may make a server hold is this part of it, at most so much, and at least so little.
NETWORK_SHARE = 0.25
MOST_NETWORK = 6 << 30
LEAST_NETWORK = 64 << 20
#: A control group without a limit has a number that no machine reaches.
UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class Division:
    """What a server may hold, in bytes."""

    memory: int
    """All of it."""
    tables: int | None
    """The chunks of all tables; None is no bound."""
    network: int
    """What connections make it hold: batches on their way, inserts that wait, answers that were not received."""
    why: str
    """Where `memory` comes from."""

    def __str__(self) -> str:
        tables = "without a bound" if self.tables is None else _size(self.tables)
        return (
            f"keeps to {_size(self.memory)} of memory ({self.why}): tables {tables} (max_bytes), connections"
            f" {_size(self.network)}"
        )


def divide(max_memory: int | None, max_bytes: int | None) -> Division:
    """Divides what a server may use between its tables and its connections.

    Args:
        max_memory: bytes; None is `SHARE` of what this process may use.
        max_bytes: bytes of the tables; None is what the connections leave.
    """
    if max_memory is None:
        most, source = allowed()
        max_memory, why = int(most * SHARE), f"{SHARE:.0%} of the {_size(most)} {source}"
    else:
        why = "max_memory"
    if max_bytes is None:
        network = min(int(max_memory * NETWORK_SHARE), MOST_NETWORK)
        return Division(max_memory, max(1, max_memory - network), network, why)
    return Division(max_memory, max_bytes, max(min(max_memory - max_bytes, MOST_NETWORK), LEAST_NETWORK), why)


def allowed(root: Path = Path("/"), physical: int | None = None) -> tuple[int, str]:
    """Bytes that this process may use, and where that number comes from: the machine, or a control group around it.

    Args:
        root: where the files of the system are.
        physical: bytes of the machine; None asks the system.
    """
    if physical is None:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [limit for limit in _limits(root) if limit < UNLIMITED]
    if limits and min(limits) < physical:
        return min(limits), "that its control group allows"
    return physical, "that the machine has"


def _limits(root: Path) -> list[int]:
    """The limits of the process's control groups and of all above them, of both versions."""
    limits = []
    groups = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds == "":
            limits += _up(groups, path, "memory.max")
        elif "memory" in kinds.split(","):
            limits += _up(groups / "memory", path, "memory.limit_in_bytes")
    return limits


def _up(top: Path, path: str, name: str) -> list[int]:
    # In a container the path may be that of the host, where there is nothing: then the top is the group itself.
    inner = Path(path.lstrip("/"))
    found = [_read(top / folder / name) for folder in (inner, *inner.parents)]
    return [int(text) for text in found if text.isdigit()]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 10**9 else f"{count / 1e6:.0f} MB"
