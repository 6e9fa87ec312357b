"""The parameter server: one flat vector in ranges, each with its part of the optimiser's state.

A shard answers the questions `PushGradient` and `PullParameters`, which are plain records, so that any connection
between processes can carry them. `ParameterServer` is a worker's client of the shards, local or remote.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from reverie.agents.core import Weights
from reverie.agents.flat import clip_scale, fill
from reverie.agents.gorila.config import GorilaConfig
from reverie.agents.optimizers import adam, load_optimizer, optimizer_state
from reverie.agents.rates import set_rates


class PushGradient(NamedTuple):
    """A gradient of one shard's range. The answer: True, or False where it is too stale and was dropped."""

    gradient: NDArray[np.float32]
    norm: float
    """The norm of the gradient of all ranges, by which the shard clips."""
    based_on: int
    """The version of the range at which the gradient was computed."""


class PullParameters(NamedTuple):
    """Asks for the range. The answer: `Weights`, or None if its version is the known one."""

    known: int
    """The known version; -1 for none."""


Question = PushGradient | PullParameters


class ShardConnections(Protocol):
    """A connection to all shards of a parameter server."""

    def ask(self, questions: Sequence[Any]) -> list[Any]:
        """The answers of all shards; question i is for shard i. A connection to remote shards defines its timeout."""


