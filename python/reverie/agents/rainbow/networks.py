"""The network of distributions of returns, and the policy that takes the greatest mean."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from reverie.agents.discrete import QPolicy, epsilon_greedy, on_device
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.inputs import front
from reverie.agents.layers import MlpTorso, initialised
from reverie.agents.rainbow.config import NUM_COSINES, RainbowConfig, outputs
from reverie.agents.random_layers import NoisyLinear, drawing
from reverie.agents.spectral_norm import normalise_layers
from reverie.agents.value_distributions import midpoints, support


class HeadStream(nn.Module):
    """A hidden layer and a last one, both noisy if the settings have `noisy`."""

    def __init__(self, features: int, num_outputs: int, config: RainbowConfig) -> None:
        super().__init__()
        width = config.hidden[-1]
        self.first, self.last = (
            NoisyLinear(a, b, config.noisy_sigma) if config.noisy else nn.Linear(a, b)
            for a, b in ((features, width), (width, num_outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        """`[B, ..., outputs]` of features `[B, ..., F]`."""
        found: Tensor = self.last(torch.relu_(self.first(x)))
        return found


class Head(nn.Module):
    """Numbers `[B, ..., A, K]` for each action, of features `[B, ..., F]`.

    With two streams they are `v + adv - mean_a adv` (Wang et al. 2016, equation 9; of distributions, Hessel et al.
    2018, section "The integrated agent").
    """

    def __init__(self, features: int, num_actions: int, config: RainbowConfig) -> None:
        super().__init__()
        self._shape = (num_actions, outputs(config))
        self.advantage = HeadStream(features, num_actions * outputs(config), config)
        self.value = HeadStream(features, outputs(config), config) if config.dueling else None

    def forward(self, x: Tensor) -> Tensor:
        """The numbers."""
        advantage: Tensor = torch.unflatten(self.advantage(x), -1, self._shape)
        if self.value is None:
            return advantage
        value: Tensor = self.value(x).unsqueeze(-2)
        return value + advantage - advantage.mean(dim=-2, keepdim=True)


class Embedding(nn.Module):
    """Embeds fractions `[B, T]` of a distribution as `relu(linear(cos(pi i tau)))` `[B, T, F]`, i < 64.

    Dabney et al. 2018b, equation 4 of section 3.1.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(NUM_COSINES, features)

    def forward(self, fractions: Tensor) -> Tensor:
        """The embedded fractions."""
        frequencies = math.pi * torch.arange(NUM_COSINES, device=fractions.device)
        return torch.relu_(self.linear(torch.cos(fractions.unsqueeze(2) * frequencies)))


class RainbowNetwork(nn.Module):
    """Called, it returns q-values `[B, A]` of observations `[B, ...]`: the means of its distributions."""

    def __init__(self, spec: EnvSpec, config: RainbowConfig) -> None:
        super().__init__()
        assert spec.num_actions is not None
        self._config = config
        first, features = front(spec)
        *shared, _ = config.hidden
        self.torso = nn.Sequential(*first, MlpTorso(features, tuple(shared)))
        width = shared[-1] if shared else features
        self.embedding = Embedding(width) if config.head == "quantile" else None
        self.head = Head(width, spec.num_actions, config)

    def forward(self, observations: Tensor) -> Tensor:
        """Q-values `[B, A]`."""
        config = self._config
        match config.head:
            case "categorical":
                return self.means(self.log_probabilities(observations).exp())
            case "quantile":
                fractions = midpoints(config.policy_quantiles, observations.device)
                return self.quantiles(observations, fractions.unsqueeze(0)).mean(dim=2)
        values: Tensor = self.head(self.torso(observations)).squeeze(2)
        return values

    def log_probabilities(self, observations: Tensor) -> Tensor:
        """Logarithms `[B, A, K]` of the probabilities of the categorical head."""
        return functional.log_softmax(self.head(self.torso(observations)), dim=2)

    def means(self, probabilities: Tensor) -> Tensor:
        """Means `[B, A]` of probabilities `[B, A, K]` of the categorical head."""
        config = self._config
        return torch.matmul(probabilities, support(config.v_min, config.v_max, config.num_atoms, probabilities.device))

    def quantiles(self, observations: Tensor, fractions: Tensor) -> Tensor:
        """Quantiles `[B, A, T]` of the quantile head at fractions `[B, T]`, or `[1, T]`."""
        assert self.embedding is not None
        features = self.torso(observations).unsqueeze(1) * self.embedding(fractions)
        found: Tensor = self.head(features).squeeze(3).transpose(1, 2)
        return found


def make_network(spec: EnvSpec, config: RainbowConfig, *, seed: int, trainable: bool) -> FlatNetwork[RainbowNetwork]:
    """The network, initialised as `nn.Linear` is, from a seed of its own."""
    network = initialised(lambda: RainbowNetwork(spec, config), seed)
    if config.spectral_norm:
        normalise_layers(network.torso, seed)
    return FlatNetwork(network, trainable=trainable)


class GreedyPolicy(QPolicy):
    """Takes `argmax_a q(s, a)` without noise; actors use `explore`."""

    def __init__(self, spec: EnvSpec, config: RainbowConfig) -> None:
        super().__init__(make_network(spec, config, seed=0, trainable=False), epsilon=config.epsilon_end, spec=spec)
        self._noisy = config.noisy

    @torch.inference_mode()
    def explore(self, observations: NDArray[Any], rng: np.random.Generator, epsilon: float) -> NDArray[np.int64]:
        """The numbers `[N]` of actions: greedy ones with noise of its own in each row, or epsilon-greedy ones."""
        if not self._noisy:
            q = self.q_values(observations)
            return epsilon_greedy(rng, q.argmax(axis=1), q.shape[1], epsilon)
        module, device = self._network.module, self._network.device

        def draw(shape: torch.Size, uniform: bool = False, /) -> Tensor:  # noisy layers take normal ones
            return on_device(rng.standard_normal(tuple(shape), np.float32), device)

        with drawing(module, len(observations), draw):
            numbers: NDArray[np.int64] = module(on_device(observations, device)).argmax(dim=1).cpu().numpy()
        return numbers

    def sample(self, observations: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int64]:
        """Actions of the noisy network, or greedy ones, each replaced by a random one with probability `epsilon`."""
        return self.enumeration.to_env(self.explore(observations, rng, self._epsilon))
