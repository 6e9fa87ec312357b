"""Policy and value network of an actor-critic agent, with an LSTM or without, and the policy that has a state."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reverie.agents.actor_critic import ActorCriticPolicy, DrawnActions, policy_and_value, policy_head, quieten
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.inputs import front, reward_deviation
from reverie.agents.layers import MlpTorso, initialised
from reverie.agents.lstm import Lstm


class RecurrentPolicyAndValue(nn.Module):
    """Layers and an LSTM, whose output policy and value read with a linear layer each.

    A state `[B, 2 H]` has `h` and `c` of the LSTM.
    """

    def __init__(self, spec: EnvSpec, hidden: tuple[int, ...], units: int, *, initial_sigma: float = 1.0) -> None:
        super().__init__()
        first, features = front(spec)
        self.torso = nn.Sequential(*first, MlpTorso(features, hidden))
        self.lstm = Lstm(hidden[-1], units)
        self.head = policy_head(spec, units, initial_sigma)
        self.value_head = nn.Linear(units, 1)

    def forward(self, observations: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs of the policy `[B, O]`, values `[B]` and the next state, of observations `[B, ...]`."""
        h, c = state.chunk(2, dim=1)
        after = self.lstm.step(self.torso(observations), (h, c))
        return self.head(after[0]), self.value_head(after[0]).squeeze(1), torch.cat(after, dim=1)

    def unroll(self, observations: Tensor, first: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs `[B, T, O]` and values `[B, T]` of unrolls `[B, T, ...]`, from the state before them.

        `first` `[B, T]` is true where an episode begins, whose state is zero.
        """
        features = self.torso(observations.flatten(0, 1)).unflatten(0, first.shape)
        h, c = state.chunk(2, dim=1)
        x = self.lstm.episodes(features, first, (h, c)).flatten(0, 1)
        return self.head(x).unflatten(0, first.shape), self.value_head(x).view(first.shape)


def actor_critic(
    spec: EnvSpec,
    hidden: tuple[int, ...],
    *,
    lstm_units: int,
    shared: bool,
    seed: int,
    trainable: bool,
    initial_sigma: float = 1.0,
) -> FlatNetwork[Any]:
    """Policy and value network; the initial policy is almost uniform, or a Gaussian around the middle.

    With `lstm_units` above 0 an LSTM follows the hidden layers, and policy and value share all but their last layers;
    otherwise `shared` decides.
    """
    if lstm_units:
        module = initialised(
            lambda: RecurrentPolicyAndValue(spec, hidden, lstm_units, initial_sigma=initial_sigma), seed
        )
        quieten(module.head)
        return FlatNetwork(module, trainable=trainable)
    return policy_and_value(spec, hidden, seed=seed, trainable=trainable, initial_sigma=initial_sigma, shared=shared)


def policy_of(network: FlatNetwork[Any], spec: EnvSpec) -> ActorCriticPolicy:
    """The policy of a network of `actor_critic`, with a state if the network has one."""
    kind = LstmActorCriticPolicy if isinstance(network.module, RecurrentPolicyAndValue) else ActorCriticPolicy
    return kind(network, spec)


class LstmActorCriticPolicy(ActorCriticPolicy):
    """A policy with a state `[N, 2 H]` in each episode. Methods without a state compute the first step of episodes."""

    recurrent = True

    def __init__(self, network: FlatNetwork[RecurrentPolicyAndValue], spec: EnvSpec) -> None:
        super().__init__(network, spec)
        self._size = 2 * network.module.lstm.units

    def initial_state(self, count: int) -> NDArray[np.float32]:
        """The state `[count, S]` at the beginning of episodes."""
        return np.zeros((count, self._size), np.float32)

    @torch.inference_mode()
    def drawn_from(
        self,
        observations: NDArray[Any],
        state: NDArray[np.float32],
        rng: np.random.Generator,
        normal: NDArray[np.float32] | None = None,
    ) -> tuple[DrawnActions, NDArray[np.float32]]:
        """Actions drawn from the policy for observations `[N, ...]`, and the next state."""
        outputs, values, after = self._computed(observations, state)
        return self._drawn(outputs, values, rng, normal), after.numpy()

    @torch.inference_mode()
    def values_from(self, observations: NDArray[Any], state: NDArray[np.float32]) -> NDArray[np.float32]:
        """Values `[N]` for observations `[N, ...]`."""
        values: NDArray[np.float32] = self._computed(observations, state)[1].numpy()
        return values

    def values_in_rewards(
        self, observations: NDArray[Any], state: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Values `[N]` in the unit of the rewards."""
        assert state is not None
        return self.values_from(observations, state) * np.float32(reward_deviation(self.module))

    @torch.inference_mode()
    def probabilities(
        self, observations: NDArray[Any], state: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """The probabilities `[N, num_actions]` of discrete actions."""
        assert state is not None
        scores, _ = self.forward_with(torch.from_numpy(observations), torch.from_numpy(state))
        found: NDArray[np.float32] = scores.exp().numpy()
        return found

    @torch.inference_mode()
    def step(
        self, observations: NDArray[Any], state: NDArray[np.float32], rng: np.random.Generator | None = None
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Actions as the environment takes them, the most probable ones or with `rng` drawn, and the next state."""
        outputs, values, after = self._computed(observations, state)
        if rng is None:
            return self._to_env(self.distribution.best(outputs)), after.numpy()
        return self._drawn(outputs, values, rng).env_actions, after.numpy()

    def drawn(
        self, observations: NDArray[Any], rng: np.random.Generator, normal: NDArray[np.float32] | None = None
    ) -> DrawnActions:
        """Actions drawn from the policy at the beginning of episodes."""
        return self.drawn_from(observations, self.initial_state(len(observations)), rng, normal)[0]

    def values(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Values `[N]` at the beginning of episodes."""
        return self.values_from(observations, self.initial_state(len(observations)))

    def __call__(self, observations: NDArray[Any]) -> NDArray[Any]:
        """The most probable actions at the beginning of episodes."""
        return self.step(observations, self.initial_state(len(observations)))[0]

    def forward(self, observations: Tensor) -> Tensor:
        """The same output as the base class's, for observations at the beginning of episodes."""
        state = torch.zeros((len(observations), self._size), device=observations.device)
        return self.forward_with(observations, state)[0]

    def forward_with(self, observations: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The output of `forward` from this state, and the next state."""
        outputs, _, after = self._network.module(observations, state)
        return self._result(outputs), after

    def _computed(self, observations: NDArray[Any], state: NDArray[np.float32]) -> tuple[Tensor, Tensor, Tensor]:
        computed: tuple[Tensor, Tensor, Tensor] = self._network.module(
            torch.from_numpy(observations), torch.from_numpy(state)
        )
        return computed
