"""Layers of the agents' networks, and their initialisation."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

Net = TypeVar("Net", bound=nn.Module)
Which = slice | Tensor | None
"""Some of k parallel layers: a slice, or indices `[j]`; None means all of them."""


class MlpTorso(nn.Module):
    """Fully connected layers with ReLU over flattened observations `[B, ...]` of any real dtype.

    With `layer_norm` each layer's outputs are normalised before the ReLU.
    """

    def __init__(self, num_inputs: int, hidden: tuple[int, ...], *, layer_norm: bool = False) -> None:
        super().__init__()
        widths = (num_inputs, *hidden)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(LayerNorm(width) for width in hidden if layer_norm)

    def forward(self, observations: Tensor) -> Tensor:
        """Features `[B, F]`."""
        x = observations.flatten(1).float()
        for i, layer in enumerate(self.layers):
            x = layer(x)
            x = torch.relu_(self.norms[i](x) if self.norms else x)
        return x


Convolutions = tuple[tuple[int, int, int], ...]
"""Filters, size and stride of each convolution."""


class ConvolutionTorso(nn.Module):
    """Convolutions with ReLU over images `[B, C, H, W]` whose values lie in [0, `largest`].

    Computes in channels_last, which takes two thirds of the processor time here. It divides its first weights by
    `largest` instead of its inputs: bytes stay whole numbers, which bfloat16 represents exactly.
    """

    def __init__(self, shape: tuple[int, ...], kernels: Convolutions, largest: float) -> None:
        super().__init__()
        self.kernels, self._largest = kernels, largest
        widths = (shape[0], *(filters for filters, _, _ in kernels))
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, size, stride) for (a, b), (_, size, stride) in zip(pairwise(widths), kernels, strict=True)
        )
        self.to(memory_format=torch.channels_last)

    def forward(self, observations: Tensor) -> Tensor:
        """Features `[B, F]`; `convolution_sizes` computes F."""
        x = frames_input(observations)
        first, *others = self.convolutions
        assert isinstance(first, nn.Conv2d)
        weight = first.weight if self._largest == 1 else first.weight / self._largest
        x = torch.relu_(functional.conv2d(x, weight, first.bias, first.stride))
        for convolution in others:
            x = torch.relu_(convolution(x))
        return x.flatten(1)


CONVOLUTIONS: Convolutions = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Filters, size and stride of each convolution for Atari's frames (Mnih et al. 2015, Methods)."""
SMALL_CONVOLUTIONS: Convolutions = ((32, 4, 2), (64, 3, 1))
"""The convolutions for images with sides of 12 to 35."""
GRID_CONVOLUTIONS: Convolutions = ((16, 3, 1),)
"""The convolutions for grids with sides of 3 to 11 (MinAtar: Young & Tian 2019, section 4)."""


def convolutions_for(shape: tuple[int, ...]) -> Convolutions:
    """The convolutions for images `[C, H, W]`, by the shorter side."""
    side = min(shape[1:])
    return CONVOLUTIONS if side >= 36 else SMALL_CONVOLUTIONS if side >= 12 else GRID_CONVOLUTIONS


def frames_input(observations: Tensor) -> Tensor:
    """Frames in the dtype and memory format of the convolutions; unchanged if they have these already."""
    kind = observations.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
    return observations.to(dtype=dtype, memory_format=torch.channels_last)


