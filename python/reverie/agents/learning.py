"""What learners share: networks and optimisers by name, their state, and drawing from a replay table."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reverie.agents.core import Stopwatch, Weights
from reverie.agents.flat import FlatNetwork
from reverie.agents.replay import TABLE, PrioritizedSettings, ReplaySettings
from reverie.types import Batch


class DivergedError(RuntimeError):
    """A loss or a TD error is no longer finite; no priority of that batch was written to the table. `.version`"""

    def __init__(self, version: int, what: str, learning_rate: float) -> None:
        self.version = version
        super().__init__(
            f"{what} is not finite at update {version}: learning diverged; lower learning_rate ({learning_rate})"
        )


class NetworkLearner(ABC):
    """Networks and optimisers by name, counters, and the weights that actors get."""

    def __init__(self, client: Any, *, watch: Stopwatch) -> None:
        self.version = 0
        self._client, self._watch = client, watch
        self._networks: dict[str, FlatNetwork[Any]] = {}
        self._optimizers: dict[str, torch.optim.Optimizer] = {}
        self._generator: torch.Generator | None = None
        """Where the heir's updates draw from, if they do."""
        self._counts: dict[str, int] = {}
        self._last: dict[str, float] = {}
        """Figures of the last update."""

    @abstractmethod
    def learn(self) -> None:
        """One update from one batch. Raises `DeadlineExceededError` at once where the table cannot give one now."""

    @abstractmethod
    def _acting(self) -> NDArray[np.float32]:
        """A copy of the parameters that actors need, `[P]`."""

    def _check(self, figures: dict[str, float]) -> None:
        """Raises `DivergedError` where one of them is not finite."""
        for name, figure in figures.items():
            if not math.isfinite(figure):
                raise DivergedError(self.version, name, self._learning_rate())

    def _learning_rate(self) -> float:
        rates: list[float] = [group["lr"] for one in self._optimizers.values() for group in one.param_groups]
        return max(rates)

    def latest(self, newer_than: int) -> Weights | None:
        """A copy of the weights that actors need, or None when `newer_than` is this version."""
        return Weights(self.version, self._acting()) if self.version > newer_than else None

    def metrics(self) -> dict[str, float]:
        """Counters so far, and the figures of the last update."""
        return {"updates": self.version, **self._counts, **self._last}

    def state_dict(self) -> dict[str, Any]:
        """A copy of everything that the next update depends on, the tables apart."""
        return {
            "version": self.version,
            "networks": {name: network.numpy() for name, network in self._networks.items()},
            "optimizers": {name: copy.deepcopy(one.state_dict()) for name, one in self._optimizers.items()},
            "random": None if self._generator is None else self._generator.get_state(),
            "counts": dict(self._counts),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave; the state stays the caller's."""
        for name, network in self._networks.items():
            network.load(state["networks"][name])
        for name, optimizer in self._optimizers.items():
            optimizer.load_state_dict(copy.deepcopy(state["optimizers"][name]))
        if self._generator is not None:
            self._generator.set_state(state["random"])
        self.version, self._counts = state["version"], dict(state["counts"])


class ReplayLearner(NetworkLearner):
    """Draws from a replay table. The heir makes one update of a batch."""

    def __init__(self, config: ReplaySettings, client: Any, *, watch: Stopwatch) -> None:
        super().__init__(client, watch=watch)
        self._batch_size = config.batch_size

    @abstractmethod
    def _update(self, data: dict[str, NDArray[Any]]) -> dict[str, float]:
        """One step of the optimisers; figures by name, which are finite as long as learning has not diverged."""

    def learn(self) -> None:
        """One update from one batch. Raises `DeadlineExceededError` at once where the table cannot give one now."""
        with self._watch("sample"):
            batch = self._client.sample_batch(TABLE, self._batch_size, timeout=0)
        with self._watch("learn"):
            figures = self._update(batch.data)
        self._check(figures)
        self._last = {"age_in_updates": _age(self.version, batch), **figures}
        self.version += 1


def priorities_of(errors: Tensor, *, eps: float, clip: float) -> Tensor:
    """`min(|error|, clip) + eps` of TD errors `[B]`, detached; `clip` 0 is no bound. NaN stays NaN."""
    absolute = errors.detach().abs()
    return (absolute.clamp(max=clip) if clip else absolute) + eps


class PrioritizedLearner(NetworkLearner):
    """Draws by priority, and writes the priorities of the drawn items back. The heir makes one update of a batch."""

    def __init__(self, config: PrioritizedSettings, client: Any, *, watch: Stopwatch) -> None:
        super().__init__(client, watch=watch)
        self._settings = config
        self._counts = {"priorities_applied": 0, "priorities_stale": 0}

    @abstractmethod
    def _update(self, data: dict[str, NDArray[Any]], weights: Tensor) -> tuple[Tensor, dict[str, float]]:
        """One step of the optimisers, every loss scaled by its weight `[B]`; the new priorities `[B]`, and figures."""

    def learn(self) -> None:
        """One update from one batch. Raises `DeadlineExceededError` at once where the table cannot give one now."""
        settings = self._settings
        with self._watch("sample"):
            batch = self._client.sample_batch(TABLE, settings.batch_size, timeout=0)
            weights = batch.weights(settings.importance_exponent, normalise=settings.importance_normalise)
        with self._watch("learn"):
            tensor, figures = self._update(batch.data, float32(weights))
            priorities = tensor.double().cpu().numpy()
        self._check({**figures, "td error": float(priorities.sum())})
        with self._watch("update"):
            result = self._client.update_priorities(TABLE, batch.info.key, priorities)
            self._counts["priorities_applied"] += result.applied
            self._counts["priorities_stale"] += result.stale
        self._last = {"age_in_updates": _age(self.version, batch), **figures}
        self.version += 1


def float32(array: NDArray[Any]) -> Tensor:
    """A tensor of the array's memory, or of a copy where the dtype is another."""
    return torch.from_numpy(np.asarray(array, dtype=np.float32))


def _age(version: int, batch: Batch) -> float:
    return version - float(batch.data["weights_version"].mean())


class Flat(Protocol):
    """What keeps its parameters in one vector."""

    flat: nn.Parameter


def adam(network: Flat, learning_rate: float, epsilon: float = 1e-8) -> torch.optim.Adam:
    """Adam over a network's one vector."""
    return torch.optim.Adam([network.flat], lr=learning_rate, eps=epsilon, fused=True)


def centred_rmsprop(network: Flat, learning_rate: float, epsilon: float) -> torch.optim.RMSprop:
    """RMSProp with decay 0.95 and the mean of the gradients taken out (Graves 2013, section 4.2)."""
    return torch.optim.RMSprop([network.flat], lr=learning_rate, alpha=0.95, eps=epsilon, centered=True)


def rmsprop(network: Flat, learning_rate: float, decay: float, epsilon: float) -> torch.optim.RMSprop:
    """RMSProp over a network's one vector, neither centred nor with momentum: `g / (sqrt(mean of g^2) + epsilon)`."""
    return torch.optim.RMSprop([network.flat], lr=learning_rate, alpha=decay, eps=epsilon)


def backward(network: FlatNetwork[Any], loss: Tensor) -> None:
    """The gradient of `loss` by the network's parameters, into `flat.grad`; what was there is forgotten."""
    network.zero_grad_()
    loss.backward(inputs=network.parameters)  # type: ignore[no-untyped-call]


def descend(
    network: FlatNetwork[Any], optimizer: torch.optim.Optimizer, loss: Tensor, max_grad_norm: float | None = None
) -> None:
    """One step of the network's parameters down the gradient of `loss`, clipped to the norm where one is given.

    Gradients are asked for this network alone: others that `loss` passes through stay as they are.
    """
    backward(network, loss)
    if max_grad_norm is not None:
        network.clip_grad_norm_(max_grad_norm)
    optimizer.step()
