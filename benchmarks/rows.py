"""The rows that are measured: each names its work, its columns, its capacity and the peers it is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .peers import BEFORE

SMALL, LARGE = 20_000, 1_000_000
ATARI_STEPS = 20_000
TRANSITION = "obs 4 f32, action i64, reward f32, next_obs 4 f32, discount f32"
FRAMES = "obs and next_obs 4 x 84 x 84 u8 (frames shared), action, reward, discount"


@dataclass(frozen=True)
class Row:
    """One line of the table. `targets` maps a peer to the wanted ratio (its time over ours)."""

    name: str
    kind: str
    capacity: int
    columns: str
    unit: str
    targets: dict[str, float] = field(default_factory=dict)
    peers: tuple[str, ...] = ()
    busy_threads: int = 0
    real_frames: bool = False
    kind_of_ours: str = ""  # where our work goes by another name
    kinds_of_peers: dict[str, str] = field(default_factory=dict)  # and where a peer's does
    payload: int = 0  # bytes of the one float32 column, in network rows
    transport: str = "in-process"  # that our client takes
    items: int = 1  # that one call moves
    piece_seconds: float = 0.02  # one timed piece: short enough that a median over pieces ignores a disturbed one

    def request(self, peer: str, frames: str | None) -> dict[str, Any]:
        """The description of the row that its worker for this peer receives."""
        kind = self.kinds_of_peers.get(peer, self.kind)
        if peer in ("reverie", BEFORE) and self.kind_of_ours:
            kind = self.kind_of_ours
        return {
            "kind": kind,
            "capacity": self.capacity,
            "frames": frames,
            "payload": self.payload,
            "transport": self.transport,
        }


ROWS = [
    Row(
        "prioritised 256 + update, 20 k",
        "prioritised",
        SMALL,
        TRANSITION,
        "batch",
        {"cpprb": 6.0, "torchrl": 5.0},
        ("cpprb", "torchrl"),
    ),
    Row(
        "prioritised 256 + update, 1 M",
        "prioritised",
        LARGE,
        TRANSITION,
        "batch",
        {"cpprb": 8.0, "torchrl": 5.0},
        ("cpprb", "torchrl"),
    ),
    Row(
        "uniform 256, 20 k",
        "uniform",
        SMALL,
        TRANSITION,
        "batch",
        {"numpy": 1 / 1.5},
        ("numpy", "sb3", "cpprb", "torchrl", "limits"),
    ),
    Row(
        "uniform 256, 1 M",
        "uniform",
        LARGE,
        TRANSITION,
        "batch",
        {"numpy": 1 / 1.5},
        ("numpy", "sb3", "cpprb", "torchrl", "limits"),
    ),
    Row(
        "push of one transition", "push", SMALL, TRANSITION, "push", {"sb3": 6.0}, ("sb3", "cpprb", "torchrl", "numpy")
    ),
    Row(
        "push, four busy Python threads",
        "push",
        SMALL,
        TRANSITION,
        "push",
        {"sb3": 6.0},
        ("sb3", "cpprb", "numpy"),
        busy_threads=4,
    ),
    Row(
        "push through a trajectory writer",
        "push",
        SMALL,
        TRANSITION,
        "push",
        {},
        ("sb3", "cpprb"),
        kind_of_ours="push_writer",
    ),
    Row(
        "Atari 256, raw",
        "atari",
        ATARI_STEPS,
        FRAMES,
        "batch",
        {"limits": 1 / 1.3},
        ("limits", "numpy", "cpprb", "sb3"),
    ),
    Row(
        "Atari 256, compressed Pong",
        "atari",
        ATARI_STEPS,
        FRAMES,
        "batch",
        {},
        ("limits", "cpprb", "sb3"),
        real_frames=True,
    ),
]
