"""An actor: the greedy actions of a network with noise, or epsilon-greedy ones."""

from __future__ import annotations

from typing import Any, Unpack

from numpy.typing import NDArray

from reverie.agents.core import ActorArguments, WeightSource
from reverie.agents.discrete import EpsilonGreedyExploration, falling_epsilon
from reverie.agents.environments import EnvSpec
from reverie.agents.rainbow.config import RainbowConfig
from reverie.agents.rainbow.networks import GreedyPolicy
from reverie.agents.replay_actor import ActionChoice, ReplayActor


class Actor(ReplayActor):
    """Every environment has noise of its own in each step."""

    def __init__(
        self, spec: EnvSpec, config: RainbowConfig, client: Any, weights: WeightSource, **role: Unpack[ActorArguments]
    ) -> None:
        self._policy = GreedyPolicy(spec, config)
        first = config.new_item_priority
        super().__init__(spec, config, client, weights, self._policy, **role, priority=first)
        self._config = config
        self._exploration = EpsilonGreedyExploration(self.num_envs, spec.num_actions or 0, config.random_hold)

    def _choose(self, obs: NDArray[Any]) -> ActionChoice:
        # An actor counts only its own steps: the others are assumed to have taken as many.
        now = falling_epsilon(self.env_steps * self._config.num_actors, self._config)
        if self._config.noisy:
            actions = self._policy.explore(obs, self._rng, now)
        else:
            actions = self._exploration.choose(self._rng, self._policy.greedy(obs), now, self._begins)
        return ActionChoice(actions, self._policy.enumeration.to_env(actions))
