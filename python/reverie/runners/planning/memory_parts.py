"""The parts of a run's memory: their names, and what replay on a disk takes in memory."""

from __future__ import annotations

from collections.abc import Mapping

PROCESSES, REPLAY = "Python and PyTorch", ("replay", "unrolls in the queue", "queue of")
"""Names of parts of a run's memory: the part of every process, and words in the names of the servers' parts."""
NETWORKS = "networks"
ROW_BYTES = 400
"""Memory of an item on the disk: its row, and where its chunk is."""
PROCESS_BYTES = 400 * 2**20
"""Python, PyTorch and Gymnasium before Reverie's first allocation (measured: 250 to 350 MiB), rounded up."""


def is_replay(part: str) -> bool:
    """Whether a part is memory of the servers."""
    return any(word in part for word in REPLAY)


def on_disk(memory: Mapping[str, int], limit: int, items: int) -> dict[str, int]:
    """`memory`, with `limit` bytes of the parts of the replay, of `items` items, in memory and the rest on disk."""
    replay = {part: size for part, size in memory.items() if is_replay(part)}
    total = sum(replay.values())
    if total <= limit:
        return dict(memory)
    kept = {f"{part}, partly on the disk": size * limit // total for part, size in replay.items()}
    rows = {"rows of the replay's items on the disk": ROW_BYTES * int(items * (1 - limit / total))}
    return {**{part: size for part, size in memory.items() if part not in replay}, **kept, **rows}


def gib(size_bytes: int) -> str:
    """Bytes as text, in GiB or MiB."""
    return f"{size_bytes / 2**30:.1f} GiB" if size_bytes >= 2**29 else f"{size_bytes / 2**20:.0f} MiB"
