"""The learner: unrolls of older policies, corrected for their age, and one gradient step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.core import Stopwatch
from reverie.agents.distributions import log_pi_of, log_softmax
from reverie.agents.draws import QueueDraws
from reverie.agents.environments import EnvSpec
from reverie.agents.impala.config import TABLE, ImpalaConfig
from reverie.agents.impala.loss import impala_loss, vtrace
from reverie.agents.impala.networks import make_network
from reverie.agents.learning import NetworkLearner, float32
from reverie.agents.optimizers import descend, rmsprop, set_rate


class Learner(NetworkLearner):
    """Steps RMSProp on policy and value network together. The queue gives every unroll once."""

    ACTING = (("network",),)

    def __init__(self, spec: EnvSpec, config: ImpalaConfig, client: Any, *, seed: int, watch: Stopwatch) -> None:
        self._unrolls = QueueDraws(TABLE, config.batch_size)
        super().__init__(client, watch=watch, queue=self._unrolls)
        self._config, self._sizes = config, spec.action_sizes
        self._network = make_network(spec, config, seed=seed, trainable=True)
        self._optimizer = rmsprop(self._network, config.learning_rate, config.rmsprop_decay, config.rmsprop_epsilon)
        self._networks = {"network": self._network}
        self._optimizers = {"network": self._optimizer}

    def learn(self) -> None:
        """Make one update. Raises `DeadlineExceededError` at once if the queue has no whole batch."""
        with self._watch("sample"):
            batch = self._unrolls.next(self._client)
        with self._watch("learn"):
            figures = self._update(self._statistics.scaled(batch.data))
            self._statistics.merge(batch.data, batch.data["is_step"])
        self._check(figures)
        ages = self.version - batch.data["weights_version"][:, 0]  # one policy made all of an unroll
        self._last = {"age_in_updates": float(ages.mean()), "oldest_in_updates": float(ages.max()), **figures}
        self.version += 1

    def _update(self, data: dict[str, NDArray[Any]]) -> dict[str, float]:
        config = self._config
        set_rate([self._optimizer], config.rate(self.version))
        actions = torch.from_numpy(data["action"])
        logits, values = self._computed(data)
        with torch.no_grad():
            log_pi = log_pi_of(log_softmax(logits, self._sizes), actions, self._sizes)
            log_rho = log_pi - float32(data["log_mu"])
            targets = vtrace(
                log_rho,
                float32(data["reward"]),
                float32(data["discount"]),
                config.trace_lambda * (1.0 - float32(data["ended"])),
                values,
                rho_bar=config.rho_bar,
                c_bar=config.c_bar,
            )
        steps = torch.from_numpy(data["is_step"])  # without reset steps
        loss = impala_loss(
            logits[steps],
            values[:, :-1][steps],
            actions[steps],
            targets.v_s[steps],
            targets.advantage[steps],
            value_coefficient=config.value_coefficient,
            entropy_coefficient=config.entropy_coefficient,
            sizes=self._sizes,
        )
        descend(self._network, self._optimizer, loss.loss, config.max_grad_norm)
        figures = torch.stack([loss.loss.detach(), loss.entropy, -log_rho[steps].mean()])
        return dict(zip(("loss", "entropy", "kl"), figures.tolist(), strict=True))

    def _computed(self, data: dict[str, NDArray[Any]]) -> tuple[Tensor, Tensor]:
        """Logits `[B, T, O]` of the steps, and values `[B, T + 1]`, that of the observation after them included."""
        obs, module = torch.from_numpy(data["obs"]), self._network.module
        if self._config.lstm_units:
            # The last value has the state after the unroll. It is not used where another episode begins there.
            first = torch.nn.functional.pad(torch.from_numpy(data["first"]), (0, 1))
            logits, values = module.unroll(obs, first, torch.from_numpy(data["state"]))
        else:
            logits, values = (one.unflatten(0, obs.shape[:2]) for one in module(obs.flatten(0, 1)))
        return logits[:, :-1], values

    def _acting(self) -> NDArray[np.float32]:
        return self._network.numpy()
