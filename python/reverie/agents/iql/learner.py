"""The learner: a batch, a step of the value network, one of the policy, one of the critics."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.core import Stopwatch, seed_of
from reverie.agents.distributions import DiagonalGaussian
from reverie.agents.draws import TableDraws
from reverie.agents.environments import EnvSpec
from reverie.agents.iql.config import IqlConfig
from reverie.agents.iql.loss import critics_loss, policy_loss, value_loss
from reverie.agents.iql.networks import make_critics, make_policy_network, make_values
from reverie.agents.learning import NetworkLearner, float32
from reverie.agents.optimizers import adam, descend
from reverie.agents.rates import set_rates
from reverie.agents.replay import TABLE
from reverie.agents.target_networks import polyak_update


class Learner(NetworkLearner):
    """Steps Adam on value network, policy and critics."""

    ACTING = (("policy",),)
    RATES: ClassVar = {"critics": "critic_learning_rate", "values": "critic_learning_rate"}

    def __init__(self, spec: EnvSpec, config: IqlConfig, client: Any, *, seed: int, watch: Stopwatch) -> None:
        super().__init__(client, watch=watch, draws=TableDraws(TABLE, config.batch_size))
        self._config, self._distribution = config, DiagonalGaussian(spec.action_size)
        self._policy = make_policy_network(spec, config, seed=seed_of(seed, 0), trainable=True)
        self._critics, self._critics_target = (
            make_critics(spec, config, seed=seed_of(seed, 1), trainable=t) for t in (True, False)
        )
        self._values = make_values(spec, config, seed=seed_of(seed, 2), trainable=True)
        self._networks = {
            "policy": self._policy,
            "critics": self._critics,
            "critics_target": self._critics_target,
            "values": self._values,
        }
        self._optimizers = {
            "policy": adam(self._policy, config.policy_learning_rate),
            "critics": adam(self._critics, config.critic_learning_rate),
            "values": adam(self._values, config.critic_learning_rate),
        }

    def learn(self) -> None:
        """Make one update from one batch. Raises `DeadlineExceededError` at once if the table cannot give one now."""
        set_rates(self._optimizers.values(), self._config, self.version)
        self._learn(self._update)

    def _update(self, data: dict[str, Tensor]) -> dict[str, float | Tensor]:
        config, s_tm1, a_tm1 = self._config, data["obs"], data["action"]
        with torch.no_grad():
            q_tm1 = self._critics_target.module(s_tm1, a_tm1)
        v_error = value_loss(self._values.module(s_tm1), q_tm1, config.expectile)
        descend(self._values, self._optimizers["values"], v_error)
        with torch.no_grad():
            v_tm1, v_t = self._values.module(s_tm1), self._values.module(data["next_obs"])
        log_pi_tm1 = self._distribution.log_pi(self._policy.module.outputs(s_tm1), a_tm1)
        loss = policy_loss(log_pi_tm1, q_tm1, v_tm1, config.advantage_scale, config.advantage_clip)
        descend(self._policy, self._optimizers["policy"], loss)
        q_error = critics_loss(
            self._critics.module(s_tm1, a_tm1), float32(data["reward"]), float32(data["discount"]), v_t
        )
        descend(self._critics, self._optimizers["critics"], q_error)
        polyak_update(self._critics_target, self._critics, config.target_rate)
        return {
            "critics_loss": q_error.detach(),
            "value_loss": v_error.detach(),
            "policy_loss": loss.detach(),
            "value": v_tm1.mean(),
        }

    def _acting(self) -> NDArray[np.float32]:
        return self._policy.numpy()
