"""The policy network, the critic of distributions, and the greedy policy."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from reverie.agents.d4pg.config import D4pgConfig
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.inputs import front
from reverie.agents.layers import MlpTorso, initialised
from reverie.agents.value_distributions import support


class CategoricalCritic(nn.Module):
    """Logarithms `[B, K]` of the probabilities of returns, of observations and actions in `[-1, 1]`."""

    def __init__(self, spec: EnvSpec, config: D4pgConfig) -> None:
        super().__init__()
        self._config = config
        first, features = front(spec)
        self.front = nn.ModuleList(first)
        self.torso = MlpTorso(features + spec.action_size, config.critic_hidden)
        self.head = nn.Linear(config.critic_hidden[-1], config.num_atoms)

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        """The logarithms."""
        for layer in self.front:
            observations = layer(observations)
        features = self.torso(torch.cat([observations.flatten(1).float(), actions], dim=1))
        return functional.log_softmax(self.head(features), dim=1)

    def q_values(self, observations: Tensor, actions: Tensor) -> Tensor:
        """The means `[B]` of the distributions."""
        config, p = self._config, self(observations, actions).exp()
        return torch.matmul(p, support(config.v_min, config.v_max, config.num_atoms, p.device))


def make_critic(spec: EnvSpec, config: D4pgConfig, *, seed: int, trainable: bool) -> FlatNetwork[CategoricalCritic]:
    """The critic."""
    return FlatNetwork(initialised(lambda: CategoricalCritic(spec, config), seed), trainable=trainable)
