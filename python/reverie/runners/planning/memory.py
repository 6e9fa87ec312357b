"""The memory of a run: what this machine has, and a refusal before anything starts."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence

from reverie import _memory
from reverie._picklable import Picklable
from reverie.runners.planning.devices import require_gpus
from reverie.runners.planning.memory_parts import PROCESS_BYTES, PROCESSES, gib
from reverie.runners.planning.nodes import ClusterNode, place
from reverie.runners.planning.topology import Topology

SMALLER = {
    PROCESSES: "ask for fewer actors (num_actors)",
    "replay": "lower the capacity",
    "unrolls in the queue": "lower queue_capacity",
    "queue of": "lower unroll_length, or ask for fewer environments (envs_per_actor)",
    "batches": "lower batch_size",
    "networks": "lower the widths of the networks",
}
"""Advice to shrink the largest part of a run's memory, by a word of the part's name."""


class DoesNotFitError(Picklable, MemoryError):
    """The run needs more memory than is free. `.needed`, `.available` in bytes."""

    def __init__(self, what: str, memory: Mapping[str, int], available: int) -> None:
        self.needed, self.available = sum(memory.values()), available
        part = max(memory, key=lambda name: memory[name])
        hint = next((f"{hint}, or " for word, hint in SMALLER.items() if word in part), "")
        super().__init__(
            f"{what} needs about {gib(self.needed)} and {gib(available)} are free; the largest part is {part}"
            f" ({gib(memory[part])}): {hint}free memory"
        )


def require_memory(topology: Topology, available_bytes: int | None, nodes: Sequence[ClusterNode] | None) -> None:
    """Raise `DoesNotFitError`, or `NoRoomError` for a node, if a run needs more memory than is free. See `plan`."""
    if nodes is not None:
        require_gpus(topology, gpus := sum(node.gpus for node in nodes), gpus)
        place(topology, nodes)
    if available_bytes is None and topology.runner == "ray":
        return
    available = _memory.available_memory() if available_bytes is None else available_bytes
    if topology.memory_bytes > available:
        raise DoesNotFitError(f"{topology.agent} on {topology.env.env_id}", topology.memory, available)


def this_machine() -> ClusterNode:
    """This machine as the only node of a cluster, less the memory that the supervisor takes."""
    return ClusterNode(
        "this machine", max(0, _memory.available_memory() - PROCESS_BYTES), float(os.cpu_count() or 1), math.inf
    )
