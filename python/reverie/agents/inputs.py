"""The first layers of a network: what it reads of an environment's observations, of any space.

`front(spec)` is the one place that decides. Numbers pass, categories become one-hot vectors, convolutions read images,
and running statistics normalise numbers. Plain vectors need no layer of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from reverie.agents.environments import EnvSpec
from reverie.agents.layers import ConvolutionTorso, InitialisesItself, convolution_sizes, convolutions_for
from reverie.agents.observations import ObservationLeaf, channels_and_sides, channels_last, is_mixed
from reverie.agents.own_layers import DTYPES, OwnLayers
from reverie.agents.priorities import Array

LARGEST = 10.0
"""Normalised numbers are clipped to this many deviations."""
GRID_CELLS = 144
"""Images with more cells count as work for convolutions. MinAtar's, which were measured, have 100."""
EPSILON = 1e-8
"""Added to variances."""


def front(spec: EnvSpec) -> tuple[list[nn.Module], int]:
    """The layers in front of the fully connected ones, and the number of features `[B, F]` that they return.

    No layer for plain vectors; for stacks of grey frames (Atari) the convolutions alone; else an `ObservationReader`.
    """
    if spec.settings.network:
        own = OwnLayers(spec)
        return [own], own.num_features
    if not _needs_reader(spec):
        (leaf,) = spec.parts
        if leaf.kind == "numbers":
            return [], spec.num_inputs
        torso = _torso(leaf, spec.frames_per_stack)
        return [torso], convolution_sizes(_image_shape(leaf, spec.frames_per_stack), torso.kernels)[0]
    reader = ObservationReader(spec)
    return [reader], reader.num_features


def front_sizes(spec: EnvSpec) -> tuple[int, int, int]:
    """Features, parameters and units (widths of all layers together) of the layers of `front`."""
    if spec.settings.network:
        layers = OwnLayers(spec)
        count = sum(one.numel() for one in layers.parameters())
        return layers.num_features, count, spec.num_inputs + count
    features = parameters = 0
    units = spec.num_inputs
    for leaf in spec.parts:
        if leaf.kind == "image":
            shape = _image_shape(leaf, spec.frames_per_stack)
            one, own, inner = convolution_sizes(shape, convolutions_for(shape))
            features, parameters, units = features + one, parameters + own, units + inner
        else:
            features += spec.frames_per_stack * (sum(leaf.sizes) or leaf.count)
    if spec.settings.normalise_observations:
        parameters += 1 + 2 * _num_numbers(spec)
    return features, parameters + (3 if spec.settings.normalise_rewards else 0), units


def is_mostly_convolutions(spec: EnvSpec) -> bool:
    """Whether an update's time may be mostly that of convolutions: images of many cells, or images and own layers."""
    shapes = [_image_shape(leaf, spec.frames_per_stack) for leaf in spec.parts if leaf.kind == "image"]
    return bool(shapes and spec.settings.network) or any(h * w > GRID_CELLS for _, h, w in shapes)


def _needs_reader(spec: EnvSpec) -> bool:
    if spec.settings.normalise_observations or spec.settings.normalise_rewards or len(spec.parts) > 1:
        return True
    (leaf,) = spec.parts
    bare_image = leaf.kind == "image" and len(leaf.shape) == 2 and spec.frame_stack is not None
    return leaf.kind != "numbers" and not bare_image


def _num_numbers(spec: EnvSpec) -> int:
    return spec.frames_per_stack * sum(leaf.count for leaf in spec.parts if leaf.kind == "numbers")


def _image_shape(leaf: ObservationLeaf, frames: int) -> tuple[int, int, int]:
    channels, height, width = channels_and_sides(leaf.shape)
    return frames * channels, height, width


def _torso(leaf: ObservationLeaf, frames: int) -> ConvolutionTorso:
    shape = _image_shape(leaf, frames)
    return ConvolutionTorso(shape, convolutions_for(shape), leaf.largest if leaf.dtype == "uint8" else 1)


