"""Memory that a process may use and has free, and its division between the tables and connections of a server."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from reverie._log import logger

__all__ = ["MemoryDivision", "allowed", "available_memory", "divide", "physical_memory"]

#: A server uses at most this part of the memory of its process; the rest is for the program around it.
SHARE = 0.75
#: Connections may use this part of the server's memory, within these bounds in bytes.
NETWORK_SHARE = 0.25
MOST_NETWORK = 6 << 30
LEAST_NETWORK = 64 << 20
#: A control group without a limit reports a number beyond the memory of any machine.
UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class MemoryDivision:
    """The memory of a server, in bytes."""

    memory: int
    """The total."""
    tables: int
    """Bytes for the chunks of all tables."""
    network: int
    """Bytes for connections: batches that are being sent, inserts that wait, responses that were not received."""
    why: str
    """The source of the total."""
    setting: str = "max_bytes"
    """The setting of the part of the tables."""

    def __str__(self) -> str:
        return (
            f"uses at most {_size(self.memory)} of memory ({self.why}): tables {_size(self.tables)} ({self.setting}),"
            f" connections {_size(self.network)}"
        )

    def log(self, address: str) -> None:
        """Logs the division of the server at `address`, and warns where connections have less than their part."""
        logger().info("%s %s", address, self)
        if self.memory < self.tables + self.network:
            logger().warning(
                "%s: %s leaves less than %d bytes of memory for connections; lower it, or raise max_memory",
                address,
                self.setting,
                self.network,
            )


def divide(max_memory: int | None, max_bytes: int | None, setting: str = "max_bytes") -> MemoryDivision:
    """Divides a server's memory between its tables and its connections.

    Args:
        max_memory: bytes in total; None means `SHARE` of the memory that this process may use.
        max_bytes: bytes for the tables; None means the total without the share of the connections.
        setting: the name of the option that `max_bytes` is from.
    """
    if max_memory is None:
        most, source = allowed()
        max_memory, why = int(most * SHARE), f"{SHARE:.0%} of the {_size(most)} {source}"
    else:
        why = "max_memory"
    if max_bytes is None:
        network = min(int(max_memory * NETWORK_SHARE), MOST_NETWORK)
        return MemoryDivision(max_memory, max(1, max_memory - network), network, why, setting)
    network = max(min(max_memory - max_bytes, MOST_NETWORK), LEAST_NETWORK)
    return MemoryDivision(max_memory, max_bytes, network, why, setting)


def allowed(root: Path = Path("/"), physical: int | None = None) -> tuple[int, str]:
    """The bytes that this process may use, and where that limit comes from: the machine, or a control group.

    Args:
        root: the root of the file system.
        physical: the machine's memory in bytes; None reads it from the system.
    """
    if physical is None:
        physical = physical_memory()[0]
    limits = [group.limit for group in _limited_groups(root) if group.limit < UNLIMITED]
    if limits and min(limits) < physical:
        return min(limits), "that its control group allows"
    return physical, "that the machine has"


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that this process may still take: free memory of the machine, within the limits of its control groups.

    Cached files count as free: the kernel releases them when memory is needed.

    Args:
        root: the root of the file system.
    """
    found = (line.split() for line in _read(root / "proc/meminfo").splitlines() if line.startswith("MemAvailable:"))
    free = next((int(kilobytes) * 1024 for _, kilobytes, *_ in found), None)
    if free is None:
        free = physical_memory()[1]
    return min([free, *(max(0, group.limit - group.used) for group in _limited_groups(root))])


def physical_memory() -> tuple[int, int]:
    """The machine's memory in bytes, and how much of it is free.

    macOS reports what is free to its own tools alone: there all memory counts as free.
    """
    if sys.platform == "win32":
        status = _MemoryStatus(size=ctypes.sizeof(_MemoryStatus))
        if not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
            raise ctypes.WinError()
        return status.physical, status.free
    page = os.sysconf("SC_PAGE_SIZE")
    physical = os.sysconf("SC_PHYS_PAGES") * page
    return physical, physical if sys.platform == "darwin" else os.sysconf("SC_AVPHYS_PAGES") * page


class _MemoryStatus(ctypes.Structure):
    """`MEMORYSTATUSEX` of Windows."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("percent_used", ctypes.c_uint32),
        ("physical", ctypes.c_uint64),
        ("free", ctypes.c_uint64),
        ("others", ctypes.c_uint64 * 5),
    )


@dataclass(frozen=True, slots=True)
class _ControlGroup:
    """A control group with a limit of its memory, in bytes."""

    limit: int
    used: int
    """Used bytes, without cached files."""


def _limited_groups(root: Path) -> list[_ControlGroup]:
    """The control groups of this process and their parents that have a limit, in versions 1 and 2."""
    limited = []
    groups = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds == "":
            limited += _up(groups, path, "memory.max", "memory.current", "")
        elif "memory" in kinds.split(","):
            limited += _up(groups / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
    return limited


def _up(top: Path, path: str, limit: str, used: str, whole: str) -> list[_ControlGroup]:
    """The groups from `path` up to `top`; `whole` begins the names of counts that include the groups below."""
    # In a container the path may be the host's, and is missing here: then the group's files are at the top.
    inner, found = Path(path.lstrip("/")), []
    for folder in (top / part for part in (inner, *inner.parents)):
        most, now = _read(folder / limit), _read(folder / used)
        if most.isdigit():
            lines = (line.split() for line in _read(folder / "memory.stat").splitlines())
            files = sum(int(count) for name, count in lines if name in (f"{whole}inactive_file", f"{whole}active_file"))
            found.append(_ControlGroup(int(most), max(0, int(now) - files) if now.isdigit() else 0))
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 10**9 else f"{count / 1e6:.0f} MB"
