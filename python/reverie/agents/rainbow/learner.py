"""The learner: a batch, an update, new priorities, now and then a copy into the target network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.core import Stopwatch, seed_of
from reverie.agents.draws import TableDraws
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.learning import NetworkLearner
from reverie.agents.optimizers import adam, descend_clipped
from reverie.agents.priorities import priorities_of
from reverie.agents.rainbow.config import RainbowConfig
from reverie.agents.rainbow.loss import HeadLoss, categorical_loss, quantile_loss, scalar_loss
from reverie.agents.rainbow.networks import RainbowNetwork, make_network
from reverie.agents.random_layers import drawing
from reverie.agents.rates import set_rates
from reverie.agents.replay import TABLE
from reverie.agents.spectral_norm import follow_weights
from reverie.agents.target_networks import copy_if_due, follow
from reverie.agents.value_distributions import fractions_of

Network = FlatNetwork[RainbowNetwork]


class Learner(NetworkLearner):
    """Steps Adam on the online network. Each forward pass has noise of its own, the same for the whole batch."""

    ACTING = (("online", "target"),)

    def __init__(self, spec: EnvSpec, config: RainbowConfig, client: Any, *, seed: int, watch: Stopwatch) -> None:
        super().__init__(client, watch=watch, draws=TableDraws(TABLE, config.batch_size))
        self._config = config
        self._online = make_network(spec, config, seed=seed_of(seed, 0), trainable=True)
        self._target = make_network(spec, config, seed=seed_of(seed, 0), trainable=False)
        self._networks = {"online": self._online, "target": self._target}
        self._targets = ((self._target, self._online),)
        self._optimizers = {"online": adam(self._online, config.learning_rate, config.adam_epsilon)}
        self._generator = torch.Generator(device="cpu").manual_seed(seed_of(seed, 1))

    def learn(self) -> None:
        """Make one update from one batch. Raises `DeadlineExceededError` at once if the table cannot give one now."""
        set_rates(self._optimizers.values(), self._config, self.version)
        self._learn_as_drawn(self._config, self._update)

    def _update(self, data: dict[str, Tensor], weights: Tensor | None) -> tuple[Tensor, dict[str, float | Tensor]]:
        config = self._config
        found = self._loss(data, weights)
        norm = descend_clipped(self._online, self._optimizers["online"], found.loss, config.max_grad_norm)
        if config.spectral_norm:
            follow_weights(self._online.module)
        follow(self._targets, config)
        priorities = priorities_of(found.errors, eps=config.priority_eps, clip=config.priority_clip)
        return priorities, {"loss": found.loss.detach(), "gradient_norm": norm}

    def _loss(self, data: dict[str, Tensor], weights: Tensor | None) -> HeadLoss:
        config, s_tm1, s_t = self._config, data["obs"], data["next_obs"]
        with torch.no_grad():
            rewards = config.learnt_rewards(
                data["reward"].float(), data["action"], lambda: self._noisy(self._target, lambda one: one(s_tm1))
            )
        chosen = data["action"], rewards, data["discount"].float()
        kappa, tau = config.huber_delta, config.soft_temperature
        match config.head:
            case "categorical":
                with torch.no_grad():
                    p_t = self._noisy(self._target, lambda one: one.log_probabilities(s_t)).exp()
                    selector = self._selector(s_t, lambda: self._target.module.means(p_t))
                log_p_tm1 = self._noisy(self._online, lambda one: one.log_probabilities(s_tm1))
                v_min, v_max = config.v_min, config.v_max
                return categorical_loss(log_p_tm1, *chosen, p_t, selector, weights, v_min=v_min, v_max=v_max)
            case "quantile":
                shape = torch.Size((len(s_tm1), config.num_quantiles))
                fractions_tm1, fractions_t = (fractions_of(self._numbers(shape)) for _ in range(2))
                with torch.no_grad():
                    z_t = self._noisy(self._target, lambda one: one.quantiles(s_t, fractions_t))
                    selector = self._selector(s_t, lambda: self._target_means(s_t, z_t))
                z_tm1 = self._noisy(self._online, lambda one: one.quantiles(s_tm1, fractions_tm1))
                return quantile_loss(
                    z_tm1, fractions_tm1, *chosen, z_t, selector, weights, huber_delta=kappa, temperature=tau
                )
        with torch.no_grad():
            q_t = self._noisy(self._target, lambda one: one(s_t))
            selector = self._selector(s_t, lambda: q_t)
        q_tm1 = self._noisy(self._online, lambda one: one(s_tm1))
        return scalar_loss(q_tm1, *chosen, q_t, selector, weights, huber_delta=kappa, temperature=tau)

    def _selector(self, s_t: Tensor, of_target: Any) -> Tensor:
        """The values `[B, A]` that choose the next action."""
        if not self._config.double:
            values: Tensor = of_target()
            return values
        return self._noisy(self._online, lambda one: one(s_t))

    def _target_means(self, s_t: Tensor, z_t: Tensor) -> Tensor:
        """The target's values `[B, A]`: of many fractions for the policy of a soft target, else of those drawn."""
        if self._config.munchausen > 0:
            return self._noisy(self._target, lambda one: one(s_t))
        return z_t.mean(dim=2)

    def _noisy(self, network: Network, compute: Any) -> Tensor:
        with drawing(network.module, 1, self._numbers):
            found: Tensor = compute(network.module)
        return found

    def _numbers(self, shape: torch.Size, uniform: bool = False, /) -> Tensor:
        return self._random(shape, uniform).to(self._device)

    def _priority_unit(self) -> float:
        return 1.0 if self._config.head == "categorical" else super()._priority_unit()

    def _after_update(self) -> None:
        copy_if_due(self._targets, self._config, self.version + 1)

    def _acting(self) -> NDArray[np.float32]:
        return self._online.numpy()
