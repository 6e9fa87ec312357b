"""The learner: unrolls of older policies, corrected for their age, and one gradient step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.actor_critic import mean
from reverie.agents.core import Stopwatch
from reverie.agents.distributions import log_pi_of, log_softmax
from reverie.agents.draws import QueueDraws
from reverie.agents.environments import EnvSpec
from reverie.agents.impala.config import TABLE, ImpalaConfig
from reverie.agents.impala.loss import impala_loss, vtrace
from reverie.agents.impala.networks import make_network
from reverie.agents.learning import NetworkLearner, float32
from reverie.agents.optimizers import descend_clipped, rmsprop
from reverie.agents.rates import set_rates
from reverie.agents.tracing import Result


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
            figures = self._update(self._statistics.scaled(batch.data, batch.data["is_step"]))
            self._statistics.merge(batch.data, batch.data["is_step"])
        self._check(figures)
        ages = self.version - batch.data["weights_version"][:, 0]  # one policy made all of an unroll
        self._last = {"age_in_updates": float(ages.mean()), "oldest_in_updates": float(ages.max()), **figures}
        self.version += 1

    def _update(self, data: dict[str, NDArray[Any]]) -> dict[str, float]:
        config = self._config
        set_rates([self._optimizer], config, self.version)
        names = ("reward", "discount", "ended", "log_mu")
        columns = {
            **{name: torch.from_numpy(data[name]) for name in data if name not in names},
            **{name: float32(data[name]) for name in names},
        }
        result = None
        if self._compiler is not None:
            steps = columns["is_step"].float().flatten()
            result = self._compiler.update({**columns, "weights": steps / steps.sum()}, self._step)
        _, figures = self._step(columns) if result is None else result
        return {name: float(figure) for name, figure in figures.items()}

    def _step(self, columns: dict[str, Tensor]) -> Result:
        """Make the gradient step of a batch, without its resets: with `weights` of all steps where it is compiled."""
        config, compiled = self._config, "weights" in columns
        weights = columns["weights"] if compiled else None
        actions = columns["action"]
        logits, values = self._computed(columns)
        with torch.no_grad():
            log_pi = log_pi_of(log_softmax(logits, self._sizes), actions, self._sizes)
            log_rho = log_pi - columns["log_mu"]
            targets = vtrace(
                log_rho,
                columns["reward"],
                columns["discount"],
                config.trace_lambda * (1.0 - columns["ended"]),
                values,
                rho_bar=config.rho_bar,
                c_bar=config.c_bar,
            )
        all_rows = (logits, values[:, :-1], actions, targets.v_s, targets.advantage, log_rho)
        *inputs, log_rho = (one.flatten(0, 1) if compiled else one[columns["is_step"]] for one in all_rows)
        loss = impala_loss(
            *inputs,
            value_coefficient=config.value_coefficient,
            entropy_coefficient=config.entropy_coefficient,
            sizes=self._sizes,
            weights=weights,
        )
        norm = descend_clipped(self._network, self._optimizer, loss.loss, config.max_grad_norm)
        figures = {"loss": loss.loss.detach(), "gradient_norm": norm, "entropy": loss.entropy}
        return None, {**figures, "kl": -mean(log_rho, weights)}

    def _computed(self, columns: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Logits `[B, T, O]` of the steps, and values `[B, T + 1]`, that of the observation after them included."""
        obs, module = columns["obs"], self._network.module
        if self._config.lstm_units:
            # The last value has the state after the unroll. It is not used where another episode begins there.
            first = torch.nn.functional.pad(columns["first"], (0, 1))
            logits, values = module.unroll(obs, first, columns["state"])
        else:
            logits, values = (one.unflatten(0, obs.shape[:2]) for one in module(obs.flatten(0, 1)))
        return logits[:, :-1], values

    def _acting(self) -> NDArray[np.float32]:
        return self._network.numpy()