class RunningMoments(InitialisesItself):
    """Count, mean and variance of numbers so far, merged batch by batch (Chan et al. 1979, equation 2.1).

    They are frozen parameters: so they reach actors, checkpoints and files with the weights, and no optimiser moves
    them, not even one that decays weights. Only a learner changes them.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.count, self.mean, self.variance = (
            nn.Parameter(torch.empty(n), requires_grad=False) for n in (1, size, size)
        )

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """No numbers yet: mean 0 and variance 1, which change nothing."""
        self.count.zero_()
        self.mean.zero_()
        self.variance.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Numbers `[B, size]` less their mean, in deviations, within `LARGEST`. No gradient reaches the moments."""
        deviation = (self.variance.detach() + EPSILON).sqrt()
        return ((x - self.mean.detach()) / deviation).clamp(-LARGEST, LARGEST)

    @torch.no_grad()
    def merge(self, x: Tensor) -> None:
        """Add numbers `[N, size]`, computed in float64."""
        if not len(x):
            return
        x = x.double()
        own, more = self.count.double(), float(len(x))
        total = own + more
        delta = x.mean(dim=0) - self.mean.double()
        squares = self.variance.double() * own + x.var(dim=0, correction=0) * more + delta**2 * own * more / total
        self.mean.copy_(self.mean.double() + delta * more / total)
        self.variance.copy_(squares / total)
        self.count.copy_(total)

    def deviation(self) -> Tensor:
        """The deviations `[size]`."""
        return (self.variance.detach() + EPSILON).sqrt()


class ObservationReader(nn.Module):
    """Reads observations `[B, ...]`, rows of `observations.pack` or stacks of them; returns features `[B, F]`.

    The features are the numbers of all leaves (normalised if the environment's settings ask), their categories as
    one-hot vectors, and the features of each image.
    """

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__()
        self._leaves, self._frames = spec.parts, spec.frames_per_stack
        images = [leaf for leaf in self._leaves if leaf.kind == "image"]
        self.images = nn.ModuleList(_torso(leaf, self._frames) for leaf in images)
        settings = spec.settings
        self.moments = RunningMoments(_num_numbers(spec)) if settings.normalise_observations else None
        self.returns = RunningMoments(1) if settings.normalise_rewards else None
        """The moments of discounted returns: rewards are divided by their deviation."""
        self.num_features = front_sizes(spec)[0]

    def forward(self, observations: Tensor) -> Tensor:
        """Features `[B, F]`."""
        parts = list(zip(self._leaves, self._split(observations), strict=True))
        features = [part.flatten(1).float() for leaf, part in parts if leaf.kind == "numbers"]
        if self.moments is not None:
            features = [self.moments(torch.cat(features, dim=1))]
        for leaf, part in parts:
            if leaf.kind == "category":
                values = torch.unflatten(part.flatten(1), 1, (self._frames, len(leaf.sizes))).long()
                features += [
                    nn.functional.one_hot(values[..., i], size).flatten(1).float() for i, size in enumerate(leaf.sizes)
                ]
        images = [_channels_first(leaf, part) for leaf, part in parts if leaf.kind == "image"]
        features += [torso(image).float() for torso, image in zip(self.images, images, strict=True)]
        return torch.cat(features, dim=1)

    def numbers(self, observations: Tensor) -> Tensor:
        """The numbers `[B, N]` of all leaves, as they are."""
        parts = zip(self._leaves, self._split(observations), strict=True)
        return torch.cat([part.flatten(1).float() for leaf, part in parts if leaf.kind == "numbers"], dim=1)

    def statistics(self) -> list[nn.Parameter]:
        """The parameters of the running statistics, which have no gradient."""
        kept = [one for one in (self.moments, self.returns) if one is not None]
        return [parameter for moments in kept for parameter in moments.parameters()]

    def _split(self, observations: Tensor) -> list[Tensor]:
        return split(self._leaves, self._frames, observations)


def split(leaves: Sequence[ObservationLeaf], frames: int, observations: Tensor) -> list[Tensor]:
    """The parts `[B, frames, *shape]` of observations `[B, ...]`, one for each leaf.

    Rows of leaves of several dtypes are bytes, or numbers of one dtype: exported files take those.
    """
    as_bytes = is_mixed(leaves) and observations.dtype == torch.uint8
    widths = [leaf.num_bytes if as_bytes else leaf.count for leaf in leaves]
    # No size of the batch in here: a traced file would keep that of its example.
    parts = torch.split(torch.unflatten(observations.flatten(1), 1, (frames, sum(widths))), widths, dim=2)
    if as_bytes:
        parts = tuple(_viewed(part, DTYPES[leaf.dtype]) for leaf, part in zip(leaves, parts, strict=True))
    return [torch.unflatten(part, 2, leaf.stored_shape) for leaf, part in zip(leaves, parts, strict=True)]


