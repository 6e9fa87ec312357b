"""The learner: a batch, a step of the critics, one of the policy, one of the temperature, one of the term's factor."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.continuous import critics_priorities, make_critics, q_values_of, q_values_of_each, q_values_of_some
from reverie.agents.core import Stopwatch, seed_of
from reverie.agents.cql_sac.config import CqlSacConfig
from reverie.agents.cql_sac.loss import conservative_gap, factor_loss, imitation_loss, squashed_log_pi, uniform_actions
from reverie.agents.cql_sac.networks import PenaltyFactor, bound, make_policy_network
from reverie.agents.draws import TableDraws
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.learning import NetworkLearner, float32
from reverie.agents.optimizers import adam, descend
from reverie.agents.rates import set_rates
from reverie.agents.replay import TABLE
from reverie.agents.sac.learner import Temperature
from reverie.agents.sac.loss import critics_loss, policy_loss, soft_target, squashed_gaussian, temperature_loss
from reverie.agents.target_networks import polyak_update

CRITICS, POLICY, IMITATION = range(3)
"""Kinds of updates: of the critics alone, of the policy too, and of the policy by the data's actions."""


class Learner(NetworkLearner):
    """Steps Adam on policy, critics, temperature, and with a threshold on the conservative term's factor."""

    ACTING = (("policy",),)
    RATES: ClassVar = {"critics": "critic_learning_rate", "factor": "conservative_learning_rate"}

    def __init__(self, spec: EnvSpec, config: CqlSacConfig, client: Any, *, seed: int, watch: Stopwatch) -> None:
        super().__init__(client, watch=watch, draws=TableDraws(TABLE, config.batch_size))
        self._config = config
        self._num_parts, self._target_entropy = spec.action_size, config.entropy_per_action * spec.action_size
        self._policy = make_policy_network(spec, config, seed=seed_of(seed, 0), trainable=True)
        self._critics, self._critics_target = (
            make_critics(spec, config.critic_hidden, config, seed=seed_of(seed, 1), trainable=t) for t in (True, False)
        )
        self._temperature = FlatNetwork(Temperature(config.initial_temperature), trainable=True)
        self._factor = FlatNetwork(PenaltyFactor(), trainable=True)
        self._networks = {
            "policy": self._policy,
            "critics": self._critics,
            "critics_target": self._critics_target,
            "temperature": self._temperature,
        }
        self._fixed = () if config.temperature_learning_rate else ("temperature",)
        self._optimizers = {
            "policy": adam(self._policy, config.policy_learning_rate),
            "critics": adam(self._critics, config.critic_learning_rate),
            "temperature": adam(self._temperature, config.temperature_learning_rate),
        }
        if config.conservative_threshold is not None:
            self._networks["factor"] = self._factor
            self._optimizers["factor"] = adam(self._factor, config.conservative_learning_rate)
        self._generator = torch.Generator().manual_seed(seed_of(seed, 2))

    def _act(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_sigma = self._policy.module.distribution(observations)
        return squashed_gaussian(mean, log_sigma, self._random(mean.shape))

    def _act_often(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """N actions `[N, B, A]` for each observation, and their `log pi` `[N, B]`."""
        count = self._config.sampled_actions
        mean, log_sigma = (
            one.expand(count, -1, -1).flatten(0, 1) for one in self._policy.module.distribution(observations)
        )
        actions, log_pi = squashed_gaussian(mean, log_sigma, self._random(mean.shape))
        return actions.view(count, len(observations), -1), log_pi.view(count, len(observations))

    def learn(self) -> None:
        """Make one update from one batch. Raises `DeadlineExceededError` at once if the table cannot give one now."""
        set_rates(self._optimizers.values(), self._config, self.version)
        self._learn_as_drawn(self._config, self._update)

    def _update(self, data: dict[str, Tensor], weights: Tensor | None) -> tuple[Tensor, dict[str, float | Tensor]]:
        config, s_tm1, s_t = self._config, data["obs"], data["next_obs"]
        temperature = self._temperature.flat.detach().exp()
        with torch.no_grad():
            a_t, log_pi_t = self._act(s_t)
            q_t = q_values_of_some(self._critics_target, s_t, a_t, config.target_critics, self._random)
        bonus = temperature if config.entropy_in_target else 0.0
        target = soft_target(float32(data["reward"]), float32(data["discount"]), q_t, log_pi_t, bonus)
        q_tm1 = q_values_of(self._critics, s_tm1, data["action"], self._random)
        error = self._critics_loss(q_tm1, target, weights)
        figures: dict[str, float | Tensor] = {"critics_loss": error.detach(), "temperature": temperature}
        loss = error
        if config.conservative_weight > 0:
            term, found = self._conservative(s_tm1, s_t, q_tm1, weights)
            loss = error + term
            figures |= found
        descend(self._critics, self._optimizers["critics"], loss)
        if kind := self._kind(self.version):
            actions = data["action"] if kind == IMITATION else None
            figures |= self._improve(s_tm1, temperature, actions)
        polyak_update(self._critics_target, self._critics, config.target_rate)
        return critics_priorities(q_tm1, target, config), figures

    def _critics_loss(self, q_tm1: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
        """The loss of the critics' values `[k, B]` for a target `[B]`; subclasses may have another one."""
        return critics_loss(q_tm1, target, weights)

    def _conservative(
        self, s_tm1: Tensor, s_t: Tensor, q_tm1: Tensor, weights: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The conservative term of the critics' loss, and figures. Steps the factor, if there is a threshold."""
        config = self._config
        with torch.no_grad():
            size = torch.Size((config.sampled_actions, q_tm1.shape[1], self._num_parts))
            drawn = [uniform_actions(self._random(size)), self._act_often(s_tm1), self._act_often(s_t)]
            actions, log_density = (torch.cat(parts) for parts in zip(*drawn, strict=True))
        q = q_values_of_each(self._critics, s_tm1, actions, self._random)
        gap = conservative_gap(q, log_density, q_tm1, weights)
        figures = {"conservative_gap": gap.detach().mean()}
        if config.conservative_threshold is None:
            return config.conservative_weight * gap.sum(), figures
        weight = config.conservative_weight * self._factor.flat.detach().exp()
        steered = factor_loss(self._factor.module.log, gap, config.conservative_threshold)
        descend(self._factor, self._optimizers["factor"], steered)
        bound(self._factor)
        return (weight * gap).sum(), {**figures, "conservative_weight": weight}

    def _improve(self, s_tm1: Tensor, temperature: Tensor, imitated: Tensor | None) -> dict[str, Tensor]:
        """Step the policy, by the values or by the actions `imitated`, and the temperature; returns figures."""
        config = self._config
        mean, log_sigma = self._policy.module.distribution(s_tm1)
        a_tm1, log_pi_tm1 = squashed_gaussian(mean, log_sigma, self._random(mean.shape))
        if imitated is None:
            q_tm1 = q_values_of(self._critics, s_tm1, a_tm1, self._random)
            loss = policy_loss(q_tm1, log_pi_tm1, temperature, mean_of_critics=config.policy_critics == "mean")
        else:
            loss = imitation_loss(squashed_log_pi(mean, log_sigma, imitated), log_pi_tm1, temperature)
        descend(self._policy, self._optimizers["policy"], loss)
        if config.temperature_learning_rate > 0:
            steered = temperature_loss(self._temperature.module.log, log_pi_tm1, self._target_entropy)
            descend(self._temperature, self._optimizers["temperature"], steered)
        return {"policy_loss": loss.detach(), "entropy": -log_pi_tm1.detach().mean()}

    def _kind(self, version: int) -> int:
        if (version + 1) % self._config.policy_period:
            return CRITICS
        return IMITATION if version < self._config.imitation_updates else POLICY

    def _kinds(self) -> dict[int, int]:
        period, imitated = self._config.policy_period, self._config.imitation_updates
        return {self._kind(version): version for version in (*range(period), *range(imitated, imitated + period))}

    def _acting(self) -> NDArray[np.float32]:
        return self._policy.numpy()
