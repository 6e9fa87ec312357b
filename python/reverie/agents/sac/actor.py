"""An actor: actions drawn from the policy."""

from __future__ import annotations

from typing import Any, Unpack

from numpy.typing import NDArray

from reverie.agents.continuous import ActionScale
from reverie.agents.core import ActorArguments, WeightSource
from reverie.agents.environments import EnvSpec
from reverie.agents.noise import NoiseExploration
from reverie.agents.replay_actor import ActionChoice, ReplayActor
from reverie.agents.sac.config import SacConfig
from reverie.agents.sac.networks import GreedyPolicy


class Actor(ReplayActor):
    """Uniform actions at first, then the policy's own."""

    def __init__(
        self, spec: EnvSpec, config: SacConfig, client: Any, weights: WeightSource, **role: Unpack[ActorArguments]
    ) -> None:
        self._policy = GreedyPolicy(spec, config)
        first = config.new_item_priority
        super().__init__(spec, config, client, weights, self._policy, **role, priority=first)
        self._scale = ActionScale(spec)
        self._exploration = NoiseExploration((self.num_envs, spec.action_size))
        self._config = config
        self._random_steps = config.random_steps // config.num_actors

    def _choose(self, obs: NDArray[Any]) -> ActionChoice:
        theta = self._config.theta_at(self.env_steps * self._config.num_actors)
        if self.env_steps < self._random_steps:
            actions = self._exploration.uniform(self._rng, self._begins, theta)
        else:
            actions = self._policy.noisy(obs, self._exploration.normal(self._rng, self._begins, theta))
        return ActionChoice(actions, self._scale.to_env(actions))
