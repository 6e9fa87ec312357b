"""The parameter server: one flat vector in ranges, each with its part of the optimiser's state.

Plain classes: a runner that serves them to other processes serialises the calls of each shard, and hands its workers a
`ParameterServer` over whatever stands for the shards there.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from reverie.agents.core import Weights
from reverie.agents.flat import clip_scale
from reverie.agents.gorila.config import GorilaConfig
from reverie.agents.learning import adam


class Shard(Protocol):
    """One range of the vector, here or elsewhere."""

    def push(self, gradient: NDArray[np.float32], norm: float, based_on: int) -> bool:
        """Take a gradient of this range; False where it is too stale, and dropped."""

    def pull(self) -> Weights:
        """A copy of the range, and its version."""

    def dropped(self) -> int:
        """Gradients dropped so far."""

    def state_dict(self) -> dict[str, Any]:
        """A copy of everything that the next push depends on."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""


class LocalShard:
    """A range in this process: clips, steps Adam, and counts. Not for several threads at once."""

    def __init__(self, flat: NDArray[np.float32], config: GorilaConfig) -> None:
        self.flat = nn.Parameter(torch.from_numpy(flat.copy()))
        self.flat.grad = torch.zeros_like(self.flat)
        self._optimizer = adam(self, config.learning_rate, config.adam_epsilon)
        self._max_grad_norm, self._max_staleness = config.max_grad_norm, config.max_staleness
        self._version = self._dropped = 0

    def push(self, gradient: NDArray[np.float32], norm: float, based_on: int) -> bool:
        """One update, or a drop where `based_on` is more than `max_staleness` versions ago; whether it was taken.

        `gradient` is of this range and not clipped, `norm` that of the whole vector's gradient. Raises ValueError for
        another length, a norm that is not finite, and a version that is still to come.
        """
        if gradient.shape != tuple(self.flat.shape):
            raise ValueError(f"gradient has shape {gradient.shape}, and this shard needs {tuple(self.flat.shape)}")
        if not (math.isfinite(norm) and norm >= 0):
            raise ValueError(f"norm is {norm}, and must be finite and not below 0: the worker's learning diverged")
        if not 0 <= based_on <= self._version:
            raise ValueError(f"based_on is {based_on}, and this shard is at version {self._version}")
        if self._version - based_on > self._max_staleness:
            self._dropped += 1
            return False
        assert self.flat.grad is not None
        self.flat.grad.copy_(torch.from_numpy(gradient))
        self.flat.grad.mul_(clip_scale(torch.tensor(norm), self._max_grad_norm))
        self._optimizer.step()
        self._version += 1
        return True

    def pull(self) -> Weights:
        """A copy of the range, and its version."""
        return Weights(self._version, self.flat.detach().numpy().copy())

    def dropped(self) -> int:
        """Gradients dropped so far."""
        return self._dropped

    def state_dict(self) -> dict[str, Any]:
        """A copy of range, optimiser and counts."""
        optimizer = copy.deepcopy(self._optimizer.state_dict())
        return {**self.pull()._asdict(), "optimizer": optimizer, "dropped": self._dropped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave; the state stays the caller's."""
        with torch.no_grad():
            self.flat.copy_(torch.from_numpy(state["flat"]))
        self._optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        self._version, self._dropped = state["version"], state["dropped"]


class Pulled(NamedTuple):
    """All parameters, `[P]`, and the version of each shard's range: a gradient of these names them."""

    flat: NDArray[np.float32]
    versions: tuple[int, ...]

    @property
    def version(self) -> int:
        """Updates that every shard has made. Shards of one process never differ."""
        return min(self.versions)


class ParameterServer:
    """The shards as one: what workers push to and pull from, and where actors get their weights."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = list(shards)
        self._sizes = [len(shard.pull().flat) for shard in shards]

    def push(self, gradient: NDArray[np.float32], norm: float, based_on: Sequence[int]) -> bool:
        """Send each shard its range; False where one of them dropped it. See `LocalShard.push`."""
        if len(gradient) != sum(self._sizes):
            raise ValueError(f"gradient has shape {gradient.shape}, and the server needs ({sum(self._sizes)},)")
        parts = np.split(gradient, np.cumsum(self._sizes)[:-1])
        taken = [
            shard.push(part, norm, version) for shard, part, version in zip(self._shards, parts, based_on, strict=True)
        ]
        return all(taken)

    def pull(self) -> Pulled:
        """The newest parameters."""
        pulled = [shard.pull() for shard in self._shards]
        return Pulled(np.concatenate([one.flat for one in pulled]), tuple(one.version for one in pulled))

    def latest(self, newer_than: int) -> Weights | None:
        """For actors: the newest parameters, or None where there are none newer than `newer_than`."""
        pulled = self.pull()
        return Weights(pulled.version, pulled.flat) if pulled.version > newer_than else None

    def dropped(self) -> int:
        """Gradients that were dropped so far, by the shard that dropped most."""
        return max(shard.dropped() for shard in self._shards)

    def state_dict(self) -> dict[str, Any]:
        """A copy of all shards' state."""
        return {"shards": [shard.state_dict() for shard in self._shards]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        for shard, one in zip(self._shards, state["shards"], strict=True):
            shard.load_state_dict(one)


def make_shards(flat: NDArray[np.float32], config: GorilaConfig) -> list[LocalShard]:
    """The vector `[P]` cut into `num_shards` ranges whose lengths differ by one at most."""
    return [LocalShard(part, config) for part in np.array_split(flat, config.num_shards)]
