"""Actors: one that reads a data set into the table, and DQN's, which plays the environment."""

from __future__ import annotations

from typing import Any

from reverie.agents.core import Stopwatch, WeightSource
from reverie.agents.cql.config import CqlConfig
from reverie.agents.dataset_reader import DatasetReader
from reverie.agents.dqn.actor import Actor
from reverie.agents.environments import EnvSpec


def make_actor(
    spec: EnvSpec, config: CqlConfig, client: Any, weights: WeightSource, *, index: int, seed: int, watch: Stopwatch
) -> Actor | DatasetReader:
    """A reader if there is a data set, else DQN's actor."""
    kind = DatasetReader if config.dataset else Actor
    return kind(spec, config, client, weights, index=index, seed=seed, watch=watch)
