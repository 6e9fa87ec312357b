"""Parts shared by actor-critic agents, which draw actions from a policy and learn from its unrolls."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reverie.agents.actions import per_part
from reverie.agents.core import Weights
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.inputs import front
from reverie.agents.layers import MlpTorso, initialised


class PolicyAndValue(nn.Module):
    """A policy network and a value network without shared parameters."""

    def __init__(self, spec: EnvSpec, hidden: tuple[int, ...]) -> None:
        super().__init__()
        assert spec.num_actions is not None
        self.head = nn.Linear(hidden[-1], sum(spec.action_sizes) or spec.num_actions)
        (policy, features), (value, _) = front(spec), front(spec)
        self.policy = nn.Sequential(*policy, MlpTorso(features, hidden), self.head)
        self.value = nn.Sequential(*value, MlpTorso(features, hidden), nn.Linear(hidden[-1], 1))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Logits `[B, num_actions]` and values `[B]` of observations `[B, ...]`.

        Logits of vectors of choices are those of all parts, one after the other.
        """
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

    def __init__(self, network: FlatNetwork[PolicyAndValue], spec: EnvSpec) -> None:
        self._network, self.sizes = network, spec.action_sizes

    @property
    def module(self) -> nn.Module:
        """Policy and value network."""
        return self._network.module

    def load(self, weights: Weights) -> None:
        """Load weights. Raises ValueError for an array of another length."""
        self._network.load(weights.flat)

    @torch.inference_mode()
    def outputs(self, observations: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """`log pi` `[N, num_actions]` (of all parts) and values `[N]` for observations `[N, ...]`."""
        logits, values = self._network.module(torch.from_numpy(observations))
        return log_softmax(logits, self.sizes).numpy(), values.numpy()

    @torch.inference_mode()
    def values(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Values `[N]` for observations `[N, ...]`."""
        values: NDArray[np.float32] = self._network.module.value(torch.from_numpy(observations)).squeeze(1).numpy()
        return values

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.int64]:
        """Actions `[N]` for observations `[N, ...]`; `[N, A]` of vectors of choices."""
        return best(self.outputs(observations)[0], self.sizes)

    def sample(self, observations: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int64]:
        """Actions `[N]` drawn from the policy."""
        return draw(rng, self.outputs(observations)[0], self.sizes)

    def forward(self, observations: Tensor) -> Tensor:
        """`log pi` `[N, num_actions]`, of all parts."""
        return log_softmax(self._network.module.policy(observations), self.sizes)

    def choose(self, scores: Tensor) -> Tensor:
        """The most probable actions of `log pi`, for export."""
        chosen = [one.argmax(dim=1) for one in per_part(scores, self.sizes)]
        return torch.stack(chosen, dim=1) if self.sizes else chosen[0]


def log_softmax(logits: Tensor, sizes: tuple[int, ...] = ()) -> Tensor:
    """`log pi` of logits `[..., num_actions]`; with `sizes`, of each part of an action by itself."""
    parts = [torch.log_softmax(one, dim=-1) for one in per_part(logits, sizes)]
    return torch.cat(parts, dim=-1) if sizes else parts[0]


def log_pi_of(log_pi: Tensor, actions: Tensor, sizes: tuple[int, ...] = ()) -> Tensor:
    """`log pi(a)` `[...]` of `log pi` `[..., num_actions]` and actions `[...]`; with `sizes`, of actions `[..., A]`."""
    indices = actions if sizes else actions.unsqueeze(-1)
    pairs = zip(per_part(log_pi, sizes), indices.unbind(dim=-1), strict=True)
    taken = [part.gather(-1, index.unsqueeze(-1)).squeeze(-1) for part, index in pairs]
    return torch.stack(taken, dim=-1).sum(dim=-1) if sizes else taken[0]


def log_pi_taken(
    log_pi: NDArray[np.float32], actions: NDArray[np.int64], sizes: tuple[int, ...] = ()
) -> NDArray[np.float32]:
    """The same `[N]` of arrays, for actors."""
    taken = log_pi_of(torch.from_numpy(log_pi), torch.from_numpy(actions), sizes)
    found: NDArray[np.float32] = taken.numpy()
    return found


def best(log_pi: NDArray[Any], sizes: tuple[int, ...] = ()) -> NDArray[np.int64]:
    """The most probable actions `[N]` of `log pi`; `[N, A]` with `sizes`."""
    chosen = [one.argmax(axis=1) for one in per_part(log_pi, sizes)]
    return np.stack(chosen, axis=1) if sizes else chosen[0]


def draw(rng: np.random.Generator, log_pi: NDArray[np.float32], sizes: tuple[int, ...] = ()) -> NDArray[np.int64]:
    """Draws one action `[N]` per row of `log pi` `[N, num_actions]`, as the argmax with Gumbel noise (Gumbel 1954).

    With `sizes` one for each part, `[N, A]`.
    """
    return best(log_pi + rng.gumbel(size=log_pi.shape), sizes)


def backward_sums(x: Tensor, keep_t: Tensor) -> Tensor:
    """`y_t = x_t + keep_t y_{t+1}` along the second axis of `[B, T]`, with `y_T = 0`."""
    out = torch.empty_like(x)
    following = torch.zeros_like(x[:, 0])
    for t in reversed(range(x.shape[1])):
        following = x[:, t] + keep_t[:, t] * following
        out[:, t] = following
    return out
