"""Layers of a user in front of an agent's network: the factory of `EnvSettings.network`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reverie.agents.environments import EnvSpec
from reverie.agents.layers import InitialisesItself
from reverie.agents.named_parts import PartError, load_part
from reverie.agents.observations import ObservationLeaf, pack

ROWS = 3
"""Observations of the check that rows of a batch are independent."""
DTYPES = {
    str(one).removeprefix("torch."): one
    for one in (
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.float32,
        torch.float64,
        torch.bool,
    )
}
"""Dtypes of PyTorch by the names of NumPy's."""


class OwnLayers(InitialisesItself):
    """The layers that the factory of `EnvSettings.network` makes of the spec, initialised as the factory does it."""

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__()
        self._spec = spec
        self.layers = self._made(0)
        self.num_features = self._features()

    def forward(self, observations: Tensor) -> Tensor:
        """Features `[B, F]`."""
        features: Tensor = self.layers(observations)
        return features

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Take the parameters of the layers that the factory makes under this seed."""
        for own, made in zip(self.layers.parameters(), self._made(seed).parameters(), strict=True):
            own.copy_(made)

    def _made(self, seed: int) -> nn.Module:
        reference = self._spec.settings.network
        try:
            factory = load_part(reference)
            with torch.random.fork_rng(devices=[]), torch.device("cpu"):
                # The factory's layers draw from PyTorch's generator, which is forked. That of the CPU only: the call
                # for all devices would seed those of the GPUs, which are not.
                torch.default_generator.manual_seed(seed)
                made = factory(self._spec)
        except PartError as error:
            raise NetworkError(f"network {error}") from error
        except Exception as error:
            raise NetworkError(f"network {reference!r} raised {type(error).__name__}: {error}") from error
        if not isinstance(made, nn.Module):
            raise NetworkError(f"network {reference!r} returns a {type(made).__name__}, and must return a nn.Module")
        buffers = [name for name, _ in made.named_buffers()]
        if buffers:
            raise NetworkError(
                f"network {reference!r} has the buffer {buffers[0]}, and only parameters reach actors and files: use"
                " layers without running state, such as LayerNorm"
            )
        self._require_float32(made)
        return made

    def _require_float32(self, made: nn.Module) -> None:
        """Raise `NetworkError` for parameters that have no place in a vector of float32."""
        for name, parameter in made.named_parameters():
            lazy: bool = nn.parameter.is_lazy(parameter)
            if lazy:
                place = name.rpartition(".")[0]
                kind = type(made.get_submodule(place)).__name__
                advice = (
                    ": spec.parts has the shape of each part of the nest"
                    if len(self._spec.parts) > 1
                    else ", such as nn.Linear(spec.num_inputs, 32) of observations.flatten(1).float()"
                )
                raise NetworkError(
                    f"network {self._spec.settings.network!r} has sizes that are known after its first call only"
                    f" ({place + ': ' if place else ''}{kind}), and actors and files have parameters of fixed sizes:"
                    f" make layers that take their sizes{advice}"
                )
            if parameter.dtype != torch.float32:
                raise NetworkError(
                    f"network {self._spec.settings.network!r} has the parameter {name} of {parameter.dtype}, and"
                    " learners, actors and files have parameters of torch.float32: convert the layers with .float()"
                )

    def _features(self) -> int:
        """The number of features. Raises `NetworkError` for layers that a run cannot use."""
        seen = self._readable()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            features = self._read(seen)
            before = torch.default_generator.get_state()
            again = self._read(seen)
            draws = not torch.equal(torch.default_generator.get_state(), before)
            alone = [self._read(row) for row in torch.split(seen, 1)]
        reference = self._spec.settings.network
        if draws or not torch.equal(features.nan_to_num(), again.nan_to_num()):
            raise NetworkError(
                f"network {reference!r} computes with random numbers{_drawing(self.layers)}, and a run would not repeat"
                " with its seed: leave such layers out"
            )
        scale = float(features.nan_to_num(posinf=0, neginf=0).abs().max())
        if not torch.allclose(features, torch.cat(alone), rtol=1e-3, atol=1e-4 * max(1.0, scale), equal_nan=True):
            raise NetworkError(
                f"network {reference!r} computes other features of {ROWS} observations [B, ...] together than of each"
                " alone: rows of a batch are independent, and no sequence (agents with lstm_units read sequences)"
            )
        return features.shape[1]

    def _readable(self) -> Tensor:
        """Observations that the layers read. The spec has no bounds of numbers, and layers may need them, as indices.

        Raises `NetworkError` if they read none.
        """
        seen = sample_observations(self._spec, ROWS)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            try:
                self._read(seen)
            except NetworkError:
                for other in (sample_observations(self._spec, ROWS, counts=True), torch.zeros_like(seen)):
                    with suppress(NetworkError):
                        self._read(other)
                        return other
                raise
        return seen

    def _read(self, seen: Tensor) -> Tensor:
        reference = self._spec.settings.network
        try:
            features = self.layers(seen)
        except Exception as error:
            names = ", ".join(leaf.name for leaf in self._spec.parts)
            nest = (
                f" (rows of {names}, which reverie.agents.inputs.by_name(spec, observations) takes apart)"
                if len(self._spec.parts) > 1
                else ""
            )
            raise NetworkError(
                f"network {reference!r} cannot read {seen.dtype} observations of shape {tuple(seen.shape)}{nest}:"
                f" {error}"
            ) from error
        if not (
            isinstance(features, Tensor)
            and features.dim() == 2
            and len(features) == len(seen)
            and features.is_floating_point()
        ):
            raise NetworkError(
                f"network {reference!r} must return floating-point features [B, F] of observations [B, ...]"
            )
        return features


def _drawing(layers: nn.Module) -> str:
    """The layers of PyTorch that draw, in brackets; nothing if the layers of the user draw by themselves."""
    kinds = (nn.modules.dropout._DropoutNd, nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)
    names = [
        f"{name}: {type(one).__name__}" if name else type(one).__name__
        for name, one in layers.named_modules()
        if (isinstance(one, kinds) and getattr(one, "p", True)) or (isinstance(one, nn.RNNBase) and one.dropout)
    ]
    return f" ({names[0]})" if names else ""


def sample_observations(spec: EnvSpec, rows: int, *, counts: bool = False) -> Tensor:
    """Observations `[rows, ...]` of the spec's shape and dtype, drawn at random, the same at each call.

    Floating-point numbers are normally distributed; with `counts` each is 0 or 1.
    """
    rng, lead = np.random.default_rng(0), (rows, spec.frames_per_stack)
    parts = [_sample(rng, leaf, (*lead, *leaf.shape), counts) for leaf in spec.parts]
    packed = pack(spec.parts, parts).reshape(rows, *spec.obs_shape)
    return torch.as_tensor(np.ascontiguousarray(packed), dtype=DTYPES[spec.obs_dtype], device="cpu")


def _sample(rng: np.random.Generator, leaf: ObservationLeaf, shape: tuple[int, ...], counts: bool) -> NDArray[Any]:
    dtype = np.dtype(leaf.dtype)
    if leaf.kind == "category":
        starts = np.array(leaf.starts or (0,) * len(leaf.sizes)).reshape(leaf.shape)
        return starts + rng.integers(np.array(leaf.sizes).reshape(leaf.shape), size=shape)
    if leaf.kind == "image" and dtype == np.uint8:
        return rng.integers(leaf.largest + 1, size=shape).astype(dtype)
    if dtype.kind == "f" and not counts:
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(2, size=shape).astype(dtype)


class NetworkError(ValueError):
    """The factory of `EnvSettings.network` cannot be used. The text names it."""
