"""The learner: a batch, a step of the critic, a step of the policy, now and then a copy into the targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.continuous import make_tanh_policy
from reverie.agents.core import Stopwatch, seed_of
from reverie.agents.d4pg.config import D4pgConfig
from reverie.agents.d4pg.loss import critic_loss, policy_loss
from reverie.agents.d4pg.networks import make_critic
from reverie.agents.draws import TableDraws
from reverie.agents.environments import EnvSpec
from reverie.agents.learning import NetworkLearner, float32
from reverie.agents.optimizers import adam, descend
from reverie.agents.priorities import priorities_of
from reverie.agents.rates import set_rates
from reverie.agents.replay import TABLE
from reverie.agents.target_networks import copy_if_due, follow


class Learner(NetworkLearner):
    """Steps Adam on both networks."""

    ACTING = (("policy", "policy_target"),)

    def __init__(self, spec: EnvSpec, config: D4pgConfig, client: Any, *, seed: int, watch: Stopwatch) -> None:
        super().__init__(client, watch=watch, draws=TableDraws(TABLE, config.batch_size))
        self._config = config
        self._policy, self._policy_target = (
            make_tanh_policy(spec, config.policy_hidden, seed=seed_of(seed, 0), trainable=t) for t in (True, False)
        )
        self._critic, self._critic_target = (
            make_critic(spec, config, seed=seed_of(seed, 1), trainable=t) for t in (True, False)
        )
        self._networks = {
            "policy": self._policy,
            "policy_target": self._policy_target,
            "critic": self._critic,
            "critic_target": self._critic_target,
        }
        self._targets = ((self._policy_target, self._policy), (self._critic_target, self._critic))
        self._optimizers = {
            "policy": adam(self._policy, config.policy_learning_rate),
            "critic": adam(self._critic, config.critic_learning_rate),
        }

    def learn(self) -> None:
        """Make one update from one batch. Raises `DeadlineExceededError` at once if the table cannot give one now."""
        set_rates(self._optimizers.values(), self._config, self.version)
        self._learn_as_drawn(self._config, self._update)

    def _update(self, data: dict[str, Tensor], weights: Tensor | None) -> tuple[Tensor, dict[str, float | Tensor]]:
        config = self._config
        s_tm1, s_t = data["obs"], data["next_obs"]
        with torch.no_grad():
            p_t = self._critic_target.module(s_t, self._policy_target.module(s_t)).exp()
        error = critic_loss(
            self._critic.module(s_tm1, data["action"]),
            float32(data["reward"]),
            float32(data["discount"]),
            p_t,
            weights,
            v_min=config.v_min,
            v_max=config.v_max,
        )
        descend(self._critic, self._optimizers["critic"], error.loss)
        loss = policy_loss(self._critic.module.q_values(s_tm1, self._policy.module(s_tm1)))
        descend(self._policy, self._optimizers["policy"], loss)
        follow(self._targets, config)
        priorities = priorities_of(error.errors, eps=config.priority_eps, clip=config.priority_clip)
        return priorities, {"critic_loss": error.loss.detach(), "policy_loss": loss.detach()}

    def _priority_unit(self) -> float:
        return 1.0  # divergences have no unit

    def _after_update(self) -> None:
        copy_if_due(self._targets, self._config, self.version + 1)

    def _acting(self) -> NDArray[np.float32]:
        return self._policy.numpy()
