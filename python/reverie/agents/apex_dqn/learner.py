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
from reverie.agents.environments import EnvSpec
from reverie.agents.learning import PrioritizedLearner, adam, descend, float32


class Learner(PrioritizedLearner):
    """Steps Adam on the online network, and copies it into the target now and then."""

    def __init__(self, spec: EnvSpec, config: ApexDqnConfig, client: Any, *, seed: int, watch: Stopwatch) -> None:
        super().__init__(config, client, watch=watch)
        self._config = config
        self._online = make_network(spec, config, seed=seed, trainable=True)
        self._target = make_network(spec, config, seed=seed, trainable=False)
        self._networks = {"online": self._online, "target": self._target}
        self._optimizers = {"online": adam(self._online, config.learning_rate, config.adam_epsilon)}

    def _update(self, data: dict[str, NDArray[Any]], weights: Tensor) -> tuple[Tensor, dict[str, float]]:
        config = self._config
        s_t = torch.from_numpy(data["next_obs"])
        with torch.no_grad():
            q_t_selector = self._online.module(s_t)
            q_t_value = self._target.module(s_t)
        loss, priorities = apex_dqn_loss(
            self._online.module(torch.from_numpy(data["obs"])),
            torch.from_numpy(data["action"]),
            float32(data["reward"]),
            float32(data["discount"]),
            q_t_value,
            q_t_selector,
            weights,
            huber_delta=config.huber_delta,
            priority_eps=config.priority_eps,
        )
        descend(self._online, self._optimizers["online"], loss, config.max_grad_norm)
        if (self.version + 1) % config.target_period == 0:
            self._target.copy_from(self._online)
        return priorities, {}

    def _acting(self) -> NDArray[np.float32]:
        return self._online.numpy()
