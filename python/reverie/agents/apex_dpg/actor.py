"""An actor: the policy's actions with noise, and priorities from the critic's values of them."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from reverie.agents.apex_dpg.config import ApexDpgConfig
from reverie.agents.apex_dpg.networks import GreedyPolicy
from reverie.agents.continuous import ActionScale
from reverie.agents.core import ActorArguments, WeightSource
from reverie.agents.environments import EnvSpec
from reverie.agents.noise import ActionNoise
from reverie.agents.replay_actor import ActionChoice, ReplayActor


class Actor(ReplayActor):
    """Sends `|R_n + Gamma_n Q(s_{t+n}, pi(s_{t+n})) - Q(s_t, a_t)|` as first priorities."""

    def __init__(
        self, spec: EnvSpec, config: ApexDpgConfig, client: Any, weights: WeightSource, **role: Unpack[ActorArguments]
    ) -> None:
        self._policy = GreedyPolicy(spec, config)
        super().__init__(
            spec,
            config,
            client,
            weights,
            self._policy,
            **role,
            priority_eps=config.priority_eps,
            priority_clip=config.priority_clip,
        )
        self._scale = ActionScale(spec)
        self._noise = ActionNoise((self.num_envs, spec.action_size), config.noise_sigma)
        self._config = config

    def _choose(self, obs: NDArray[Any]) -> ActionChoice:
        theta = self._config.theta_at(self.env_steps * self._config.num_actors)
        greedy = self._policy.actions(obs)
        actions = (greedy + self._noise.draw(self._rng, self._begins, theta)).clip(-1.0, 1.0)
        bootstrap, taken = self._policy.values(obs, greedy, actions)
        return ActionChoice(actions, self._scale.to_env(actions), taken, bootstrap)

    def _values(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        greedy = self._policy.actions(obs)
        return self._policy.values(obs, greedy, greedy)[0]
