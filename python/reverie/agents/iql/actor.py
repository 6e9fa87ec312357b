"""Actors: one that reads a data set into the table, and one that plays the environment by the policy."""

from __future__ import annotations

from typing import Any, Unpack

from numpy.typing import NDArray

from reverie.agents.continuous import ActionScale
from reverie.agents.core import ActorArguments, Stopwatch, WeightSource
from reverie.agents.dataset_reader import DatasetReader
from reverie.agents.environments import EnvSpec
from reverie.agents.iql.config import IqlConfig
from reverie.agents.iql.networks import GreedyPolicy
from reverie.agents.replay_actor import ActionChoice, ReplayActor


class IqlActor(ReplayActor):
    """Plays the environment by draws from the policy."""

    def __init__(
        self, spec: EnvSpec, config: IqlConfig, client: Any, weights: WeightSource, **role: Unpack[ActorArguments]
    ) -> None:
        self._policy = GreedyPolicy(spec, config)
        super().__init__(spec, config, client, weights, self._policy, **role)
        self._scale = ActionScale(spec)

    def _choose(self, obs: NDArray[Any]) -> ActionChoice:
        actions = self._policy.noisy(obs, self._rng)
        return ActionChoice(actions, self._scale.to_env(actions))


def make_actor(
    spec: EnvSpec, config: IqlConfig, client: Any, weights: WeightSource, *, index: int, seed: int, watch: Stopwatch
) -> IqlActor | DatasetReader:
    """A reader if there is a data set, else a player."""
    kind = DatasetReader if config.dataset else IqlActor
    return kind(spec, config, client, weights, index=index, seed=seed, watch=watch)
