"""The requests for actors that Ray holds back, since no node has room for them."""

from __future__ import annotations

from collections.abc import Mapping

import ray
from ray.autoscaler.v2.sdk import get_cluster_status
from ray.exceptions import RayError

ANSWER_SECONDS = 5
"""Seconds that Ray's head has to answer."""


def is_queued(resources: Mapping[str, float], memory: float) -> bool:
    """Whether a request for exactly these resources waits for a node with room. Asks Ray's head.

    The figures of free resources do not show this: what is given to an actor is not free from then on, and only seconds
    later does it have a process. Nodes report their queues to the head about a second late. False if the head does not
    answer.
    """
    wanted = {name: amount for name, amount in {**resources, "memory": memory}.items() if amount}
    try:
        status = get_cluster_status(ray.get_runtime_context().gcs_address, timeout=ANSWER_SECONDS)
    except RayError:
        return False
    demands = status.resource_demands.ray_task_actor_demand
    return any(dict(one.bundle) == wanted for demand in demands for one in demand.bundles_by_count)