def convolution_sizes(shape: tuple[int, ...], kernels: Convolutions) -> tuple[int, int, int]:
    """The numbers of features and parameters of a `ConvolutionTorso`, and of units that it computes per image.

    `shape` is that of an image, `[C, H, W]`.
    """
    channels, *axes = shape
    parameters = units = 0
    for filters, size, stride in kernels:
        axes = [(axis - size) // stride + 1 for axis in axes]
        parameters += filters * (channels * size * size + 1)
        units += filters * math.prod(axes)
        channels = filters
    return channels * math.prod(axes), parameters, units


class ValueLinear(nn.Linear):
    """A last layer that outputs values: always computes in float32, whatever the precision of the layers before.

    bfloat16 has no number between 100.0 and 100.5, a larger step than the values of actions differ by.
    docs/measurements/pong.md measures the effect on learning.
    """

    def forward(self, features: Tensor) -> Tensor:
        """`[B, out]` float32 of features `[B, in]`."""
        with in_float32(features.device):
            return super().forward(features.float())


def in_float32(device: torch.device) -> AbstractContextManager[Any]:
    """A context that disables autocast. A null context if autocast is off: another costs as much as a small layer."""
    kind = device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


class InitialisesItself(nn.Module):
    """A module whose parameters are not those of linear layers and convolutions, for `initialised`."""

    def initialise(self, seed: int) -> None:
        """Set the initial parameters, which depend on `seed` only. Called on the CPU, after those of other layers."""
        raise NotImplementedError


class LayerNorm(InitialisesItself):
    """Normalises the last axis to mean 0 and variance 1, then scales and shifts it (Ba et al. 2016, equation 4).

    With `k` each of the k first rows of `[k, B, width]` has a scale and a shift of its own.
    """

    def __init__(self, width: int, k: int | None = None) -> None:
        super().__init__()
        shape = (width,) if k is None else (k, 1, width)
        self.weight, self.bias = (nn.Parameter(torch.empty(shape)) for _ in range(2))

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Scale 1 and shift 0."""
        self.weight.fill_(1.0)
        self.bias.zero_()

    def forward(self, x: Tensor, which: Which = None) -> Tensor:
        """`[..., width]` of `[..., width]`; with `which`, the rows `[j, B, width]` have these scales and shifts."""
        if self.weight.dim() == 1:
            return functional.layer_norm(x, self.weight.shape, self.weight, self.bias)
        weight, bias = chosen(self.weight, which), chosen(self.bias, which)
        return functional.layer_norm(x, self.weight.shape[-1:]) * weight + bias


class ParallelLinear(nn.Module):
    """`k` parallel linear layers, computed as one batched product."""

    def __init__(self, k: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features = in_features
        self.weight = nn.Parameter(torch.empty(k, in_features, out_features))
        self.bias = nn.Parameter(torch.empty(k, 1, out_features))

    def forward(self, x: Tensor, which: Which = None) -> Tensor:
        """`[k, B, out]` of `[k, B, in]`; with `which`, `[j, B, out]` of `[j, B, in]` by these layers alone."""
        weight, bias = chosen(self.weight, which), chosen(self.bias, which)
        if weight.shape[2] == 1:  # this sum takes less time than MKL's product with one column, see updates.md
            return (x * weight.transpose(1, 2)).sum(dim=2, keepdim=True) + bias
        return torch.baddbmm(bias, x, weight)


def chosen(of_all: Tensor, which: Which) -> Tensor:
    """The rows `[j, ...]` of `[k, ...]` that belong to some of k parallel layers."""
    return of_all if which is None else of_all[which]


def initialised(make: Callable[[], Net], seed: int) -> Net:
    """The module that `make` returns, every layer initialised uniformly within `1 / sqrt(inputs)`, as `nn.Linear` is.

    The numbers depend on `seed` only: the global random state is neither read nor changed.
    """
    with torch.device("meta"):  # layers made here would draw from the global random state
        module = make()
    # As `module.to_empty("cpu")`, for which PyTorch imports SymPy: half a second of each process with a network.
    module._apply(_memory_for)  # type: ignore[no-untyped-call]
    generator = torch.Generator().manual_seed(seed)
    theirs = {id(part) for m in module.modules() if isinstance(m, InitialisesItself) for part in m.modules()}
    ours = (
        m for m in module.modules() if isinstance(m, nn.Linear | ParallelLinear | nn.Conv2d) and id(m) not in theirs
    )
    for layer in ours:
        bound = 1 / math.sqrt(layer.weight[0].numel() if isinstance(layer, nn.Conv2d) else layer.in_features)
        assert layer.bias is not None
        nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
        nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    for own in (m for m in module.modules() if isinstance(m, InitialisesItself)):
        own.initialise(seed)
    return module


def _memory_for(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")


def num_parameters(*widths: int) -> int:
    """The number of parameters of fully connected layers with these widths, inputs first."""
    return sum(a * b + b for a, b in pairwise(widths))
