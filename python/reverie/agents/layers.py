"""The layers that agents build their networks of, and how these are initialised."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor, nn

Net = TypeVar("Net", bound=nn.Module)


class MlpTorso(nn.Module):
    """Fully connected layers with ReLU over flattened observations `[B, ...]` of any real dtype."""

    def __init__(self, num_inputs: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        widths = (num_inputs, *hidden)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, observations: Tensor) -> Tensor:
        """Features `[B, F]`."""
        x = observations.flatten(1).float()
        for layer in self.layers:
            x = torch.relu_(layer(x))
        return x


class ParallelLinear(nn.Module):
    """`k` linear layers side by side, one batched product for all of them."""

    def __init__(self, k: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features = in_features
        self.weight = nn.Parameter(torch.empty(k, in_features, out_features))
        self.bias = nn.Parameter(torch.empty(k, 1, out_features))

    def forward(self, x: Tensor) -> Tensor:
        """`[k, B, out]` of `[k, B, in]`."""
        return torch.baddbmm(self.bias, x, self.weight)


def initialised(make: Callable[[], Net], seed: int) -> Net:
    """The module that `make` makes, every linear layer uniform within `1 / sqrt(inputs)`, as `nn.Linear` has it.

    The numbers come from `seed` alone: the global random state is neither read nor moved.
    """
    with torch.device("meta"):  # layers made here would draw from the global random state
        module = make()
    module.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    for linear in (m for m in module.modules() if isinstance(m, nn.Linear | ParallelLinear)):
        bound = 1 / math.sqrt(linear.in_features)
        nn.init.uniform_(linear.weight, -bound, bound, generator=generator)
        nn.init.uniform_(linear.bias, -bound, bound, generator=generator)
    return module


def num_parameters(*widths: int) -> int:
    """Of fully connected layers with these widths, inputs first."""
    return sum(a * b + b for a, b in pairwise(widths))
