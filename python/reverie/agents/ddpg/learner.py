"""The learner: a batch, a step of the critic, a step of the policy, and the targets a little closer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.continuous import critics_priorities, make_critic, make_tanh_policy
from reverie.agents.core import Stopwatch, seed_of
from reverie.agents.ddpg.config import DdpgConfig
from reverie.agents.ddpg.loss import critic_loss, critic_target, policy_loss
from reverie.agents.draws import TableDraws
from reverie.agents.environments import EnvSpec
from reverie.agents.learning import NetworkLearner, float32
from reverie.agents.optimizers import adam, descend
from reverie.agents.rates import set_rates
from reverie.agents.replay import TABLE
from reverie.agents.target_networks import polyak_update


class Learner(NetworkLearner):
    """Steps Adam on both networks."""

    ACTING = (("policy", "policy_target"),)

    def __init__(self, spec: EnvSpec, config: DdpgConfig, client: Any, *, seed: int, watch: Stopwatch) -> None:
        super().__init__(client, watch=watch, draws=TableDraws(TABLE, config.batch_size))
        self._config = config
        self._policy, self._policy_target = (
            make_tanh_policy(spec, config.policy_hidden, seed=seed_of(seed, 0), trainable=t) for t in (True, False)
        )
        self._critic, self._critic_target = (
            make_critic(spec, config.critic_hidden, seed=seed_of(seed, 1), trainable=t) for t in (True, False)
        )
        self._networks = {
            "policy": self._policy,
            "policy_target": self._policy_target,
            "critic": self._critic,
            "critic_target": self._critic_target,
        }
        self._optimizers = {
            "policy": adam(self._policy, config.policy_learning_rate),
            "critic": adam(self._critic, config.critic_learning_rate),
        }

    def learn(self) -> None:
        """Make one update from one batch. Raises `DeadlineExceededError` at once if the table cannot give one now."""
        set_rates(self._optimizers.values(), self._config, self.version)
        self._learn_as_drawn(self._config, self._update)

    def _update(self, data: dict[str, Tensor], weights: Tensor | None) -> tuple[Tensor, dict[str, float | Tensor]]:
        s_tm1, s_t = data["obs"], data["next_obs"]
        with torch.no_grad():
            q_t = self._critic_target.module(s_t, self._policy_target.module(s_t))[0]
        target = critic_target(float32(data["reward"]), float32(data["discount"]), q_t)
        q_tm1 = self._critic.module(s_tm1, data["action"])
        error = self._critics_loss(q_tm1, target, weights)
        descend(self._critic, self._optimizers["critic"], error)
        loss = policy_loss(self._critic.module(s_tm1, self._policy.module(s_tm1))[0])
        descend(self._policy, self._optimizers["policy"], loss)
        polyak_update(self._policy_target, self._policy, self._config.target_rate)
        polyak_update(self._critic_target, self._critic, self._config.target_rate)
        figures: dict[str, float | Tensor] = {"critic_loss": error.detach(), "policy_loss": loss.detach()}
        return critics_priorities(q_tm1, target, self._config), figures

    def _critics_loss(self, q_tm1: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
        """The loss of the critics' values `[k, B]` for a target `[B]`; subclasses may have another one."""
        return critic_loss(q_tm1[0], target, weights)

    def _acting(self) -> NDArray[np.float32]:
        return self._policy.numpy()
