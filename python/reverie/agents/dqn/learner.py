"""The learner: a batch, an update, now and then a copy into the target network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.core import Stopwatch
from reverie.agents.discrete import computing_in
from reverie.agents.dqn.config import DqnConfig
from reverie.agents.dqn.loss import dqn_loss
from reverie.agents.dqn.networks import make_network
from reverie.agents.draws import TableDraws
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.learning import NetworkLearner
from reverie.agents.optimizers import adam, descend_clipped
from reverie.agents.rates import set_rates
from reverie.agents.replay import TABLE


class Learner(NetworkLearner):
    """Steps Adam on the online network."""

    ACTING = (("online", "target"),)

    def __init__(self, spec: EnvSpec, config: DqnConfig, client: Any, *, seed: int, watch: Stopwatch) -> None:
        super().__init__(client, watch=watch, draws=TableDraws(TABLE, config.batch_size))
        self._config = config
        self._online = make_network(spec, config, seed=seed, trainable=True)
        self._target = make_network(spec, config, seed=seed, trainable=False)
        self._networks = {"online": self._online, "target": self._target}
        self._optimizers = {"online": adam(self._online, config.learning_rate, config.adam_epsilon)}

    def learn(self) -> None:
        """Make one update from one batch. Raises `DeadlineExceededError` at once if the table cannot give one now."""
        set_rates(self._optimizers.values(), self._config, self.version)
        self._learn(self._update)

    def _update(self, data: dict[str, Tensor]) -> dict[str, float | Tensor]:
        loss = self._loss(data)
        norm = descend_clipped(self._online, self._optimizers["online"], loss, self._config.max_grad_norm)
        return {"loss": loss.detach(), "gradient_norm": norm}

    def _loss(self, data: dict[str, Tensor]) -> Tensor:
        """The loss of a batch; subclasses may have another one."""
        return batch_loss(self._online, self._target, data, self._config)

    def _after_update(self) -> None:
        if (self.version + 1) % self._config.target_period == 0:
            self._target.copy_from(self._online)

    def _acting(self) -> NDArray[np.float32]:
        return self._online.numpy()


def batch_loss(
    online: FlatNetwork[Any], target: FlatNetwork[Any], data: dict[str, Tensor], config: DqnConfig
) -> Tensor:
    """`dqn_loss` of a batch, with the columns of the table."""
    a_tm1, r_t, discount_t = (data[name] for name in ("action", "reward", "discount"))
    with computing_in(config.precision, online.device):
        with torch.no_grad():
            q_t = target.module(data["next_obs"]).float()
            r_t = config.learnt_rewards(r_t.float(), a_tm1, lambda: target.module(data["obs"]).float())
        q_tm1 = online.module(data["obs"]).float()
    return dqn_loss(
        q_tm1,
        a_tm1,
        r_t,
        discount_t.float(),
        q_t,
        huber_delta=config.huber_delta,
        temperature=config.soft_temperature,
    )
