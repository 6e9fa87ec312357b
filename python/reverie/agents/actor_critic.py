"""Parts shared by actor-critic agents, which draw actions from a policy and learn from its unrolls."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reverie.agents.continuous import ActionScale
from reverie.agents.distributions import Categorical, distribution_of, log_softmax
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.inputs import front, reward_deviation
from reverie.agents.layers import InitialisesItself, MlpTorso, initialised
from reverie.agents.network_policy import NetworkPolicy


class LogSigma(InitialisesItself):
    """Logarithms of deviations `[A]`, parameters that no observation changes."""

    def __init__(self, size: int, initial_sigma: float) -> None:
        super().__init__()
        self._initial = math.log(initial_sigma)
        self.log_sigma = nn.Parameter(torch.empty(size))

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Set all deviations to the initial one."""
        self.log_sigma.fill_(self._initial)

    def forward(self, mean: Tensor) -> Tensor:
        """`[B, 2 A]`: the means `[B, A]`, then the logarithms."""
        return torch.cat([mean, self.log_sigma.expand_as(mean)], dim=-1)


def policy_head(spec: EnvSpec, features: int, initial_sigma: float) -> nn.Module:
    """The last layer of a policy: its outputs are those of `distribution_of(spec)`."""
    if spec.num_actions is not None:
        return nn.Linear(features, distribution_of(spec).num_outputs)
    return nn.Sequential(nn.Linear(features, spec.action_size), LogSigma(spec.action_size, initial_sigma))


@torch.no_grad()
def quieten(head: nn.Module) -> None:
    """Set the weights of a head to a hundredth and its biases to 0: the initial policy hardly depends on the input."""
    (layer,) = (one for one in head.modules() if isinstance(one, nn.Linear))
    layer.weight.mul_(0.01)
    layer.bias.zero_()


