"""`reverie train --dry-run`: what would run, and with what."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reverie.runners import Topology


def show_plan(topology: Topology, *, as_json: bool) -> None:
    """Print roles, memory and settings, for a person or as one JSON object."""
    settings = {"agent": vars(topology.config), "run": {**vars(topology.run), "prefetch": topology.prefetch}}
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
            "settings": settings,
        }
        print(json.dumps(plan), flush=True)
        return
    print(topology.describe())
    if topology.runner == "local":
        print("one process, one thread; it would need:")
    else:
        print(f"{topology.num_processes} processes:")
        for place in topology.places:
            gpus = f", {place.num_gpus:g} GPU" if place.num_gpus else ""
            print(f"  {place.count} x {place.role}, {place.num_cpus:g} CPU{gpus}: {place.where}")
        print("it would need:")
    for part, size in topology.memory.items():
        print(f"  {size / 2**20:>10,.1f} MiB  {part}")
    for table, values in settings.items():
        print(f"[{table}]")
        for name, value in values.items():
            print(f"  {name} = {value}")
