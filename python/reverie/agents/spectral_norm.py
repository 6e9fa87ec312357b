"""Spectral normalisation: layers whose weights are divided by their largest singular value."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from reverie.agents.layers import in_float32

LEAST = 1e-12
"""The least singular value to divide by: weights of zeros stay zeros."""
FIRST_ITERATIONS = 15
"""Power iterations before the first update, from random vectors; one follows each update."""


class SpectralNorm(nn.Module):
    """Weights `[out, ...]` as a matrix `[out, in]`, divided by an estimate of its largest singular value.

    Miyato et al. 2018, algorithm 1: `W / (u' W v)` with `v = W' u / |W' u|`. `u` `[out]` is a parameter without a
    gradient, so that it gets into target networks, to actors, and into files with the weights that it belongs to.
    """

    def __init__(self, weight: Tensor, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.u = nn.Parameter(torch.randn(len(weight), generator=generator, device="cpu").to(weight.device))
        for _ in range(FIRST_ITERATIONS):
            self.iterate(weight)

    def forward(self, weight: Tensor) -> Tensor:
        """The normalised weights. A weight's gradient counts the division, and `u` and `v` as constants."""
        matrix = weight.flatten(1)
        with in_float32(weight.device):
            with torch.no_grad():
                u = functional.normalize(self.u, dim=0)
                v = functional.normalize(matrix.t() @ u, dim=0)
            return weight / torch.dot(u, matrix @ v).clamp(min=LEAST)

    @torch.no_grad()
    def iterate(self, weight: Tensor) -> None:
        """Make one power iteration for these weights: `u = W W' u`, normalised; `u` stays where that is 0."""
        matrix = weight.flatten(1)
        product = matrix @ (matrix.t() @ self.u)
        norm = torch.linalg.vector_norm(product)
        self.u.copy_(torch.where(norm > 0, product / norm.clamp(min=LEAST), self.u))


class NormalisedLayer(nn.Module):
    """A layer of another class as well, whose `weight` is computed from the parameter `raw_weight` at each use.

    PyTorch's parametrizations compute it so, too, but their layers can be neither pickled nor copied.
    """

    raw_weight: Tensor
    spectral_norm: SpectralNorm

    @property
    def weight(self) -> Tensor:
        """The normalised weights."""
        normalised: Tensor = self.spectral_norm(self.raw_weight)
        return normalised

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced: Any = super().__reduce_ex__(protocol)
        return _without_state, (type(self).__bases__[1],), *reduced[2:]


@functools.cache
def _normalised(kind: Any) -> type[NormalisedLayer]:
    """The class of normalised layers of a kind."""
    return type(f"Normalised{kind.__name__}", (NormalisedLayer, kind), {})


def _without_state(kind: Any) -> NormalisedLayer:
    """A normalised layer that pickle fills."""
    made = _normalised(kind)
    return made.__new__(made)


def layers_of(module: nn.Module) -> list[nn.Linear | nn.Conv2d]:
    """The layers whose weights can be normalised."""
    return [one for one in module.modules() if isinstance(one, nn.Linear | nn.Conv2d)]


def normalise_layers(module: nn.Module, seed: int) -> None:
    """Normalise the weights of every linear layer and convolution of `module` from now on.

    For a network that is initialised, and not yet a `FlatNetwork`. Raises ValueError if it has no such layer, or one
    whose weights are not parameters.
    """
    layers = layers_of(module)
    require_some(len(layers))
    if any("weight" not in layer._parameters for layer in layers):
        raise ValueError("spectral_norm needs weights that are parameters, and a layer computes its own of others")
    for one in layers:
        layer: Any = one
        layer.raw_weight = layer._parameters.pop("weight")
        layer.spectral_norm = SpectralNorm(layer.raw_weight.detach(), seed)
        kind: Any = type(layer)
        layer.__class__ = _normalised(kind)


@torch.no_grad()
def follow_weights(module: nn.Module) -> None:
    """Make one power iteration in every normalised layer of `module`: after each change of its weights."""
    for one in module.modules():
        if isinstance(one, NormalisedLayer):
            one.spectral_norm.iterate(one.raw_weight)


def require_some(num_layers: int) -> None:
    """Raise ValueError if there is no layer to normalise."""
    if num_layers == 0:
        raise ValueError(
            "spectral_norm normalises the layers before the head, and there is none: give hidden two widths, or leave"
            " spectral_norm out"
        )
