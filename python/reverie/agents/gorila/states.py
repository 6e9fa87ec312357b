"""Conversion between the states of separate learners and shards and the state of one `Learner` with all of them.

With it a run can begin in one process and resume in many, or the other way round. The state of one shard has a range of
the vector of parameters; that of the whole server has parameters and moments by name, and the counts of each shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.gorila.config import GorilaConfig
from reverie.agents.gorila.networks import make_network
from reverie.agents.named_parameters import parameters_of

MOMENTS = ("exp_avg", "exp_avg_sq")
"""The numbers that Adam accumulates for each parameter."""


def server_state(network: FlatNetwork[Any], shards: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The state of a parameter server from those of its shards; `network` has names and places of the parameters."""
    moments = {
        # Adam begins with moments of 0.
        key: np.concatenate([one["optimizer"].get(key, np.zeros_like(one["flat"])) for one in shards])
        for key in MOMENTS
    }
    return {
        "parameters": network.named(torch.from_numpy(np.concatenate([one["flat"] for one in shards]))),
        "moments": {key: network.named(torch.from_numpy(vector)) for key, vector in moments.items()},
        "shards": [
            {"version": one["version"], "dropped": one["dropped"], "step": one["optimizer"].get("step")}
            for one in shards
        ],
    }


def shard_states(network: FlatNetwork[Any], server: dict[str, Any]) -> list[dict[str, Any]]:
    """The states of the shards from a `server_state`. Raises `ParameterError` for other parameters."""
    counts = server["shards"]
    with parameters_of("the parameter server"):
        flats = np.array_split(network.joined(server["parameters"]).numpy(), len(counts))
    moments = {}
    for key, one in server["moments"].items():
        with parameters_of(f"moments {key}"):
            moments[key] = np.array_split(network.joined_moments(one).numpy(), len(counts))
    return [
        {
            "version": one["version"],
            "flat": flats[i],
            "optimizer": {}
            if one["step"] is None
            else {"step": one["step"], **{key: parts[i] for key, parts in moments.items()}},
            "dropped": one["dropped"],
        }
        for i, one in enumerate(counts)
    ]


def join_states(
    spec: EnvSpec, config: GorilaConfig, learners: Sequence[dict[str, Any]], shards: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """One joined state, as if every learner had just pulled: gradients in flight are not included."""
    network = make_network(spec, config, seed=0, trainable=False)
    server = server_state(network, shards)
    versions = tuple(shard["version"] for shard in shards)
    networks: dict[str, Any] = {}
    workers = []
    for index, learner in enumerate(learners):
        networks |= {f"online-{index}": server["parameters"], f"target-{index}": learner["networks"][f"target-{index}"]}
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
        "server": server,
    }


def _all_draws(draws: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    known = [one for one in draws if one is not None]
    if not known:  # of bundles, which draw nothing ahead
        return None
    counts = {name: sum(one[name] for one in known) for name in ("given", "lost", "made")}
    return {**counts, "table": known[0]["table"], "ahead": [one for draws in known for one in draws["ahead"]]}


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


def parameter_shard_state(spec: EnvSpec, config: GorilaConfig, state: dict[str, Any], index: int) -> dict[str, Any]:
    """The state of shard `index`."""
    return shard_states(make_network(spec, config, seed=0, trainable=False), state["server"])[index]


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
