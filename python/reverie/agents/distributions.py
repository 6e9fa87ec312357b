"""Families of stochastic policies: what the outputs of a policy network mean, for actors and for losses.

`Categorical` is for discrete actions and vectors of choices, `DiagonalGaussian` for vectors of numbers. Outputs are
`[..., O]`, actions int64 `[...]` (`[..., A]` of vectors of choices) or float32 `[..., A]`.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.actions import per_part
from reverie.agents.environments import EnvSpec


class Distribution(Protocol):
    """A family of policies."""

    @property
    def num_outputs(self) -> int:
        """Outputs O of a network that has a policy of this family."""

    @property
    def num_random(self) -> int:
        """Random numbers R of one draw."""

    def log_pi(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """`log pi(a)` `[...]` of actions, or their log density."""

    def entropy(self, outputs: Tensor) -> Tensor:
        """The entropy `[...]` of the policies."""

    def draw(self, outputs: Tensor, rng: np.random.Generator, normal: NDArray[np.float32] | None = None) -> Tensor:
        """Actions drawn from the policies of outputs `[N, O]`.

        With standard normal numbers `normal` `[N, R]` each action is a function of its own R of them, and `rng` is not
        used. For outputs that do not depend on these numbers, the law of an action is the policy's.
        """

    def best(self, outputs: Tensor) -> Tensor:
        """The most probable actions."""


class Categorical:
    """One of `n` actions; with `sizes`, a choice for each part of an action, independent of the others.

    The outputs are logits, those of all parts one after the other.
    """

    def __init__(self, n: int = 0, sizes: tuple[int, ...] = ()) -> None:
        self.sizes, self.num_outputs = sizes, sum(sizes) or n
        self.num_random = self.num_outputs

    def log_pi(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """`log pi(a)` `[...]`."""
        return log_pi_of(log_softmax(outputs, self.sizes), actions, self.sizes)

    def entropy(self, outputs: Tensor) -> Tensor:
        """`-sum pi log pi` `[...]`, of all parts together."""
        log_pi = log_softmax(outputs, self.sizes)
        return -(log_pi.exp() * log_pi).sum(dim=-1)

    def draw(self, outputs: Tensor, rng: np.random.Generator, normal: NDArray[np.float32] | None = None) -> Tensor:
        """Actions `[N]`, or `[N, A]` of several parts: the argmax of `log pi` with Gumbel noise (Gumbel 1954)."""
        gumbel = rng.gumbel(size=tuple(outputs.shape)) if normal is None else gumbel_of(normal)
        return torch.from_numpy(largest(log_softmax(outputs, self.sizes).numpy() + gumbel, self.sizes))

    def best(self, outputs: Tensor) -> Tensor:
        """Actions `[N]`, or `[N, A]` of several parts."""
        chosen = [one.argmax(dim=-1) for one in per_part(outputs, self.sizes)]
        return torch.stack(chosen, dim=-1) if self.sizes else chosen[0]


class DiagonalGaussian:
    """Independent normal numbers. The outputs are `A` means, then the logarithms of `A` deviations.

    Actions are not bounded: an actor that clips them for its environment keeps the unclipped ones, whose density this
    is (the convention of the usual implementations of PPO).
    """

    def __init__(self, size: int) -> None:
        self.num_outputs, self.num_random = 2 * size, size

    def log_pi(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """`sum log N(a; mean, sigma)` `[...]`."""
        mean, log_sigma = outputs.chunk(2, dim=-1)
        noise = (actions - mean) / log_sigma.exp()
        return -(0.5 * noise.square() + log_sigma + 0.5 * math.log(2 * math.pi)).sum(dim=-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """`sum (log sigma + log(2 pi e) / 2)` `[...]`; it depends on no mean."""
        _, log_sigma = outputs.chunk(2, dim=-1)
        return (log_sigma + 0.5 * math.log(2 * math.pi * math.e)).sum(dim=-1)

    def draw(self, outputs: Tensor, rng: np.random.Generator, normal: NDArray[np.float32] | None = None) -> Tensor:
        """Numbers `[N, A]`."""
        mean, log_sigma = outputs.chunk(2, dim=-1)
        noise = rng.standard_normal(mean.shape, np.float32) if normal is None else normal
        return mean + log_sigma.exp() * torch.from_numpy(noise)

    def best(self, outputs: Tensor) -> Tensor:
        """The means `[N, A]`."""
        return outputs.chunk(2, dim=-1)[0]


def distribution_of(spec: EnvSpec) -> Categorical | DiagonalGaussian:
    """The family for an environment's actions."""
    if spec.num_actions is None:
        return DiagonalGaussian(spec.action_size)
    return Categorical(spec.num_actions, spec.action_sizes)


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


def largest(scores: NDArray[np.float64], sizes: tuple[int, ...] = ()) -> NDArray[np.int64]:
    """The index `[N]` of the largest score of each row `[N, num_actions]`; with `sizes` of each part, `[N, A]`."""
    chosen = [one.argmax(axis=1) for one in per_part(scores, sizes)]
    return np.stack(chosen, axis=1) if sizes else chosen[0]


def gumbel_of(normal: NDArray[np.float32]) -> NDArray[np.float64]:
    """Standard Gumbel numbers as functions of standard normal ones: `-log(-log Phi(x))`, which keeps their order."""
    gumbel: NDArray[np.float64] = -torch.log(-torch.special.log_ndtr(torch.from_numpy(normal).double())).numpy()
    return gumbel
