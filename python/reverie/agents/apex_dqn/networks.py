"""The dueling networks, of vectors and of images, and the policy that reads them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reverie.agents.apex_dqn.config import ApexDqnConfig
from reverie.agents.discrete import QPolicy
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.inputs import front
from reverie.agents.layers import MlpTorso, ValueLinear, in_float32, initialised


class DuelingHead(nn.Module):
    """`q(s, a) = v(s) + adv(s, a) - mean_a adv(s, a)` (Wang et al. 2016, equation 9), one linear layer for both.

    The equation is linear in `(v, adv)`, and so a product with one constant matrix `[num_actions, 1 + num_actions]`.
    """

    def __init__(self, features: int, num_actions: int) -> None:
        super().__init__()
        self.linear = ValueLinear(features, 1 + num_actions)
        centre = torch.eye(num_actions, device="cpu") - 1 / num_actions
        self._combine = torch.cat([torch.ones(num_actions, 1, device="cpu"), centre], dim=1)

    def forward(self, features: Tensor) -> Tensor:
        """Q-values `[B, num_actions]` of features `[B, F]`."""
        if self._combine.device != features.device:
            self._combine = self._combine.to(features.device)
        with in_float32(features.device):
            return nn.functional.linear(self.linear(features), self._combine)


class DuelingStreams(nn.Module):
    """The sum of a value and advantages, each with hidden layers of its own (Wang et al. 2016, figure 1)."""

    def __init__(self, features: int, hidden: tuple[int, ...], num_actions: int) -> None:
        super().__init__()
        self.value = nn.Sequential(MlpTorso(features, hidden), ValueLinear(hidden[-1], 1))
        self.advantage = nn.Sequential(MlpTorso(features, hidden), ValueLinear(hidden[-1], num_actions))

    def forward(self, features: Tensor) -> Tensor:
        """Q-values `[B, num_actions]` of features `[B, F]`."""
        advantage: Tensor = self.advantage(features)
        value: Tensor = self.value(features)
        return value + advantage - advantage.mean(dim=1, keepdim=True)


def make_network(spec: EnvSpec, config: ApexDqnConfig, *, seed: int, trainable: bool) -> FlatNetwork[nn.Sequential]:
    """Q-values `[B, num_actions]` of observations `[B, ...]`, initialised as `nn.Linear` is, from a seed of its own."""
    assert spec.num_actions is not None
    num_actions = spec.num_actions

    def make() -> nn.Sequential:
        first, features = front(spec)
        if spec.has_images:
            return nn.Sequential(*first, DuelingStreams(features, config.hidden, num_actions))
        return nn.Sequential(*first, MlpTorso(features, config.hidden), DuelingHead(config.hidden[-1], num_actions))

    return FlatNetwork(initialised(make, seed), trainable=trainable)


class GreedyPolicy(QPolicy):
    """Takes `argmax_a q(s, a)`; actors explore around `q_values`."""

    def __init__(self, spec: EnvSpec, config: ApexDqnConfig) -> None:
        network = make_network(spec, config, seed=0, trainable=False)
        epsilon = config.last_epsilon
        super().__init__(network, config.precision, epsilon=epsilon, spec=spec)
