"""The policy, the two critics, the value network, and the greedy policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reverie.agents.actor_critic import LogSigma
from reverie.agents.continuous import Critics, GreedyActions, torso
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.iql.config import NUM_CRITICS, IqlConfig
from reverie.agents.layers import initialised

LOG_SIGMA = (-5.0, 2.0)
"""The bounds of the logarithm of the deviation."""


class GaussianPolicy(nn.Module):
    """A diagonal Gaussian whose means lie in `[-1, 1]`. Called, it returns the means, the greedy actions."""

    def __init__(self, spec: EnvSpec, config: IqlConfig) -> None:
        super().__init__()
        self.torso = torso(spec, config.policy_hidden)
        self.head = nn.Linear(config.policy_hidden[-1], spec.action_size)
        self.sigma = LogSigma(spec.action_size, config.initial_sigma)

    def forward(self, observations: Tensor) -> Tensor:
        """Means `[B, A]`."""
        means: Tensor = torch.tanh(self.head(self.torso(observations)))
        return means

    def outputs(self, observations: Tensor) -> Tensor:
        """Outputs `[B, 2 A]` as `DiagonalGaussian` has them."""
        mean, log_sigma = self.sigma(self(observations)).chunk(2, dim=1)
        return torch.cat([mean, log_sigma.clamp(*LOG_SIGMA)], dim=1)


class StateValues(nn.Module):
    """Values `[B]` of observations `[B, ...]`."""

    def __init__(self, spec: EnvSpec, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.torso = torso(spec, hidden)
        self.head = nn.Linear(hidden[-1], 1)

    def forward(self, observations: Tensor) -> Tensor:
        """Values `[B]`."""
        values: Tensor = self.head(self.torso(observations)).squeeze(1)
        return values


def make_policy_network(spec: EnvSpec, config: IqlConfig, *, seed: int, trainable: bool) -> FlatNetwork[GaussianPolicy]:
    """The policy."""
    return FlatNetwork(initialised(lambda: GaussianPolicy(spec, config), seed), trainable=trainable)


def make_critics(spec: EnvSpec, config: IqlConfig, *, seed: int, trainable: bool) -> FlatNetwork[Critics]:
    """Q-values `[2, B]` of observations and actions in `[-1, 1]`."""
    return FlatNetwork(initialised(lambda: Critics(spec, config.critic_hidden, NUM_CRITICS), seed), trainable=trainable)


def make_values(spec: EnvSpec, config: IqlConfig, *, seed: int, trainable: bool) -> FlatNetwork[StateValues]:
    """The value network."""
    return FlatNetwork(initialised(lambda: StateValues(spec, config.critic_hidden), seed), trainable=trainable)


class GreedyPolicy(GreedyActions):
    """Takes the mean of the policy."""

    def __init__(self, spec: EnvSpec, config: IqlConfig) -> None:
        self._gaussian, self._size = make_policy_network(spec, config, seed=0, trainable=False), spec.action_size
        super().__init__(spec, self._gaussian)

    @torch.inference_mode()
    def noisy(self, observations: NDArray[Any], rng: np.random.Generator) -> NDArray[np.float32]:
        """Actions `[N, A]` drawn from the policy, clipped to `[-1, 1]`."""
        mean, log_sigma = self._gaussian.module.outputs(torch.from_numpy(observations)).chunk(2, dim=1)
        noise = torch.from_numpy(rng.standard_normal((len(observations), self._size), np.float32))
        actions: NDArray[np.float32] = (mean + log_sigma.exp() * noise).clamp(-1.0, 1.0).numpy()
        return actions

    def sample(self, observations: NDArray[Any], rng: np.random.Generator) -> NDArray[np.float32]:
        """Actions `[N, A]` drawn from the policy, in the environment's units."""
        return self._scale.to_env(self.noisy(observations, rng))
