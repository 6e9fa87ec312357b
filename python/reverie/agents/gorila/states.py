"""The states of learners and shards that ran apart, as the state of a `Learner` that has them all, and back.

A run may so begin in one process and go on in many, or the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def join_states(learners: Sequence[dict[str, Any]], shards: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """As if every learner had just pulled: gradients that were on their way are in it nowhere."""
    flat = np.concatenate([shard["flat"] for shard in shards])
    versions = tuple(shard["version"] for shard in shards)
    networks: dict[str, Any] = {}
    workers = []
    for index, learner in enumerate(learners):
        networks |= {f"online-{index}": flat.copy(), f"target-{index}": learner["networks"][f"target-{index}"]}
        (worker,) = learner["workers"]
        workers.append({**worker, "version": min(versions), "versions": versions})
    counts = {name: sum(learner["counts"][name] for learner in learners) for name in learners[0]["counts"]}
    return {
        **learners[0],
        "version": min(versions),
        "networks": networks,
        "counts": counts,
        "workers": workers,
        "turn": 0,
        "server": {"shards": list(shards)},
    }


def learner_state(state: dict[str, Any], index: int) -> dict[str, Any]:
    """Of learner `index` alone, whose server is elsewhere. What all have counted is the first one's."""
    names = (f"online-{index}", f"target-{index}")
    return {
        **state,
        "networks": {name: state["networks"][name] for name in names},
        "counts": {name: count if index == 0 else 0 for name, count in state["counts"].items()},
        "workers": [state["workers"][index]],
        "turn": 0,
        "server": None,
    }


def parameter_shard_state(state: dict[str, Any], index: int) -> dict[str, Any]:
    """Of shard `index` alone."""
    shard: dict[str, Any] = state["server"]["shards"][index]
    return shard


def join_metrics(learners: Sequence[dict[str, float]]) -> dict[str, float]:
    """Of several learners: gradients added up, updates as the one that pulled last has them, means of the rest."""
    names = {name: None for learner in learners for name in learner}
    joined = {}
    for name in names:
        values = [learner[name] for learner in learners if name in learner]
        if name == "updates":
            joined[name] = max(values)
        else:
            joined[name] = sum(values) / (1 if name.startswith("gradients") else len(values))
    return joined
