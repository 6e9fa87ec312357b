"""The learner: a batch of sequences, an update, new priorities."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.core import Stopwatch
from reverie.agents.draws import TableDraws
from reverie.agents.environments import EnvSpec
from reverie.agents.learning import NetworkLearner
from reverie.agents.optimizers import adam, descend_clipped
from reverie.agents.r2d2.config import R2d2Config
from reverie.agents.r2d2.loss import r2d2_loss
from reverie.agents.r2d2.networks import make_network
from reverie.agents.rates import set_rates
from reverie.agents.replay import TABLE


class Learner(NetworkLearner):
    """Steps Adam on the online network, and copies it into the target now and then.

    Both networks begin each sequence with its stored state, and warm it up by the burn-in with their own parameters.
    """

    ACTING = (("online", "target"),)

    def __init__(self, spec: EnvSpec, config: R2d2Config, client: Any, *, seed: int, watch: Stopwatch) -> None:
        super().__init__(client, watch=watch, draws=TableDraws(TABLE, config.batch_size))
        self._counts = {"priorities_applied": 0, "priorities_stale": 0}
        self._config = config
        self._online = make_network(spec, config, seed=seed, trainable=True)
        self._target = make_network(spec, config, seed=seed, trainable=False)
        self._networks = {"online": self._online, "target": self._target}
        self._optimizers = {"online": adam(self._online, config.learning_rate, config.optimizer_epsilon)}

    def learn(self) -> None:
        """Make one update from one batch. Raises `DeadlineExceededError` at once if the table cannot give one now."""
        set_rates(self._optimizers.values(), self._config, self.version)
        self._learn_by_priority(self._config, self._update)

    def _steps_of(self, data: dict[str, Tensor]) -> Tensor | None:
        return data["mask"]

    def _update(self, data: dict[str, Tensor], weights: Tensor) -> tuple[Tensor, dict[str, float | Tensor]]:
        config = self._config
        learnt = slice(config.burn_in, config.burn_in + config.sequence_length)
        a_tm1, r_t, discount_t, mask = (data[name][:, learnt] for name in ("action", "reward", "discount", "mask"))
        with torch.no_grad():
            q_value = self._target.module.unroll(data, config.burn_in)
        q_tm1 = self._online.module.unroll(data, config.burn_in)
        loss, priorities = r2d2_loss(
            q_tm1,
            a_tm1,
            r_t.float(),
            discount_t.float(),
            q_value,
            mask,
            weights,
            n_step=config.n_step,
            rescale_epsilon=config.rescale_epsilon,
            priority_eta=config.priority_eta,
            priority_eps=config.priority_eps,
            priority_clip=config.priority_clip,
        )
        norm = descend_clipped(self._online, self._optimizers["online"], loss, config.max_grad_norm)
        figures = {"loss": loss.detach(), "gradient_norm": norm}
        return priorities, {**figures, "steps_of_a_sequence": mask.sum() / len(mask)}

    def _after_update(self) -> None:
        if (self.version + 1) % self._config.target_period == 0:
            self._target.copy_from(self._online)

    def _acting(self) -> NDArray[np.float32]:
        return self._online.numpy()
