"""Parts shared by actor-critic agents, which draw actions from a policy and learn from its unrolls."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reverie.agents.core import Weights
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.layers import MlpTorso, initialised


class PolicyAndValue(nn.Module):
    """A policy network and a value network without shared parameters."""

    def __init__(self, spec: EnvSpec, hidden: tuple[int, ...]) -> None:
        super().__init__()
        assert spec.num_actions is not None
        self.head = nn.Linear(hidden[-1], spec.num_actions)
        self.policy = nn.Sequential(MlpTorso(spec.num_inputs, hidden), self.head)
        self.value = nn.Sequential(MlpTorso(spec.num_inputs, hidden), nn.Linear(hidden[-1], 1))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Logits `[B, num_actions]` and values `[B]` of observations `[B, ...]`."""
        return self.policy(observations), self.value(observations).squeeze(1)


def policy_and_value(
    spec: EnvSpec, hidden: tuple[int, ...], *, seed: int, trainable: bool
) -> FlatNetwork[PolicyAndValue]:
    """Policy and value network; the initial policy is almost uniform."""
    module = initialised(lambda: PolicyAndValue(spec, hidden), seed)
    with torch.no_grad():
        module.head.weight.mul_(0.01)
        module.head.bias.zero_()
    return FlatNetwork(module, trainable=trainable)


class SoftmaxPolicy:
    """Takes the most probable action; actors draw from `outputs`."""

    def __init__(self, network: FlatNetwork[PolicyAndValue]) -> None:
        self._network = network

    @property
    def module(self) -> nn.Module:
        """Policy and value network."""
        return self._network.module

    def load(self, weights: Weights) -> None:
        """Load weights. Raises ValueError for an array of another length."""
        self._network.load(weights.flat)

    @torch.inference_mode()
    def outputs(self, observations: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """`log pi` `[N, num_actions]` and values `[N]` for observations `[N, ...]`."""
        logits, values = self._network.module(torch.from_numpy(observations))
        return torch.log_softmax(logits, dim=1).numpy(), values.numpy()

    @torch.inference_mode()
    def values(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Values `[N]` for observations `[N, ...]`."""
        values: NDArray[np.float32] = self._network.module.value(torch.from_numpy(observations)).squeeze(1).numpy()
        return values

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.int64]:
        """Actions `[N]` for observations `[N, ...]`."""
        actions: NDArray[np.int64] = self.outputs(observations)[0].argmax(axis=1)
        return actions

    def sample(self, observations: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int64]:
        """Actions `[N]` drawn from the policy."""
        return draw(rng, self.outputs(observations)[0])

    def forward(self, observations: Tensor) -> Tensor:
        """`log pi` `[N, num_actions]`."""
        return torch.log_softmax(self._network.module.policy(observations), dim=1)


def draw(rng: np.random.Generator, log_pi: NDArray[np.float32]) -> NDArray[np.int64]:
    """Draws one action `[N]` per row of `log pi` `[N, num_actions]`, as the argmax with Gumbel noise (Gumbel 1954)."""
    actions: NDArray[np.int64] = (log_pi + rng.gumbel(size=log_pi.shape)).argmax(axis=1)
    return actions


def backward_sums(x: Tensor, keep_t: Tensor) -> Tensor:
    """`y_t = x_t + keep_t y_{t+1}` along the second axis of `[B, T]`, with `y_T = 0`."""
    out = torch.empty_like(x)
    following = torch.zeros_like(x[:, 0])
    for t in reversed(range(x.shape[1])):
        following = x[:, t] + keep_t[:, t] * following
        out[:, t] = following
    return out
