"""Parts shared by agents with continuous actions: policies, critics, noise, and the scale of actions.

Networks, tables and losses use actions in `[-1, 1]`; environments have bounds of their own. `ActionScale` converts
between the two, only in actors and policies.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reverie.agents import checks, replay
from reverie.agents.core import ActorArguments, WeightSource
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.inputs import front, front_sizes
from reverie.agents.layers import LayerNorm, MlpTorso, ParallelLinear, Which, chosen, initialised, num_parameters
from reverie.agents.network_policy import NetworkPolicy
from reverie.agents.noise import CorrelatedSettings, NoiseExploration
from reverie.agents.priorities import priorities_of
from reverie.agents.random_layers import Dropout, RandomDraw, drawing
from reverie.agents.rates import AnnealSettings
from reverie.agents.replay import MaybePrioritizedSettings, ReplaySettings
from reverie.agents.replay_actor import ActionChoice, ReplayActor


class ActionScale:
    """Converts actions from `[-1, 1]` to an environment's bounds.

    Bounds that float32 cannot represent are rounded inwards, so that actions are in the space.
    """

    def __init__(self, spec: EnvSpec) -> None:
        low, high = _bounds_within(np.array(spec.action_low), np.array(spec.action_high))
        self._low, self._high = low, high
        self._centre, self._half = high / 2 + low / 2, high / 2 - low / 2  # the sum of large ones is not finite

    def to_env(self, actions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Actions `[N, A]` in the environment's units, clipped to its bounds against rounding errors."""
        scaled: NDArray[np.float32] = np.clip(self._centre + self._half * actions, self._low, self._high)
        return scaled

    def from_env(self, actions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Actions `[..., A]` of the environment's units in `[-1, 1]`; those outside of its bounds are clipped.

        A dimension whose bounds are equal is 0.
        """
        offset = actions - self._centre
        wide = np.broadcast_to(self._half > 0, offset.shape)
        scaled: NDArray[np.float32] = np.divide(offset, self._half, out=np.zeros_like(offset), where=wide)
        return scaled.clip(-1.0, 1.0)

    def to_env_tensor(self, actions: Tensor) -> Tensor:
        """Tensors `[N, A]` of actions in [-1, 1] as the environment takes them."""
        low, high, centre, half = (torch.from_numpy(x) for x in (self._low, self._high, self._centre, self._half))
        return torch.clamp(centre + half * actions, low, high)


def _bounds_within(low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[NDArray[np.float32], ...]:
    """The least and the greatest float32 within bounds `[A]`; the nearest ones where no float32 lies between them."""
    nearest_low, nearest_high = low.astype(np.float32), high.astype(np.float32)
    inner_low = np.where(nearest_low < low, np.nextafter(nearest_low, np.float32(np.inf)), nearest_low)
    inner_high = np.where(nearest_high > high, np.nextafter(nearest_high, np.float32(-np.inf)), nearest_high)
    between = inner_low <= inner_high
    return np.where(between, inner_low, nearest_low), np.where(between, inner_high, nearest_high)


def torso(spec: EnvSpec, hidden: tuple[int, ...]) -> nn.Module:
    """The layers of a policy before its head: features `[B, hidden[-1]]`."""
    first, features = front(spec)
    mlp = MlpTorso(features, hidden)
    return nn.Sequential(*first, mlp) if first else mlp


class TanhPolicy(nn.Module):
    """Deterministic actions `[B, A]` in `[-1, 1]` of observations `[B, ...]`."""

    def __init__(self, spec: EnvSpec, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.torso = torso(spec, hidden)
        self.head = nn.Linear(hidden[-1], spec.action_size)

    def forward(self, observations: Tensor) -> Tensor:
        """Actions `[B, A]`."""
        actions: Tensor = torch.tanh(self.head(self.torso(observations)))
        return actions


class Critics(nn.Module):
    """`k` critics that share only their input, and the layers of `inputs.front`.

    Called, it returns q-values `[k, B]` of observations and actions in `[-1, 1]`. Dropout and layer norm, if any, are
    between each hidden layer and its ReLU (Hiraoka et al. 2022, figure 1); dropout needs `q_values_of`.
    """

    def __init__(
        self, spec: EnvSpec, hidden: tuple[int, ...], k: int, *, layer_norm: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.k = k
        first, features = front(spec)
        self.front = nn.ModuleList(first)
        widths = (features + spec.action_size, *hidden, 1)
        self.layers = nn.ModuleList(ParallelLinear(k, a, b) for a, b in pairwise(widths))
        self.dropouts = nn.ModuleList(Dropout(k, width, dropout) for width in hidden if dropout)
        self.norms = nn.ModuleList(LayerNorm(width, k) for width in hidden if layer_norm)

    def forward(self, observations: Tensor, actions: Tensor, which: Which = None) -> Tensor:
        """Q-values `[k, B]`; with `which`, `[j, B]` of these critics alone."""
        return self.values(self.features(observations), actions, which)

    def features(self, observations: Tensor) -> Tensor:
        """The features that the critics share, `[B, F]`."""
        for layer in self.front:
            observations = layer(observations)
        return observations.flatten(1).float()

    def values(self, features: Tensor, actions: Tensor, which: Which = None) -> Tensor:
        """Q-values `[k, B]` of features `[B, F]` and actions `[B, A]`; with `which`, `[j, B]` of these critics."""
        x = chosen(torch.cat([features, actions], dim=1).expand(self.k, -1, -1), which)
        *hidden, last = self.layers
        for i, layer in enumerate(hidden):
            x = layer(x, which)
            x = self.dropouts[i](x, which) if self.dropouts else x
            x = torch.relu_(self.norms[i](x, which) if self.norms else x)
        q: Tensor = last(x, which)
        return q.squeeze(2)


def q_values_of(
    critics: FlatNetwork[Critics], observations: Tensor, actions: Tensor, draw: RandomDraw, which: Which = None
) -> Tensor:
    """Q-values `[k, B]`, with numbers that `draw` returns for dropout, if the critics have it.

    With `which` these are the values `[j, B]` of some critics, and `draw` returns the numbers of all.
    """
    with _dropping_out(critics, len(actions), draw):
        return critics.module(observations, actions, which)  # type: ignore[no-any-return]


def q_values_of_some(
    critics: FlatNetwork[Critics], observations: Tensor, actions: Tensor, count: int, draw: RandomDraw
) -> Tensor:
    """Like `q_values_of`, the values `[count, B]` of `count` critics, drawn without replacement; 0 means all of them.

    Chen et al. 2021, algorithm 1, line 7. The others are not computed.
    """
    k = critics.module.k
    if count in (0, k):
        return q_values_of(critics, observations, actions, draw)
    with _dropping_out(critics, len(actions), draw):
        which = draw(torch.Size((k,))).topk(count).indices
        return critics.module(observations, actions, which)  # type: ignore[no-any-return]


def _dropping_out(critics: FlatNetwork[Critics], rows: int, draw: RandomDraw) -> AbstractContextManager[None]:
    """`drawing` for critics with dropout. A null context without: `drawing` looks for random layers."""
    return drawing(critics.module, rows, draw) if critics.module.dropouts else nullcontext()


def q_values_of_each(critics: FlatNetwork[Critics], observations: Tensor, actions: Tensor, draw: RandomDraw) -> Tensor:
    """Q-values `[k, n, B]` of n actions `[n, B, A]` for each observation, with `draw` as for `q_values_of`."""
    module, count = critics.module, actions.shape[0] * actions.shape[1]
    features = module.features(observations).expand(len(actions), -1, -1).flatten(0, 1)
    with drawing(module, count, draw):
        q: Tensor = module.values(features, actions.flatten(0, 1))
    return q.view(len(q), *actions.shape[:2])


class GreedyActions(NetworkPolicy):
    """The actions of a policy network, without noise. `noise_sigma` is for `sample` only."""

    def __init__(self, spec: EnvSpec, network: FlatNetwork[Any], noise_sigma: float = 0.1) -> None:
        super().__init__(network)
        self._noise_sigma = noise_sigma
        self._scale = ActionScale(spec)

    @torch.inference_mode()
    def actions(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Actions `[N, A]` in `[-1, 1]` for observations `[N, ...]`."""
        actions: NDArray[np.float32] = self._network.module(torch.from_numpy(observations)).numpy()
        return actions

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Actions `[N, A]` in the environment's units."""
        return self._scale.to_env(self.actions(observations))

    def sample(self, observations: NDArray[Any], rng: np.random.Generator) -> NDArray[np.float32]:
        """Actions `[N, A]` with independent Gaussian noise, in the environment's units and within its bounds."""
        return self._scale.to_env(with_noise(rng, self.actions(observations), self._noise_sigma))

    def forward(self, observations: Tensor) -> Tensor:
        """Actions `[N, A]` in the environment's units."""
        return self._scale.to_env_tensor(self._network.module(observations))


def make_tanh_policy(spec: EnvSpec, hidden: tuple[int, ...], *, seed: int, trainable: bool) -> FlatNetwork[TanhPolicy]:
    """Actions `[B, A]` in `[-1, 1]` of observations `[B, ...]`."""
    return FlatNetwork(initialised(lambda: TanhPolicy(spec, hidden), seed), trainable=trainable)


def make_critic(spec: EnvSpec, hidden: tuple[int, ...], *, seed: int, trainable: bool) -> FlatNetwork[Critics]:
    """Q-values `[1, B]` of observations and actions in `[-1, 1]`."""
    return FlatNetwork(initialised(lambda: Critics(spec, hidden, 1), seed), trainable=trainable)


def make_critics(
    spec: EnvSpec, hidden: tuple[int, ...], config: EnsembleSettings, *, seed: int, trainable: bool
) -> FlatNetwork[Critics]:
    """Q-values `[k, B]` of observations and actions in `[-1, 1]`."""

    def make() -> Critics:
        return Critics(spec, hidden, config.num_critics, layer_norm=config.layer_norm, dropout=config.dropout)

    return FlatNetwork(initialised(make, seed), trainable=trainable)


def with_noise(rng: np.random.Generator, actions: NDArray[np.float32], sigma: float) -> NDArray[np.float32]:
    """Actions `[N, A]` in `[-1, 1]` with independent Gaussian noise of deviation `sigma`, clipped to these bounds."""
    noisy: NDArray[np.float32] = (actions + sigma * rng.standard_normal(actions.shape, np.float32)).clip(-1.0, 1.0)
    return noisy


@dataclass(frozen=True, kw_only=True)
class EnsembleSettings(MaybePrioritizedSettings):
    """Settings of several critics, and of what lets them learn from many updates for each step (REDQ, DroQ)."""

    num_critics: int = 2
    """Critics that learn from the same batches."""
    target_critics: int = 0
    """Critics, drawn at random for each update, whose smallest value is in the target (REDQ's M); 0 means all."""
    layer_norm: bool = False
    """Whether the critics' hidden layers are normalised."""
    dropout: float = 0.0
    """The probability with which a hidden unit of a critic is left out of an update, of online and target critics."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least_one(self, "num_critics")
        checks.not_negative(self, "target_critics", "dropout")
        if self.target_critics > self.num_critics:
            most = f"num_critics ({self.num_critics})"
            raise ValueError(f"target_critics is {self.target_critics}, and must be at most {most}")
        if self.dropout >= 1:
            raise ValueError(f"dropout is {self.dropout}, and must lie in [0, 1)")

    def without_effect(self) -> dict[str, str]:
        """Adds `target_critics`, which has no effect while `num_critics` is 1."""
        idle = {"target_critics": "num_critics is 1"} if self.num_critics == 1 else {}
        return {**super().without_effect(), **idle}


@dataclass(frozen=True, kw_only=True)
class NoisySettings(CorrelatedSettings, AnnealSettings):
    """Settings of a deterministic policy network, its critics, and the exploration noise."""

    policy_hidden: tuple[int, ...]
    """Widths of the hidden layers of the policy network."""
    critic_hidden: tuple[int, ...]
    """Widths of the hidden layers of each critic."""
    policy_learning_rate: float
    """The learning rate of the policy network."""
    critic_learning_rate: float
    """The learning rate of the critics."""
    noise_sigma: float
    """Standard deviation of the exploration noise, in units where actions span [-1, 1]."""
    random_steps: int
    """Environment steps, of all actors together, with uniform actions at the start."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.not_negative(self, "noise_sigma", "random_steps")
        checks.above_zero(self, "policy_learning_rate", "critic_learning_rate")
        checks.widths(self, "policy_hidden", "critic_hidden")

    def without_effect(self) -> dict[str, str]:
        """Adds the settings `noise_theta...`, which have no effect while `noise_sigma` and `random_steps` are 0."""
        names = ("noise_theta", "noise_theta_steps") if self.noise_sigma == self.random_steps == 0 else ()
        return {**super().without_effect(), **dict.fromkeys(names, "noise_sigma and random_steps are 0")}


class GreedyTanhPolicy(GreedyActions):
    """The actions of a deterministic policy network."""

    def __init__(self, spec: EnvSpec, config: NoisySettings) -> None:
        network = make_tanh_policy(spec, config.policy_hidden, seed=0, trainable=False)
        super().__init__(spec, network, config.noise_sigma)


class GaussianActor(ReplayActor):
    """An actor with uniform actions at first, then the policy's with Gaussian noise, clipped to bounds."""

    def __init__(
        self, spec: EnvSpec, config: NoisySettings, client: Any, weights: WeightSource, **role: Unpack[ActorArguments]
    ) -> None:
        policy, first = GreedyTanhPolicy(spec, config), config.new_item_priority
        super().__init__(spec, config, client, weights, policy, **role, priority=first)
        self._policy, self._scale = policy, ActionScale(spec)
        self._exploration = NoiseExploration((self.num_envs, spec.action_size))
        self._config = config
        self._sigma, self._random_steps = config.noise_sigma, config.random_steps // config.num_actors

    def _choose(self, obs: NDArray[Any]) -> ActionChoice:
        theta = self._config.theta_at(self.env_steps * self._config.num_actors)
        if self.env_steps < self._random_steps:
            actions = self._exploration.uniform(self._rng, self._begins, theta)
        else:
            noise = self._exploration.normal(self._rng, self._begins, theta)
            actions = (self._policy.actions(obs) + self._sigma * noise).clip(-1.0, 1.0)
        return ActionChoice(actions, self._scale.to_env(actions))


def critics_priorities(q_tm1: Tensor, target_tm1: Tensor, config: MaybePrioritizedSettings) -> Tensor:
    """New priorities `[B]`: the mean over the critics `[k, B]` of the absolute TD errors, clipped, plus `eps`."""
    errors = (target_tm1 - q_tm1).detach().abs().mean(dim=0)
    return priorities_of(errors, eps=config.priority_eps, clip=config.priority_clip)


def memory(
    spec: EnvSpec,
    config: ReplaySettings,
    *,
    policy: tuple[int, ...],
    critic: tuple[int, ...],
    critics: int,
    outputs: int = 1,
    sampled: int = 0,
) -> dict[str, int]:
    """Memory of a run in bytes by part.

    `policy` and `critic` are hidden widths, `critics` the number of critics, each with `outputs` outputs; `sampled` are
    actions of each row of a batch whose values are computed in addition to its own.
    """
    features, own, units = front_sizes(spec)
    actor = (features, *policy, 2 * spec.action_size)
    judge = (features + spec.action_size, *critic, outputs)
    # online, target, gradient, two moments; one policy in each actor
    norms = 2 * sum(critic) if getattr(config, "layer_norm", False) else 0
    one_critic = own + num_parameters(*judge) + norms
    parameters = (own + num_parameters(*actor)) * (5 + config.num_actors) + 5 * critics * one_critic
    layers = sum(actor) + (1 + sampled) * critics * sum(judge)
    return replay.memory(spec, config, parameters=parameters, units=2 * units + layers)
