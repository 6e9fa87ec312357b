"""The nodes of a cluster, and a check that all roles of a run fit on them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reverie._picklable import Picklable
from reverie.runners.planning.memory_parts import gib
from reverie.runners.planning.topology import RolePlace, Topology

UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
NODE = re.compile(r"(?:(\d+)x)?(\d+(?:\.\d+)?)([a-z]+)(?:,(\d+(?:\.\d+)?)(?:,(\d+(?:\.\d+)?))?)?", re.IGNORECASE)


class NoRoomError(Picklable, MemoryError):
    """No node of the cluster has room for a role. `.role`; `.needed`, `.available` (on the node with most) in bytes."""

    def __init__(self, topology: Topology, place: RolePlace, nodes: Sequence[ClusterNode], placed: int) -> None:
        self.role, self.needed = place.role, place.memory_bytes
        self.available = max((node.memory for node in nodes), default=0)
        count = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}"
        gpus = f" and {place.num_gpus:g} GPU" if place.num_gpus else ""
        super().__init__(
            f"{topology.agent} on {topology.env.env_id} has {topology.num_processes - 1} roles, and after {placed}"
            f" of them no node has room for a role {self.role!r}, which needs about {gib(self.needed)}{gpus};"
            f" the node with the most memory, of {count}, has {gib(self.available)} left: add nodes, ask for fewer"
            " actors"
            " (num_actors) or a smaller replay, or skip this check (--no-check-memory)"
        )


@dataclass(frozen=True)
class ClusterNode:
    """One machine of a cluster, and its free memory, CPUs and GPUs."""

    name: str
    memory: int
    """Free memory in bytes."""
    cpus: float = 0.0
    gpus: float = 0.0


def parse_nodes(text: str) -> list[ClusterNode]:
    """Parse a description of nodes, `[COUNTx]MEMORY[,CPUS[,GPUS]]`: 15x64GB,16 are fifteen with 16 CPUs each.

    Raises ValueError for text that is not of this form.
    """
    found = NODE.fullmatch(text.replace(" ", ""))
    if found is None or found[3].upper() not in UNITS:
        raise ValueError(
            f"a node is {text!r}, and must be [COUNTx]MEMORY[,CPUS[,GPUS]] with MEMORY in MB, GB, TB, MiB, GiB or TiB:"
            " 15x64GB,16 are fifteen nodes of 64 GB and 16 CPUs each"
        )
    count, memory, cpus, gpus = int(found[1] or 1), float(found[2]) * UNITS[found[3].upper()], found[4], found[5]
    if not count or not memory:
        raise ValueError(f"a node is {text!r}: there must be at least one, with some memory")
    return [ClusterNode(f"node of {found[2]}{found[3]}", int(memory), float(cpus or 0), float(gpus or 0))] * count


def place(topology: Topology, nodes: Sequence[ClusterNode]) -> list[tuple[ClusterNode, Counter[str]]]:
    """Place roles on nodes in the order in which they start, each on the node with most memory left.

    A role that asks for a GPU goes to a node with one left. Nodes with enough CPUs left are preferred. Raises
    `NoRoomError`.
    """
    left = list(nodes)
    roles: list[Counter[str]] = [Counter() for _ in nodes]
    cpus = sum(place.count * place.num_cpus for place in topology.places)
    share = min(1.0, sum(node.cpus for node in nodes) / cpus)
    for one in sorted(topology.places, key=lambda place: START_ORDER.index(place.role)):
        for _ in range(one.count):
            able = [i for i, node in enumerate(left) if node.memory >= one.memory_bytes and node.gpus >= one.num_gpus]
            if not able:
                with_gpus = [node for node in left if node.gpus >= one.num_gpus]
                raise NoRoomError(topology, one, with_gpus, sum(map(Counter.total, roles)))
            wanted = one.num_cpus * share
            best = max(able, key=lambda i: (left[i].cpus >= wanted, left[i].memory))
            node = left[best]
            left[best] = ClusterNode(
                node.name, node.memory - one.memory_bytes, max(0.0, node.cpus - wanted), node.gpus - one.num_gpus
            )
            roles[best][one.role] += 1
    return list(zip(nodes, roles, strict=True))


START_ORDER = ("shard", "parameter shard", "learner", "bundle", "evaluator", "actor")


def missing_memory(asks: int, nodes: Sequence[ClusterNode]) -> str:
    """The memory that a cluster lacks for a role that needs `asks` bytes on one node; empty if it lacks none."""
    most = max((node.memory for node in nodes), default=0)
    return (
        ""
        if asks <= most
        else f"asks for {gib(asks)} of memory, and the node with the most memory has {gib(most)} free"
    )


def from_ray(nodes: Sequence[Mapping[str, object]], free: Mapping[str, Mapping[str, float]]) -> list[ClusterNode]:
    """Nodes that are alive, from `ray.nodes()` and from each node's free resources by its id."""
    found = []
    for node in nodes:
        left = free.get(str(node["NodeID"]), {}) if node["Alive"] else {}
        if left:
            name = str(node["NodeManagerAddress"])
            found.append(ClusterNode(name, int(left.get("memory", 0)), left.get("CPU", 0.0), left.get("GPU", 0.0)))
    return found
