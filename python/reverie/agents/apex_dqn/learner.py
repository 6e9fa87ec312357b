"""The learner: a batch, an update, new priorities."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.apex_dqn.config import ApexDqnConfig
from reverie.agents.apex_dqn.loss import apex_dqn_loss
from reverie.agents.apex_dqn.networks import make_network
from reverie.agents.core import Stopwatch
from reverie.agents.discrete import computing_in
from reverie.agents.draws import TableDraws
from reverie.agents.environments import EnvSpec
from reverie.agents.layers import frames_input
from reverie.agents.learning import NetworkLearner
from reverie.agents.optimizers import adam, centred_rmsprop, descend_clipped
from reverie.agents.rates import set_rates
from reverie.agents.replay import TABLE
from reverie.agents.target_networks import copy_if_due, follow


class Learner(NetworkLearner):
    """Steps Adam on the online network, and copies it into the target now and then."""

    ACTING = (("online", "target"),)

    def __init__(self, spec: EnvSpec, config: ApexDqnConfig, client: Any, *, seed: int, watch: Stopwatch) -> None:
        super().__init__(client, watch=watch, draws=TableDraws(TABLE, config.batch_size))
        self._counts = {"priorities_applied": 0, "priorities_stale": 0}
        self._config = config
        self._online = make_network(spec, config, seed=seed, trainable=True)
        self._target = make_network(spec, config, seed=seed, trainable=False)
        self._networks = {"online": self._online, "target": self._target}
        self._targets = ((self._target, self._online),)
        optimizer = adam if config.optimizer == "adam" else centred_rmsprop
        self._optimizers = {"online": optimizer(self._online, config.learning_rate, config.optimizer_epsilon)}

    def learn(self) -> None:
        """Make one update from one batch. Raises `DeadlineExceededError` at once if the table cannot give one now."""
        set_rates(self._optimizers.values(), self._config, self.version)
        self._learn_by_priority(self._config, self._update)

    def _update(self, data: dict[str, Tensor], weights: Tensor) -> tuple[Tensor, dict[str, float | Tensor]]:
        config, device = self._config, self._online.device
        a_tm1, r_t, discount_t = (data[name] for name in ("action", "reward", "discount"))
        with computing_in(config.precision, device):
            with torch.no_grad():
                s_tm1, s_t = data["obs"], data["next_obs"]
                if s_t.dim() == 4:  # once for all that read them
                    s_tm1, s_t = frames_input(s_tm1), frames_input(s_t)
                q_t_value = self._target.module(s_t).float()
                # A soft value is that of all actions, and the online network chooses none.
                q_t_selector = q_t_value if config.munchausen > 0 else self._online.module(s_t).float()
                r_t = config.learnt_rewards(r_t.float(), a_tm1, lambda: self._target.module(s_tm1).float())
            q_tm1 = self._online.module(s_tm1).float()
        loss, priorities = apex_dqn_loss(
            q_tm1,
            a_tm1,
            r_t,
            discount_t.float(),
            q_t_value,
            q_t_selector,
            weights,
            huber_delta=config.huber_delta,
            priority_eps=config.priority_eps,
            priority_clip=config.priority_clip,
            temperature=config.soft_temperature,
        )
        norm = descend_clipped(self._online, self._optimizers["online"], loss, config.max_grad_norm)
        follow(self._targets, config)
        return priorities, {"loss": loss.detach(), "gradient_norm": norm}

    def _after_update(self) -> None:
        copy_if_due(self._targets, self._config, self.version + 1)

    def _acting(self) -> NDArray[np.float32]:
        return self._online.numpy()
