"""Parts shared by agents with q-values over a discrete set of actions."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents import checks
from reverie.agents.actions import ActionEnumeration
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.inputs import reward_deviation
from reverie.agents.network_policy import NetworkPolicy
from reverie.agents.replay import ReplaySettings


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
        self.enumeration = ActionEnumeration(() if spec is None else spec.action_sizes)

    @torch.inference_mode()
    def q_values(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Q-values `[N, num_actions]` for observations `[N, ...]`."""
        with computing_in(self._precision, self._network.device):
            q = self._network.module(on_device(observations, self._network.device))
        values: NDArray[np.float32] = q.float().cpu().numpy()
        return values

    def q_values_in_rewards(
        self, observations: NDArray[Any], state: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Q-values `[N, num_actions]` in the unit of the rewards; a `recurrent` policy needs states `[N, S]`."""
        return self.q_values(observations) * np.float32(reward_deviation(self.module))

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


@dataclass(frozen=True, kw_only=True)
class HoldSettings(ReplaySettings):
    """How long random actions last."""

    random_hold: float = 1.0
    """Steps, on average, for which actors repeat a random action; 1 draws each independently."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.above_zero(self, "random_hold")
        if self.random_hold < 1:
            raise ValueError(f"random_hold is {self.random_hold}, and must be at least 1")


class EpsilonGreedyExploration:
    """Epsilon-greedy actions of an actor, whose random ones last for `hold` steps on average.

    A share of epsilon of all steps is random with any `hold` above 1, also of first steps of episodes: a random action
    begins more rarely and lasts longer (Dabney et al. 2021, *Temporally-Extended epsilon-Greedy Exploration*, with
    durations that are geometric).
    """

    def __init__(self, num_envs: int, num_actions: int, hold: float) -> None:
        self._num_actions, self._keep = num_actions, 1.0 - 1.0 / hold
        self._held = np.full(num_envs, -1)
        """The random action of an environment that goes on with one, else -1."""

    def choose(
        self,
        rng: np.random.Generator,
        greedy: NDArray[np.int64],
        epsilons: float | NDArray[np.float64],
        begins: NDArray[np.bool_],
    ) -> NDArray[np.int64]:
        """Actions `[N]` for greedy ones `[N]`; `begins` `[N]` marks environments that begin a new episode."""
        if not self._keep:
            return epsilon_greedy(rng, greedy, self._num_actions, epsilons)
        goes_on = (self._held >= 0) & ~begins & (rng.random(len(greedy)) < self._keep)
        # In the long run a share x of steps is random, x = keep x + (1 - keep x) start: this start makes it epsilon. A
        # first step has none before it: with probability epsilon it is as one in the middle of an episode.
        start = np.where(begins, epsilons, epsilons * (1.0 - self._keep) / (1.0 - self._keep * epsilons))
        fresh = np.where(rng.random(len(greedy)) < start, rng.integers(self._num_actions, size=len(greedy)), -1)
        self._held = np.where(goes_on, self._held, fresh)
        return np.where(self._held >= 0, self._held, greedy)


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


def idle_epsilon(config: EpsilonSettings) -> dict[str, str]:
    """Settings without effect, as `Settings.without_effect` has them, if actors never explore, or always as much."""
    if config.epsilon_start == config.epsilon_end == 0:
        return dict.fromkeys(("epsilon_steps", "random_hold"), "epsilon_start and epsilon_end are 0")
    if config.epsilon_start == config.epsilon_end:
        return {"epsilon_steps": "epsilon_start and epsilon_end are equal"}
    return {}


def td_errors(q_tm1: Tensor, a_tm1: Tensor, target_tm1: Tensor) -> Tensor:
    """`target - q(s_tm1, a_tm1)`, `[B]`; no gradient flows into the target."""
    return target_tm1.detach() - q_tm1.gather(1, a_tm1.unsqueeze(1)).squeeze(1)


def huber(x: Tensor, delta: float) -> Tensor:
    """`0.5 x^2` within `delta`, `delta (|x| - 0.5 delta)` beyond: the gradient is `x` clipped to `[-delta, delta]`."""
    return torch.nn.functional.huber_loss(x, torch.zeros_like(x), reduction="none", delta=delta)
