"""The stochastic policy network, the two critics, and the greedy policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reverie.agents.continuous import GreedyActions, torso
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.layers import initialised
from reverie.agents.sac.config import SacConfig

LOG_SIGMA = (-20.0, 2.0)
"""The bounds of the logarithm of the deviation."""


class GaussianPolicy(nn.Module):
    """A diagonal Gaussian before the tanh. Called, it returns `tanh(mean)`, the greedy action."""

    def __init__(self, spec: EnvSpec, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.torso = torso(spec, hidden)
        self.head = nn.Linear(hidden[-1], 2 * spec.action_size)

    def distribution(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the deviation, `[B, A]` each, before the tanh."""
        mean, log_sigma = self.head(self.torso(observations)).chunk(2, dim=1)
        return mean, log_sigma.clamp(*LOG_SIGMA)

    def forward(self, observations: Tensor) -> Tensor:
        """Actions `[B, A]` in `[-1, 1]` without noise."""
        return torch.tanh(self.distribution(observations)[0])


def make_policy_network(spec: EnvSpec, config: SacConfig, *, seed: int, trainable: bool) -> FlatNetwork[GaussianPolicy]:
    """The stochastic policy."""
    return FlatNetwork(initialised(lambda: GaussianPolicy(spec, config.policy_hidden), seed), trainable=trainable)


class GreedyPolicy(GreedyActions):
    """Takes `tanh(mean)`; actors use `noisy`."""

    def __init__(self, spec: EnvSpec, config: SacConfig) -> None:
        self._gaussian = make_policy_network(spec, config, seed=0, trainable=False)
        self._size = spec.action_size
        super().__init__(spec, self._gaussian)

    @torch.inference_mode()
    def noisy(self, observations: NDArray[Any], noise: NDArray[np.float32]) -> NDArray[np.float32]:
        """Actions `[N, A]` in `[-1, 1]` with standard normal noise `[N, A]`."""
        mean, log_sigma = self._gaussian.module.distribution(torch.from_numpy(observations))
        actions: NDArray[np.float32] = torch.tanh(mean + log_sigma.exp() * torch.from_numpy(noise)).numpy()
        return actions

    def sample(self, observations: NDArray[Any], rng: np.random.Generator) -> NDArray[np.float32]:
        """Actions `[N, A]` drawn from the policy, in the environment's units."""
        noise = rng.standard_normal((len(observations), self._size), np.float32)
        return self._scale.to_env(self.noisy(observations, noise))
