"""The recurrent dueling network, and the policy with a state that reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reverie.agents.apex_dqn.networks import DuelingHead
from reverie.agents.discrete import QPolicy, epsilon_greedy, on_device
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.inputs import front, reward_deviation
from reverie.agents.layers import MlpTorso, initialised
from reverie.agents.lstm import Lstm, State
from reverie.agents.r2d2.config import R2d2Config
from reverie.agents.r2d2.loss import unrescale


class RecurrentQ(nn.Module):
    """Q-values of an observation, the action before it, and the state: layers, an LSTM, and a dueling head."""

    def __init__(self, spec: EnvSpec, config: R2d2Config) -> None:
        super().__init__()
        assert spec.num_actions is not None
        self.num_actions = spec.num_actions
        first, features = front(spec)
        self.torso = nn.Sequential(*first, MlpTorso(features, config.hidden))
        self.lstm = Lstm(config.hidden[-1] + spec.num_actions, config.lstm_units)
        self.head = DuelingHead(config.lstm_units, spec.num_actions)

    def forward(self, observations: Tensor, last_action: Tensor, state: State) -> tuple[Tensor, State]:
        """Q-values `[B, num_actions]` and the next state; `last_action` `[B, num_actions]` is one-hot, 0 at a start."""
        after = self.lstm.step(torch.cat([self.torso(observations), last_action], dim=1), state)
        return self.head(after[0]), after

    def one_hot(self, actions: Tensor) -> Tensor:
        """Actions `[...]` as vectors `[..., num_actions]`; -1, which is before an episode's first step, as zeros."""
        return (actions.unsqueeze(-1) == torch.arange(self.num_actions, device=actions.device)).float()

    def _inputs(self, observations: Tensor, last_action: Tensor) -> Tensor:
        """Inputs `[B, T, I]` of the LSTM."""
        features = self.torso(observations.flatten(0, 1)).unflatten(0, observations.shape[:2])
        return torch.cat([features, self.one_hot(last_action)], dim=2)

    @torch.no_grad()
    def burn_in(self, observations: Tensor, last_action: Tensor, mask: Tensor, state: State) -> State:
        """The state after the steps `[B, T, ...]` that `mask` `[B, T]` selects, without gradients."""
        if not observations.shape[1]:
            return state
        inputs = self.lstm.gates(self._inputs(observations, last_action))
        for gates, real in zip(inputs.unbind(1), mask.unbind(1), strict=True):
            after = self.lstm.after(gates, state)
            state = torch.where(real[:, None], after[0], state[0]), torch.where(real[:, None], after[1], state[1])
        return state

    def unroll(self, data: dict[str, Tensor], burn_in: int) -> Tensor:
        """Q-values `[B, rows - burn_in, num_actions]` of a batch of sequences, from their stored states on."""
        obs, last_action = data["obs"], data["last_action"]
        state = data["state"].unbind(1)
        state = self.burn_in(
            obs[:, :burn_in], last_action[:, :burn_in], data["mask"][:, :burn_in], (state[0], state[1])
        )
        outputs = self.lstm(self._inputs(obs[:, burn_in:], last_action[:, burn_in:]), state)
        q: Tensor = self.head(outputs.flatten(0, 1)).unflatten(0, outputs.shape[:2])
        return q


def make_network(spec: EnvSpec, config: R2d2Config, *, seed: int, trainable: bool) -> FlatNetwork[RecurrentQ]:
    """The network, initialised as PyTorch's layers are, from a seed of its own."""
    return FlatNetwork(initialised(lambda: RecurrentQ(spec, config), seed), trainable=trainable)


class GreedyPolicy(QPolicy):
    """Takes `argmax_a q(s, a)`. Its state `[N, S]` float32 has `h`, `c`, and the last action as one-hot vector.

    Methods without a state compute the first step of episodes.
    """

    recurrent = True

    def __init__(self, spec: EnvSpec, config: R2d2Config) -> None:
        network = make_network(spec, config, seed=0, trainable=False)
        super().__init__(network, epsilon=config.last_epsilon, spec=spec)
        self._rescale_epsilon = config.rescale_epsilon
        self._split = [config.lstm_units, config.lstm_units, network.module.num_actions]

    @property
    def _net(self) -> RecurrentQ:
        net: RecurrentQ = self._network.module
        return net

    def initial_state(self, count: int) -> NDArray[np.float32]:
        """The state `[count, S]` at the beginning of episodes."""
        return np.zeros((count, sum(self._split)), np.float32)

    @torch.inference_mode()
    def q_and_memory(
        self, observations: NDArray[Any], state: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Q-values `[N, num_actions]`, and `h` and `c` `[N, 2 H]` after them."""
        device = self._network.device
        q, memory = self._computed(on_device(observations, device), on_device(state, device))
        return q.cpu().numpy(), memory.cpu().numpy()

    def q_values(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Q-values `[N, num_actions]` at the beginning of episodes."""
        return self.q_and_memory(observations, self.initial_state(len(observations)))[0]

    def q_values_in_rewards(
        self, observations: NDArray[Any], state: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Q-values `[N, num_actions]` in the unit of the rewards, which the network's are not: they are rescaled."""
        assert state is not None
        rescaled = torch.from_numpy(self.q_and_memory(observations, state)[0])
        q: NDArray[np.float32] = unrescale(rescaled, self._rescale_epsilon).numpy()
        return q * np.float32(reward_deviation(self.module))

    def after(self, memory: NDArray[np.float32], numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        """The state `[N, S]` after `memory` and the actions with these numbers."""
        one_hot = np.eye(self._net.num_actions, dtype=np.float32)[numbers]
        return np.concatenate([memory, one_hot], axis=1)

    def step(
        self, observations: NDArray[Any], state: NDArray[np.float32], rng: np.random.Generator | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Actions `[N]` (`[N, A]` of vectors of choices) and the next state; with `rng`, as an actor explores."""
        q, memory = self.q_and_memory(observations, state)
        numbers = q.argmax(axis=1)
        if rng is not None:
            numbers = epsilon_greedy(rng, numbers, q.shape[1], self._epsilon)
        return self.enumeration.to_env(numbers), self.after(memory, numbers)

    def forward(self, observations: Tensor) -> Tensor:
        """Q-values `[N, num_actions]` at the beginning of episodes, in float32."""
        state = torch.zeros((len(observations), sum(self._split)), device=observations.device)
        return self.forward_with(observations, state)[0]

    def forward_with(self, observations: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Q-values `[N, num_actions]` and the next state `[N, S]` as PyTorch operations, for export."""
        q, memory = self._computed(observations, state)
        return q, torch.cat([memory, self._net.one_hot(q.argmax(dim=1))], dim=1)

    def _computed(self, observations: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        h, c, last_action = torch.split(state, self._split, dim=1)
        q, after = self._net(observations, last_action, (h, c))
        return q, torch.cat(after, dim=1)
