"""Layers that compute with random numbers, which they are given: learners, actors and traced updates draw their own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from reverie.agents.layers import InitialisesItself, Which, chosen


class RandomDraw(Protocol):
    """Returns random numbers of a shape, on the layers' device: see `random_numbers`."""

    def __call__(self, shape: torch.Size, uniform: bool = False, /) -> Tensor:
        """The next numbers."""


def random_numbers(shape: torch.Size, uniform: bool, generator: torch.Generator | None) -> Tensor:
    """Standard normal numbers, float32; if `uniform`, whole numbers of `UNIFORM` with equal probability.

    Uniform numbers take less time to draw (docs/measurements/updates.md). They are float32 as well: compiled updates
    compare integers one by one.
    """
    if not uniform:
        return torch.randn(shape, generator=generator)
    count = shape.numel()
    fours = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None, generator=generator)
    return fours.view(torch.int16)[:count].view(shape).float()


UNIFORM = range(-(2**15), 2**15)
"""The range of uniform random numbers."""


WEIGHTS_OF_A_ROW = 32_768
"""Weights of a layer for each row of a batch whose rows share their noise, up to which one product with the sum of the
means and the deviations is quicker than two products (docs/measurements/updates.md)."""


class RandomLayer(nn.Module):
    """Base of layers with random numbers. Outside of `drawing` it has none, and computes its mean."""

    UNIFORM_NOISE = False
    """Whether the random numbers that it takes are uniform."""
    noise: Tensor | None = None

    def noise_shape(self, rows: int) -> torch.Size:
        """The shape of the random numbers that it takes for a batch of `rows` rows."""
        raise NotImplementedError


@contextmanager
def drawing(module: nn.Module, rows: int, draw: RandomDraw) -> Iterator[None]:
    """A context in which the random layers of `module` compute with numbers that `draw` returns at the beginning."""
    layers = [one for one in module.modules() if isinstance(one, RandomLayer)]
    for layer in layers:
        layer.noise = draw(layer.noise_shape(rows), layer.UNIFORM_NOISE)
    try:
        yield
    finally:
        for layer in layers:
            layer.noise = None


class Dropout(RandomLayer):
    """Sets each number of `[k, B, width]` to 0 with probability `rate`, and divides the others by `1 - rate`.

    Srivastava et al. 2014, section 4. Its noise is uniform, `[k, B, width]`: the rate is rounded to a multiple of
    `2 ** -16`, and none between 0 and 1 becomes 0 or 1. Without noise it is the identity.
    """

    UNIFORM_NOISE = True

    def __init__(self, k: int, width: int, rate: float) -> None:
        super().__init__()
        dropped = min(max(round(rate * len(UNIFORM)), int(rate > 0)), len(UNIFORM) - 1)
        self._sides, self._kept = (k, width), 1 - dropped / len(UNIFORM)
        self._least = UNIFORM.start + dropped
        """The least of the numbers that keep a unit."""

    def noise_shape(self, rows: int) -> torch.Size:
        """`[k, rows, width]`."""
        return torch.Size((self._sides[0], rows, self._sides[1]))

    def forward(self, x: Tensor, which: Which = None) -> Tensor:
        """`[k, B, width]` of `[k, B, width]`; with `which`, `[j, B, width]` of these layers alone."""
        if self.noise is None:
            return x
        return x * (chosen(self.noise, which) >= self._least) / self._kept


class NoiseScales(InitialisesItself):
    """The learnt deviations of the weights and biases of a `NoisyLinear`."""

    def __init__(self, in_features: int, out_features: int, sigma: float) -> None:
        super().__init__()
        self._initial = sigma / math.sqrt(in_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features))

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Every deviation is `sigma / sqrt(inputs)`."""
        self.weight.fill_(self._initial)
        self.bias.fill_(self._initial)


class NoisyLinear(nn.Linear, RandomLayer):
    """A linear layer with factorised Gaussian noise (Fortunato et al. 2018, equations 9 to 11).

    `y = (W + S * f(o) f(i)') x + b + s * f(o)` with `f(x) = sign(x) sqrt(|x|)`; S and s are learnt. Its noise is
    `[1, in + out]`, the same for the whole batch, or `[B, in + out]`, another one in each row.
    """

    def __init__(self, in_features: int, out_features: int, sigma: float) -> None:
        super().__init__(in_features, out_features)
        self.scales = NoiseScales(in_features, out_features, sigma)

    def noise_shape(self, rows: int) -> torch.Size:
        """`[rows, in + out]`."""
        return torch.Size((rows, self.in_features + self.out_features))

    def forward(self, x: Tensor) -> Tensor:
        """`[B, ..., out]` of `[B, ..., in]`."""
        if self.noise is None:
            return super().forward(x)
        factors = self.noise.sign() * self.noise.abs().sqrt()
        inner, outer = factors[:, : self.in_features], factors[:, self.in_features :]
        rows = x.numel() // self.in_features
        if len(factors) == 1 and rows * WEIGHTS_OF_A_ROW >= self.weight.numel():
            weight = torch.addcmul(self.weight, self.scales.weight, outer.t() * inner)
            return functional.linear(x, weight, torch.addcmul(self.bias, self.scales.bias, outer[0]))
        ones = (1,) * (x.dim() - 2)
        inner, outer = inner.reshape(len(factors), *ones, -1), outer.reshape(len(factors), *ones, -1)
        return super().forward(x) + outer * functional.linear(x * inner, self.scales.weight, self.scales.bias)
