"""The learner: a batch, an update, new priorities."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.apex_dqn.config import TABLE, ApexDqnConfig
from reverie.agents.apex_dqn.loss import apex_dqn_loss
from reverie.agents.apex_dqn.networks import make_network
from reverie.agents.core import Stopwatch, Weights
from reverie.agents.environments import EnvSpec


class DivergedError(RuntimeError):
    """A loss is no longer finite; nothing was written to the table from that batch. `.version`"""

    def __init__(self, version: int, learning_rate: float) -> None:
        self.version = version
        super().__init__(
            f"a td error is not finite at update {version}: learning diverged; lower learning_rate ({learning_rate})"
        )


class Learner:
    """Draws from the table, steps Adam on the online network, and copies it into the target now and then."""

    def __init__(self, spec: EnvSpec, config: ApexDqnConfig, client: Any, *, seed: int, watch: Stopwatch) -> None:
        self.version = 0
        self.priorities_applied = 0
        self.priorities_stale = 0
        self._config, self._client, self._watch = config, client, watch
        self._online = make_network(spec, config, seed=seed, trainable=True)
        self._target = make_network(spec, config, seed=seed, trainable=False)
        self._optimizer = torch.optim.Adam(
            [self._online.flat], lr=config.learning_rate, eps=config.adam_epsilon, fused=True
        )
        self._last: dict[str, float] = {}

    def learn(self) -> None:
        """One update. Raises `DeadlineExceededError` at once where the table cannot give a batch now."""
        with self._watch("sample"):
            batch = self._client.sample_batch(TABLE, self._config.batch_size, timeout=0)
            weights = batch.weights(self._config.importance_exponent, normalise=self._config.importance_normalise)
        with self._watch("learn"):
            priorities = self._update(batch.data, weights)
        if not np.isfinite(priorities).all():
            raise DivergedError(self.version, self._config.learning_rate)
        with self._watch("update"):
            result = self._client.update_priorities(TABLE, batch.info.key, priorities)
            self.priorities_applied += result.applied
            self.priorities_stale += result.stale
        self._last = {"age_in_updates": self.version - float(batch.data["weights_version"].mean())}
        self.version += 1
        if self.version % self._config.target_period == 0:
            self._target.copy_from(self._online)

    def _update(self, data: dict[str, NDArray[Any]], weights: NDArray[Any]) -> NDArray[np.float64]:
        config = self._config
        s_t = torch.from_numpy(data["next_obs"])
        with torch.no_grad():
            q_t_selector = self._online.module(s_t)
            q_t_value = self._target.module(s_t)
        loss, priorities = apex_dqn_loss(
            self._online.module(torch.from_numpy(data["obs"])),
            torch.from_numpy(data["action"]),
            _float32(data["reward"]),
            _float32(data["discount"]),
            q_t_value,
            q_t_selector,
            _float32(weights),
            huber_delta=config.huber_delta,
            priority_eps=config.priority_eps,
        )
        self._online.zero_grad_()
        loss.backward()  # type: ignore[no-untyped-call]
        self._online.clip_grad_norm_(config.max_grad_norm)
        self._optimizer.step()
        return priorities.double().numpy()

    def latest(self, newer_than: int) -> Weights | None:
        """A copy of the online weights, or None when `newer_than` is this version."""
        return Weights(self.version, self._online.numpy()) if self.version > newer_than else None

    def metrics(self) -> dict[str, float]:
        """Counters so far, and `age_in_updates`: how old the weights were that made the last batch, its mean."""
        return {
            "updates": self.version,
            "priorities_applied": self.priorities_applied,
            "priorities_stale": self.priorities_stale,
            **self._last,
        }

    def state_dict(self) -> dict[str, Any]:
        """A copy of everything that the next update depends on, the table apart."""
        return {
            "version": self.version,
            "online": self._online.numpy(),
            "target": self._target.numpy(),
            "optimizer": copy.deepcopy(self._optimizer.state_dict()),
            "priorities_applied": self.priorities_applied,
            "priorities_stale": self.priorities_stale,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave; the state stays the caller's."""
        self._online.load(state["online"])
        self._target.load(state["target"])
        self._optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        self.version = state["version"]
        self.priorities_applied, self.priorities_stale = state["priorities_applied"], state["priorities_stale"]


def _float32(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.asarray(array, dtype=np.float32))
