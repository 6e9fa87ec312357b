"""An actor: the policy's actions with Gaussian noise."""

from __future__ import annotations

from typing import Any

from reverie.agents.continuous import GaussianActor
from reverie.agents.core import Stopwatch, WeightSource
from reverie.agents.d4pg.config import D4pgConfig
from reverie.agents.d4pg.networks import GreedyPolicy
from reverie.agents.environments import EnvSpec


class Actor(GaussianActor):
    """Steps a vector of environments and writes items into the replay."""

    def __init__(
        self,
        spec: EnvSpec,
        config: D4pgConfig,
        client: Any,
        weights: WeightSource,
        *,
        index: int,
        seed: int,
        watch: Stopwatch,
    ) -> None:
        policy = GreedyPolicy(spec, config)
        super().__init__(spec, config, client, weights, policy, index=index, seed=seed, watch=watch)