class PolicyAndValue(nn.Module):
    """A policy network and a value network, without shared parameters or with all but the last layers shared."""

    def __init__(self, spec: EnvSpec, hidden: tuple[int, ...], *, initial_sigma: float = 1.0, shared: bool = False):
        super().__init__()
        self.head = policy_head(spec, hidden[-1], initial_sigma)
        self.shared = shared
        (policy, features), (value, _) = front(spec), front(spec)
        if shared:
            self.torso = nn.Sequential(*policy, MlpTorso(features, hidden))
            self.value_head = nn.Linear(hidden[-1], 1)
        else:
            self.policy = nn.Sequential(*policy, MlpTorso(features, hidden), self.head)
            self.value = nn.Sequential(*value, MlpTorso(features, hidden), nn.Linear(hidden[-1], 1))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs of the policy `[B, O]` and values `[B]` of observations `[B, ...]`."""
        if not self.shared:
            return self.policy(observations), self.values(observations)
        features = self.torso(observations)
        return self.head(features), self.value_head(features).squeeze(1)

    def outputs(self, observations: Tensor) -> Tensor:
        """Outputs of the policy `[B, O]`."""
        outputs: Tensor = self.head(self.torso(observations)) if self.shared else self.policy(observations)
        return outputs

    def values(self, observations: Tensor) -> Tensor:
        """Values `[B]`."""
        values: Tensor = self.value_head(self.torso(observations)) if self.shared else self.value(observations)
        return values.squeeze(1)


def policy_and_value(
    spec: EnvSpec,
    hidden: tuple[int, ...],
    *,
    seed: int,
    trainable: bool,
    initial_sigma: float = 1.0,
    shared: bool = False,
) -> FlatNetwork[PolicyAndValue]:
    """Policy and value network. The initial policy is almost the same for all observations: uniform, or around 0."""
    module = initialised(lambda: PolicyAndValue(spec, hidden, initial_sigma=initial_sigma, shared=shared), seed)
    quieten(module.head)
    return FlatNetwork(module, trainable=trainable)


class DrawnActions(NamedTuple):
    """Actions that an actor has drawn for observations `[N, ...]`."""

    actions: NDArray[Any]
    """The actions as tables and losses have them."""
    env_actions: NDArray[Any]
    """The actions as the environment takes them."""
    log_pi: NDArray[np.float32]
    """`[N]`, of `actions`."""
    values: NDArray[np.float32]
    """`[N]`, of the observations."""


class ActorCriticPolicy(NetworkPolicy):
    """Takes the most probable action, of continuous ones the mean; actors draw.

    Networks, tables and losses have continuous actions in units in which the environment's bounds are `[-1, 1]`. A draw
    may lie outside of them: the environment takes it clipped, the table as it was drawn.
    """

    def __init__(self, network: FlatNetwork[Any], spec: EnvSpec) -> None:
        super().__init__(network)
        self.distribution = distribution_of(spec)
        self._scale = ActionScale(spec) if spec.num_actions is None else None

    @torch.inference_mode()
    def drawn(
        self, observations: NDArray[Any], rng: np.random.Generator, normal: NDArray[np.float32] | None = None
    ) -> DrawnActions:
        """Actions drawn from the policy for observations `[N, ...]`; `normal` as for `Distribution.draw`."""
        outputs, values = self._network.module(torch.from_numpy(observations))
        return self._drawn(outputs, values, rng, normal)

    def initial_state(self, count: int) -> NDArray[np.float32]:
        """States `[count, S]` at the beginning of episodes; S is 0 for a policy that is not `recurrent`."""
        return np.zeros((count, 0), np.float32)

    def drawn_from(
        self,
        observations: NDArray[Any],
        state: NDArray[np.float32],
        rng: np.random.Generator,
        normal: NDArray[np.float32] | None = None,
    ) -> tuple[DrawnActions, NDArray[np.float32]]:
        """The actions of `drawn` from this state, and the next state."""
        return self.drawn(observations, rng, normal), state

    @torch.inference_mode()
    def values(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Values `[N]` for observations `[N, ...]`."""
        values: NDArray[np.float32] = self._network.module.values(torch.from_numpy(observations)).numpy()
        return values

    def values_in_rewards(
        self, observations: NDArray[Any], state: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Values `[N]` in the unit of the rewards; a policy that is `recurrent` needs states `[N, S]`."""
        return self.values(observations) * np.float32(reward_deviation(self.module))

    @torch.inference_mode()
    def probabilities(
        self, observations: NDArray[Any], state: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """The probabilities `[N, num_actions]` of discrete actions; a `recurrent` policy needs states `[N, S]`."""
        found: NDArray[np.float32] = self.forward(torch.from_numpy(observations)).exp().numpy()
        return found

    @torch.inference_mode()
    def __call__(self, observations: NDArray[Any]) -> NDArray[Any]:
        """The most probable actions, as the environment takes them."""
        return self._to_env(self.distribution.best(self._network.module.outputs(torch.from_numpy(observations))))

    def sample(self, observations: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        """Actions drawn from the policy, as the environment takes them."""
        return self.drawn(observations, rng).env_actions

    def forward(self, observations: Tensor) -> Tensor:
        """`log pi` `[N, num_actions]` of all parts; the greedy actions where they are continuous."""
        return self._result(self._network.module.outputs(observations))

    def choose(self, scores: Tensor) -> Tensor:
        """The most probable actions of `log pi`, for export."""
        return self.distribution.best(scores)

    def _result(self, outputs: Tensor) -> Tensor:
        if self._scale is not None:
            return self._scale.to_env_tensor(self.distribution.best(outputs))
        assert isinstance(self.distribution, Categorical)
        return log_softmax(outputs, self.distribution.sizes)

    def _drawn(
        self,
        outputs: Tensor,
        values: Tensor,
        rng: np.random.Generator,
        normal: NDArray[np.float32] | None = None,
    ) -> DrawnActions:
        actions = self.distribution.draw(outputs, rng, normal)
        log_pi = self.distribution.log_pi(outputs, actions)
        return DrawnActions(actions.numpy(), self._to_env(actions), log_pi.numpy(), values.numpy())

    def _to_env(self, actions: Tensor) -> NDArray[Any]:
        array: NDArray[Any] = actions.numpy()
        return array if self._scale is None else self._scale.to_env(array)


def mean(x: Tensor, weights: Tensor | None = None) -> Tensor:
    """The mean of `[M]`, weighted by `weights` `[M]`, which sum up to 1, if there are some."""
    return x.mean() if weights is None else (x * weights).sum()


def backward_sums(x: Tensor, keep_t: Tensor) -> Tensor:
    """`y_t = x_t + keep_t y_{t+1}` along the second axis of `[B, T]`, with `y_T = 0`."""
    following, sums = torch.zeros_like(x[:, 0]), []
    for here, keep in zip(reversed(x.unbind(1)), reversed(keep_t.unbind(1)), strict=True):
        following = here + keep * following
        sums.append(following)
    return torch.stack(sums[::-1], dim=1)
