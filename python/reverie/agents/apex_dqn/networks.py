"""The dueling network and the policies that read it. Images need another torso: `check` refuses them today."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reverie.agents.apex_dqn.config import ApexDqnConfig
from reverie.agents.core import Weights
from reverie.agents.environments import EnvSpec, UnsupportedEnvironmentError
from reverie.agents.flat import FlatNetwork


class DuelingHead(nn.Module):
    """`q(s, a) = v(s) + adv(s, a) - mean_a adv(s, a)` (Wang et al. 2016, equation 9), one linear layer for both.

    The equation is linear in `(v, adv)`, and so a product with one constant matrix `[num_actions, 1 + num_actions]`.
    """

    def __init__(self, features: int, num_actions: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 1 + num_actions)
        centre = torch.eye(num_actions, device="cpu") - 1 / num_actions
        self._combine = torch.cat([torch.ones(num_actions, 1, device="cpu"), centre], dim=1)

    def forward(self, features: Tensor) -> Tensor:
        """Q-values `[B, num_actions]` of features `[B, F]`."""
        return nn.functional.linear(self.linear(features), self._combine)


class MlpTorso(nn.Module):
    """Fully connected layers with ReLU over flattened observations `[B, ...]` of any real dtype."""

    def __init__(self, num_inputs: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        widths = (num_inputs, *hidden)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, observations: Tensor) -> Tensor:
        """Features `[B, F]`."""
        x = observations.flatten(1).float()
        for layer in self.layers:
            x = torch.relu_(layer(x))
        return x


def check(spec: EnvSpec) -> None:
    """Refuse what this agent cannot play, with what would fit."""
    if spec.num_actions is None:
        raise UnsupportedEnvironmentError(
            f"actions of {spec.env_id} are {spec.action_space}: apex-dqn picks one of a set (Discrete); continuous"
            " actions need a policy-gradient agent such as Ape-X DPG, which this version does not have. CartPole-v1,"
            " Acrobot-v1 and MountainCar-v0 have discrete actions"
        )
    if len(spec.obs_shape) >= 3:
        raise UnsupportedEnvironmentError(
            f"observations of {spec.env_id} are images of shape {spec.obs_shape}: this version of apex-dqn has"
            " fully connected layers only; flat observations fit, such as those of CartPole-v1"
        )


def make_network(spec: EnvSpec, config: ApexDqnConfig, *, seed: int, trainable: bool) -> FlatNetwork[nn.Sequential]:
    """Q-values `[B, num_actions]` of observations `[B, ...]`, initialised as `nn.Linear` is, from a seed of its own."""
    check(spec)
    assert spec.num_actions is not None
    with torch.device("meta"):  # layers made here would draw from the global random state
        module = nn.Sequential(
            MlpTorso(math.prod(spec.obs_shape), config.hidden), DuelingHead(config.hidden[-1], spec.num_actions)
        )
    module.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    for linear in (m for m in module.modules() if isinstance(m, nn.Linear)):
        bound = 1 / math.sqrt(linear.in_features)
        nn.init.uniform_(linear.weight, -bound, bound, generator=generator)
        nn.init.uniform_(linear.bias, -bound, bound, generator=generator)
    return FlatNetwork(module, trainable=trainable)


class GreedyPolicy:
    """`argmax_a q(s, a)`; `q_values` is what actors explore around."""

    def __init__(self, spec: EnvSpec, config: ApexDqnConfig) -> None:
        self._network = make_network(spec, config, seed=0, trainable=False)

    def load(self, weights: Weights) -> None:
        """Take over weights; an array of another length is a ValueError."""
        self._network.load(weights.flat)

    @torch.inference_mode()
    def q_values(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """`[N, num_actions]` for observations `[N, ...]`."""
        q: NDArray[np.float32] = self._network.module(torch.from_numpy(observations)).numpy()
        return q

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.int64]:
        """Actions `[N]` for observations `[N, ...]`."""
        actions: NDArray[np.int64] = self.q_values(observations).argmax(axis=1)
        return actions