def by_name(spec: EnvSpec, observations: Tensor) -> dict[str, Tensor]:
    """The parts of observations `[B, ...]` by their keys, such as `camera/left`: for layers of a user.

    A part is `[B, *shape]` as the environment has it, and with `frame_stack` `[B, frames, *shape]`.
    """
    parts = split(spec.parts, spec.frames_per_stack, observations)
    one = spec.frames_per_stack == 1
    return {leaf.name: part[:, 0] if one else part for leaf, part in zip(spec.parts, parts, strict=True)}


def _viewed(part: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes as numbers of a dtype, in memory of their own.

    `contiguous` would return the part of a single row as it is, and a view of wider numbers needs an offset and strides
    that are multiples of their size. A part of several rows is copied by both.
    """
    return part.clone(memory_format=torch.contiguous_format).view(dtype)


def _channels_first(leaf: ObservationLeaf, part: Tensor) -> Tensor:
    """An image `[B, K C, H, W]` of `[B, K, *shape]`."""
    if len(leaf.shape) == 2:
        return part
    return (part.permute(0, 1, 4, 2, 3) if channels_last(leaf.shape) else part).flatten(1, 2)


REWARD_BOUND = 10.0
"""The bound of normalised rewards, in deviations, as in Stable-Baselines3. While all returns were equal their
deviation is next to 0, and the first reward of a task that has few would be the only thing that values learn from."""


class Statistics:
    """The running statistics of all networks of a learner, which are the same in each of them."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        readers = [one for module in modules for one in module.modules() if isinstance(one, ObservationReader)]
        self._readers = [one for one in readers if one.moments is not None or one.returns is not None]
        self._returns = self._readers[0].returns if self._readers else None
        """Statistics of returns in the first network: batches are merged there, and copied to the others."""
        self._begun = self._returns is None
        """Whether there is a deviation of returns, as far as it was looked at."""
        self._merged = False
        """Whether the returns of the batch that is learnt from are already merged."""

    def copy_from(self, module: nn.Module) -> None:
        """Give every network the statistics that this one has."""
        source = next(iter(Statistics([module])._readers), None)
        if source is not None:
            self._copy(source, self._readers)

    def scaled(self, data: dict[str, Any], steps: Any = None) -> dict[str, Any]:
        """A batch with rewards in deviations of the discounted returns, if rewards are normalised: at most ten.

        The deviation is that of the batches before, for the first batch its own: with rewards as they are, an update,
        such as the many gradient steps of PPO, gives values that later ones must unlearn. `steps` as in `merge`.
        """
        if self._returns is not None and not self._begun:
            if float(self._returns.count) == 0:
                self._merge_returns(data, steps)
                self._copy(self._readers[0], self._readers[1:])  # an update may copy one network to another
                self._merged = True
            self._begun = True
        return {**data, "reward": in_deviations(data["reward"], self.reward_deviation())}

    def reward_deviation(self) -> float:
        """The number that rewards are divided by; 1 if they are not normalised."""
        return 1.0 if self._returns is None else float(self._returns.deviation())

    def merge(self, data: dict[str, Any], steps: Any = None) -> None:
        """Add the observations and returns of a batch that was learnt from.

        `steps` selects rows of unrolls `[B, T]`, without those of resets.
        """
        if not self._readers:
            return
        if not self._merged:
            self._merge_returns(data, steps)
        self._merged = False
        first = self._readers[0]
        if first.moments is not None:
            obs = torch.as_tensor(data["obs"])
            first.moments.merge(first.numbers(obs if steps is None else obs[:, : steps.shape[1]][steps]))
        self._copy(first, self._readers[1:])

    def _merge_returns(self, data: dict[str, Any], steps: Any) -> None:
        if self._returns is not None:
            returns = torch.as_tensor(data["discounted_return"])
            self._returns.merge((returns if steps is None else returns[steps]).reshape(-1, 1))

    @staticmethod
    @torch.no_grad()
    def _copy(source: ObservationReader, readers: Iterable[ObservationReader]) -> None:
        for reader in readers:
            for own, found in zip(reader.statistics(), source.statistics(), strict=True):
                own.copy_(found)


def in_deviations(reward: Array, deviation: float) -> Array:
    """Rewards divided by `deviation`, within `REWARD_BOUND`. With a deviation of 1, rewards that are not normalised."""
    if deviation == 1.0:
        return reward
    scaled: Array = (reward / deviation).clip(-REWARD_BOUND, REWARD_BOUND)
    return scaled


def reward_deviation(module: nn.Module) -> float:
    """The number that rewards are divided by for the values of this network; 1 if they are not normalised."""
    return Statistics([module]).reward_deviation()
