"""Parts shared by agents with q-values over a discrete set of actions."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.actions import Enumeration
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.network_policy import NetworkPolicy


class QPolicy(NetworkPolicy):
    """Takes `argmax_a q(s, a)`; actors explore around `q_values`. `epsilon` is for `sample` only."""

    def __init__(
        self,
        network: FlatNetwork[Any],
        precision: str = "float32",
        *,
        epsilon: float = 0.05,
        spec: EnvSpec | None = None,
    ) -> None:
        """`spec` is needed for actions that are vectors of choices, whose combinations it numbers."""
        super().__init__(network)
        self._precision, self._epsilon = precision, epsilon
        self.enumeration = Enumeration(() if spec is None else spec.action_sizes)

    @torch.inference_mode()
    def q_values(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Q-values `[N, num_actions]` for observations `[N, ...]`."""
        with computing_in(self._precision, self._network.device):
            q = self._network.module(on_device(observations, self._network.device))
        values: NDArray[np.float32] = q.float().cpu().numpy()
        return values

    def greedy(self, observations: NDArray[Any]) -> NDArray[np.int64]:
        """The numbers `[N]` of the greedy actions for observations `[N, ...]`."""
        numbers: NDArray[np.int64] = self.q_values(observations).argmax(axis=1)
        return numbers

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.int64]:
        """Actions `[N]` for observations `[N, ...]`; `[N, A]` of vectors of choices."""
        return self.enumeration.to_env(self.greedy(observations))

    def sample(self, observations: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int64]:
        """Actions as greedy ones, each replaced by a random one with probability `epsilon`."""
        q = self.q_values(observations)
        return self.enumeration.to_env(epsilon_greedy(rng, q.argmax(axis=1), q.shape[1], self._epsilon))

    def choose(self, scores: Tensor) -> Tensor:
        """The actions of the greatest scores `[N, num_actions]`, for export."""
        return self.enumeration.to_env_tensor(scores.argmax(dim=1))

    def forward(self, observations: Tensor) -> Tensor:
        """Q-values `[N, num_actions]` in float32."""
        q: Tensor = self._network.module(observations)
        return q


def on_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """A tensor that shares the array's memory, or an asynchronous copy on another device."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


PRECISIONS = ("float32", "bfloat16")


def computing_in(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """A context for forward passes in this precision, except last layers; parameters and losses stay float32."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def epsilon_greedy(
    rng: np.random.Generator, greedy: NDArray[np.int64], num_actions: int, epsilons: float | NDArray[np.float64]
) -> NDArray[np.int64]:
    """Replace each action `[N]` with a random one, with probability epsilon (a number, or `[N]`)."""
    random = rng.integers(num_actions, size=len(greedy))
    return np.where(rng.random(len(greedy)) < epsilons, random, greedy)


class EpsilonSettings(Protocol):
    """The settings of an epsilon that falls in a line."""

    @property
    def epsilon_start(self) -> float:
        """Epsilon at the first step."""

    @property
    def epsilon_end(self) -> float:
        """Epsilon from step `epsilon_steps` on."""

    @property
    def epsilon_steps(self) -> int:
        """Environment steps of all actors together, over which it falls."""


def falling_epsilon(step: int, config: EpsilonSettings) -> float:
    """Epsilon at environment step `step` of the run (Mnih et al. 2015, Methods): in a line, then constant."""
    walked = min(1.0, step / config.epsilon_steps)
    return config.epsilon_start + walked * (config.epsilon_end - config.epsilon_start)


def td_errors(q_tm1: Tensor, a_tm1: Tensor, target_tm1: Tensor) -> Tensor:
    """`target - q(s_tm1, a_tm1)`, `[B]`; no gradient flows into the target."""
    return target_tm1.detach() - q_tm1.gather(1, a_tm1.unsqueeze(1)).squeeze(1)


def huber(x: Tensor, delta: float) -> Tensor:
    """`0.5 x^2` within `delta`, `delta (|x| - 0.5 delta)` beyond: the gradient is `x` clipped to `[-delta, delta]`."""
    return torch.nn.functional.huber_loss(x, torch.zeros_like(x), reduction="none", delta=delta)
