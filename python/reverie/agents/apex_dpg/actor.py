"""An actor: the policy's actions with noise, and priorities from the critic's values of them."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from reverie.agents.acting import Choice, ReplayActor
from reverie.agents.apex_dpg.config import ApexDpgConfig
from reverie.agents.apex_dpg.networks import GreedyPolicy
from reverie.agents.continuous import ActionScale
from reverie.agents.core import ActorRole, WeightSource
from reverie.agents.environments import EnvSpec


class Actor(ReplayActor):
    """Sends `|R_n + Gamma_n Q(s_{t+n}, pi(s_{t+n})) - Q(s_t, a_t)|` as first priorities."""

    def __init__(
        self, spec: EnvSpec, config: ApexDpgConfig, client: Any, weights: WeightSource, **role: Unpack[ActorRole]
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
        theta = config.noise_theta if config.noise == "ornstein-uhlenbeck" else 1.0
        self._noise = Noise((self.num_envs, spec.action_size), config.noise_sigma, theta)

    def _choose(self, obs: NDArray[Any]) -> Choice:
        greedy = self._policy.actions(obs)
        actions = (greedy + self._noise.draw(self._rng, self._begins)).clip(-1.0, 1.0)
        bootstrap, taken = self._policy.values(obs, greedy, actions)
        return Choice(actions, self._scale.to_env(actions), taken, bootstrap)


class Noise:
    """`x <- (1 - theta) x + sigma sqrt(1 - (1 - theta)^2) eps`: a process of deviation `sigma` (Uhlenbeck 1930).

    With `theta = 1` it is independent Gaussian noise. A reset environment starts at a draw of the stationary law.
    """

    def __init__(self, shape: tuple[int, int], sigma: float, theta: float) -> None:
        self._x = np.zeros(shape, np.float32)
        self._fresh = True
        self._sigma, self._keep = np.float32(sigma), np.float32(1.0 - theta)
        self._kick = np.float32(sigma * (1.0 - (1.0 - theta) ** 2) ** 0.5)

    def draw(self, rng: np.random.Generator, resets: NDArray[np.bool_]) -> NDArray[np.float32]:
        """The next noise `[N, A]`, float32; `resets` `[N]` marks environments that begin a new episode."""
        eps = rng.standard_normal(self._x.shape, np.float32)
        going_on = self._keep * self._x + self._kick * eps
        begins = np.ones_like(resets) if self._fresh else resets
        self._fresh = False
        self._x = np.where(begins[:, None], self._sigma * eps, going_on)
        return self._x
