"""The learner: a batch, a step of both critics, and once per policy period one of the policy and the targets."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.continuous import critics_priorities, make_critics, make_tanh_policy, q_values_of, q_values_of_some
from reverie.agents.core import Stopwatch, seed_of
from reverie.agents.draws import TableDraws
from reverie.agents.environments import EnvSpec
from reverie.agents.learning import NetworkLearner, float32
from reverie.agents.optimizers import adam, descend
from reverie.agents.rates import set_rates
from reverie.agents.replay import TABLE
from reverie.agents.target_networks import polyak_update
from reverie.agents.td3.config import Td3Config
from reverie.agents.td3.loss import clipped_double_q_target, critics_loss, policy_loss, smoothed


class Learner(NetworkLearner):
    """Steps Adam on the critics, and on the policy once in `policy_period` updates."""

    ACTING = (("policy", "policy_target"),)
    RATES: ClassVar = {"critics": "critic_learning_rate"}

    def __init__(self, spec: EnvSpec, config: Td3Config, client: Any, *, seed: int, watch: Stopwatch) -> None:
        super().__init__(client, watch=watch, draws=TableDraws(TABLE, config.batch_size))
        self._config = config
        self._policy, self._policy_target = (
            make_tanh_policy(spec, config.policy_hidden, seed=seed_of(seed, 0), trainable=t) for t in (True, False)
        )
        self._critics, self._critics_target = (
            make_critics(spec, config.critic_hidden, config, seed=seed_of(seed, 1), trainable=t) for t in (True, False)
        )
        self._networks = {
            "policy": self._policy,
            "policy_target": self._policy_target,
            "critics": self._critics,
            "critics_target": self._critics_target,
        }
        self._optimizers = {
            "policy": adam(self._policy, config.policy_learning_rate),
            "critics": adam(self._critics, config.critic_learning_rate),
        }
        self._generator = torch.Generator().manual_seed(seed_of(seed, 2))

    def learn(self) -> None:
        """Make one update from one batch. Raises `DeadlineExceededError` at once if the table cannot give one now."""
        set_rates(self._optimizers.values(), self._config, self.version)
        self._learn_as_drawn(self._config, self._update)

    def _update(self, data: dict[str, Tensor], weights: Tensor | None) -> tuple[Tensor, dict[str, float | Tensor]]:
        config = self._config
        s_tm1, s_t = data["obs"], data["next_obs"]
        with torch.no_grad():
            a_t = self._policy_target.module(s_t)
            noise = self._random(a_t.shape) * config.smoothing_sigma
            a_t = smoothed(a_t, noise, config.smoothing_clip)
            q_t = q_values_of_some(self._critics_target, s_t, a_t, config.target_critics, self._random)
        target = clipped_double_q_target(float32(data["reward"]), float32(data["discount"]), q_t)
        q_tm1 = q_values_of(self._critics, s_tm1, data["action"], self._random)
        error = self._critics_loss(q_tm1, target, weights)
        descend(self._critics, self._optimizers["critics"], error)
        figures: dict[str, float | Tensor] = {"critics_loss": error.detach()}
        if self._kind(self.version):
            first = slice(1)  # the policy's loss uses no other critic
            loss = policy_loss(q_values_of(self._critics, s_tm1, self._policy.module(s_tm1), self._random, first))
            descend(self._policy, self._optimizers["policy"], loss)
            polyak_update(self._policy_target, self._policy, config.target_rate)
            polyak_update(self._critics_target, self._critics, config.target_rate)
            figures["policy_loss"] = loss.detach()
        return critics_priorities(q_tm1, target, config), figures

    def _critics_loss(self, q_tm1: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
        """The loss of the critics' values `[k, B]` for a target `[B]`; subclasses may have another one."""
        return critics_loss(q_tm1, target, weights)

    def _kind(self, version: int) -> int:
        """1 for the updates that step the policy, too."""
        return int((version + 1) % self._config.policy_period == 0)

    def _kinds(self) -> dict[int, int]:
        return {self._kind(version): version for version in range(self._config.policy_period)}

    def _acting(self) -> NDArray[np.float32]:
        return self._policy.numpy()