class LocalShard:
    """A range in this process: clips, steps Adam, and counts. Not thread-safe."""

    def __init__(self, flat: NDArray[np.float32], config: GorilaConfig) -> None:
        self.flat = nn.Parameter(torch.from_numpy(flat.copy()))
        self.flat.grad = torch.zeros_like(self.flat)
        self._grad: NDArray[np.float32] = self.flat.grad.numpy()
        """The gradient's own memory, to write into."""
        self._optimizer = adam(self, config.learning_rate, config.adam_epsilon)
        self._settings = config
        self._max_grad_norm, self._max_staleness = config.max_grad_norm, config.max_staleness
        self.version = self.dropped = 0  # updates and gradients that were dropped, so far

    def answer(self, question: Question) -> bool | Weights | None:
        """Process a question. Raises TypeError for a question of another class."""
        match question:
            case PushGradient():
                return self.push(*question)
            case PullParameters(known):
                return None if known == self.version else self.pull()
        raise TypeError(f"a parameter shard handles Push and Pull, and received a {type(question).__name__}")

    def push(self, gradient: NDArray[np.float32], norm: float, based_on: int) -> bool:
        """Make one update, or drop the gradient if `based_on` is more than `max_staleness` versions ago; returns which.

        `gradient` is of this range, `[P]`; `norm` is the norm of the gradient of all ranges, by which it is clipped.
        Raises ValueError for a gradient of another shape, an infinite or negative norm, and an unknown version.
        """
        if gradient.shape != tuple(self.flat.shape):
            raise ValueError(f"gradient has shape {gradient.shape}, and this shard needs {tuple(self.flat.shape)}")
        if not (math.isfinite(norm) and norm >= 0):
            raise ValueError(f"norm is {norm}, and must be finite and not below 0: the worker's learning diverged")
        if not 0 <= based_on <= self.version:
            raise ValueError(f"based_on is {based_on}, and this shard is at version {self.version}")
        if self.version - based_on > self._max_staleness:
            self.dropped += 1
            return False
        assert self.flat.grad is not None
        self._grad[:] = gradient
        self.flat.grad.mul_(clip_scale(torch.tensor(norm), self._max_grad_norm))
        set_rates([self._optimizer], self._settings, self.version)
        self._optimizer.step()
        self.version += 1
        return True

    def pull(self) -> Weights:
        """A copy of the range, and its version."""
        return Weights(self.version, self.flat.detach().numpy().copy())

    def state_dict(self) -> dict[str, Any]:
        """A copy of range, moments of the optimiser and counts; its range of the vector, without names."""
        return {**self.pull()._asdict(), "optimizer": optimizer_state(self._optimizer), "dropped": self.dropped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`, which is copied. The settings of the optimiser stay this shard's own."""
        with torch.no_grad():
            fill(self.flat, state["flat"])
        load_optimizer(self._optimizer, state["optimizer"])
        self.version, self.dropped = state["version"], state["dropped"]


class PulledParameters(NamedTuple):
    """All parameters, `[P]`, and the version of each shard's range, which a gradient at them names."""

    flat: NDArray[np.float32]
    versions: tuple[int, ...]

    @property
    def version(self) -> int:
        """The number of updates that every shard has made. Shards of one process never differ."""
        return min(self.versions)


class ParameterServer:
    """All shards as one server, to which workers push and from which workers and actors pull.

    It keeps the ranges that it pulled last, and asks each shard only for a newer one. Pushing and pulling raise the
    connection's errors if a shard cannot be reached.
    """

    def __init__(self, connections: ShardConnections, num_shards: int) -> None:
        self._connections, self._num_shards = connections, num_shards
        self.forget()

    def forget(self) -> None:
        """Pull all ranges again the next time, whatever their versions."""
        self._ranges = [Weights(-1, np.empty(0, np.float32))] * self._num_shards

    def push(self, gradient: NDArray[np.float32], norm: float, based_on: Sequence[int]) -> bool:
        """Send each shard its range; False if one of them dropped it. See `LocalShard.push`.

        Raises ValueError for a gradient of another shape.
        """
        if any(one.version < 0 for one in self._ranges):
            self.pull()
        sizes = [len(one.flat) for one in self._ranges]
        if len(gradient) != sum(sizes):
            raise ValueError(f"gradient has shape {gradient.shape}, and the server needs ({sum(sizes)},)")
        parts = np.split(gradient, np.cumsum(sizes)[:-1])
        return all(
            self._connections.ask([PushGradient(part, norm, one) for part, one in zip(parts, based_on, strict=True)])
        )

    def pull(self) -> PulledParameters:
        """The newest parameters."""
        answers = self._connections.ask([PullParameters(one.version) for one in self._ranges])
        self._ranges = [old if new is None else new for old, new in zip(self._ranges, answers, strict=True)]
        return PulledParameters(
            np.concatenate([one.flat for one in self._ranges]), tuple(one.version for one in self._ranges)
        )

    def latest(self, newer_than: int) -> Weights | None:
        """The newest parameters for actors, or None if there are none newer than `newer_than`."""
        pulled = self.pull()
        return Weights(pulled.version, pulled.flat) if pulled.version > newer_than else None


class LocalParameterServer(ParameterServer):
    """A parameter server in one process with its shards."""

    def __init__(self, shards: Sequence[LocalShard]) -> None:
        self._shards = list(shards)
        super().__init__(self, len(self._shards))

    def ask(self, questions: Sequence[Question]) -> list[Any]:
        """The shards' answers, at once."""
        return [shard.answer(question) for shard, question in zip(self._shards, questions, strict=True)]

    def replace(self, flat: NDArray[np.float32]) -> None:
        """Replace all parameters `[P]`; versions and optimisers stay."""
        with torch.no_grad():
            for shard, part in zip(self._shards, np.array_split(flat, len(self._shards)), strict=True):
                fill(shard.flat, part)
        self.forget()

    def shard_states(self) -> list[dict[str, Any]]:
        """A copy of each shard's state."""
        return [shard.state_dict() for shard in self._shards]

    def load_shard_states(self, states: Sequence[dict[str, Any]]) -> None:
        """Restore `shard_states`."""
        for shard, one in zip(self._shards, states, strict=True):
            shard.load_state_dict(one)
        self.forget()


def make_shards(flat: NDArray[np.float32], config: GorilaConfig) -> list[LocalShard]:
    """Cuts the vector `[P]` into `num_parameter_shards` ranges whose lengths differ by one at most."""
    return [LocalShard(part, config) for part in np.array_split(flat, config.num_parameter_shards)]
