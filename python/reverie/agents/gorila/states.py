"""Conversion between the states of separate learners and shards and the state of one `Learner` with all of them.

With it a run can begin in one process and resume in many, or the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def join_states(learners: Sequence[dict[str, Any]], shards: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One joined state, as if every learner had just pulled: gradients in flight are not included."""
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
        "draws": _all_draws([learner["draws"] for learner in learners]),
        "server": {"shards": list(shards)},
    }


def _all_draws(draws: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    known = [one for one in draws if one is not None]
    if not known:  # of bundles, which draw nothing ahead
        return None
    counts = {name: sum(one[name] for one in known) for name in ("given", "lost")}
    return {**counts, "ahead": [one for draws in known for one in draws["ahead"]]}


def learner_state(state: dict[str, Any], index: int) -> dict[str, Any]:
    """The state of learner `index` with a remote server. The first learner gets all counts and draws ahead."""
    names = (f"online-{index}", f"target-{index}")
    return {
        **state,
        "networks": {name: state["networks"][name] for name in names},
        "counts": {name: count if index == 0 else 0 for name, count in state["counts"].items()},
        "workers": [state["workers"][index]],
        "turn": 0,
        "draws": state.get("draws") if index == 0 else None,
        "server": None,
    }


def parameter_shard_state(state: dict[str, Any], index: int) -> dict[str, Any]:
    """The state of shard `index`."""
    shard: dict[str, Any] = state["server"]["shards"][index]
    return shard


def join_metrics(learners: Sequence[dict[str, float]]) -> dict[str, float]:
    """Metrics of several learners as one: sums of gradients and draws, the newest updates, means of the rest."""
    names = {name: None for learner in learners for name in learner}
    joined = {}
    for name in names:
        values = [learner[name] for learner in learners if name in learner]
        if name == "updates":
            joined[name] = max(values)
        else:
            joined[name] = sum(values) / (1 if name.startswith(("gradients", "draws")) else len(values))
    return joined
