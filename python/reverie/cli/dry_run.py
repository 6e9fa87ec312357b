"""`reverie train --dry-run`: prints the plan of a run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reverie.runners import ClusterNode, Topology


def show_plan(topology: Topology, nodes: Sequence[ClusterNode] | None, *, as_json: bool) -> None:
    """Print roles, memory and settings as text or as one JSON object; with `nodes`, the roles of each."""
    from reverie.runners.planning.memory_parts import gib

    placed, problem = _placed(topology, nodes)
    settings = {
        "agent": vars(topology.config),
        "run": {**vars(topology.run), "prefetch": topology.prefetch},
        "environment": vars(topology.env.settings),
    }
    if as_json:
        plan = {
            "agent": topology.agent,
            "env_id": topology.env.env_id,
            "seed": topology.seed,
            "runner": topology.runner,
            "num_actors": topology.num_actors,
            "envs_per_actor": topology.envs_per_actor,
            "roles": [vars(place) for place in topology.places],
            "processes": topology.num_processes,
            "memory_bytes": dict(topology.memory),
            "nodes": [{"node": node, "roles": roles} for node, roles in placed],
            "settings": settings,
            "note": topology.note,
        }
        print(json.dumps(plan), flush=True)
        return
    print(topology.describe())
    if topology.runner == "local":
        print("one process, one thread; it would need:")
    else:
        print(f"{topology.num_processes} processes:")
        for place in topology.places:
            asks = f"{place.num_cpus:g} CPU" + (f", {place.num_gpus:g} GPU" if place.num_gpus else "")
            print(f"  {place.count} x {place.role}, {asks}: {place.where}; {gib(place.memory_bytes)} each")
        if topology.runner == "ray":
            _show_nodes(placed, problem)
        print("it would need:")
    for part, size in topology.memory.items():
        print(f"  {size / 2**20:>10,.1f} MiB  {part}")
    for table, values in settings.items():
        print(f"[{table}]")
        for name, value in values.items():
            print(f"  {name} = {value}")


def _placed(topology: Topology, nodes: Sequence[ClusterNode] | None) -> tuple[list[tuple[str, dict[str, int]]], str]:
    """The roles that each node would get, or the reason why that is unknown."""
    from reverie.runners.planning.nodes import NoRoomError, place

    if nodes is None:
        return (
            [],
            "the nodes are unknown until there is a cluster; the run checks at its start that the cluster has room",
        )
    try:
        return [(node.name, dict(roles)) for node, roles in place(topology, nodes)], ""
    except NoRoomError as error:  # with --no-check-memory the run may still start
        return [], str(error)


def _show_nodes(placed: Sequence[tuple[str, dict[str, int]]], problem: str) -> None:
    """Print the roles of each node, nodes with the same roles in one line."""
    alike = Counter((node, ", ".join(f"{count} x {role}" for role, count in roles.items())) for node, roles in placed)
    for (node, roles), count in alike.items():
        print(f"  on {count} x {node}: {roles or 'nothing'}")
    if problem:
        print(f"  {problem}")
