"""The learner: a batch, a step of the critics, one of the policy, one of the temperature."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reverie.agents.continuous import critics_priorities, make_critics, q_values_of, q_values_of_some
from reverie.agents.core import Stopwatch, seed_of
from reverie.agents.draws import TableDraws
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.learning import NetworkLearner, float32
from reverie.agents.optimizers import adam, descend
from reverie.agents.rates import set_rates
from reverie.agents.replay import TABLE
from reverie.agents.sac.config import SacConfig
from reverie.agents.sac.loss import critics_loss, policy_loss, soft_target, squashed_gaussian, temperature_loss
from reverie.agents.sac.networks import make_policy_network
from reverie.agents.target_networks import polyak_update


class Temperature(nn.Module):
    """alpha, kept as its logarithm so that it stays above 0."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor([math.log(initial)]))


class Learner(NetworkLearner):
    """Steps Adam on policy, critics and temperature."""

    ACTING = (("policy",),)
    RATES: ClassVar = {"critics": "critic_learning_rate"}

    def __init__(self, spec: EnvSpec, config: SacConfig, client: Any, *, seed: int, watch: Stopwatch) -> None:
        super().__init__(client, watch=watch, draws=TableDraws(TABLE, config.batch_size))
        self._config = config
        self._target_entropy = config.entropy_per_action * spec.action_size
        self._policy = make_policy_network(spec, config, seed=seed_of(seed, 0), trainable=True)
        self._critics, self._critics_target = (
            make_critics(spec, config.critic_hidden, config, seed=seed_of(seed, 1), trainable=t) for t in (True, False)
        )
        self._temperature = FlatNetwork(Temperature(config.initial_temperature), trainable=True)
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
        self._generator = torch.Generator().manual_seed(seed_of(seed, 2))

    def _act(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_sigma = self._policy.module.distribution(observations)
        return squashed_gaussian(mean, log_sigma, self._random(mean.shape))

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
        target = soft_target(float32(data["reward"]), float32(data["discount"]), q_t, log_pi_t, temperature)
        q_tm1 = q_values_of(self._critics, s_tm1, data["action"], self._random)
        error = self._critics_loss(q_tm1, target, weights)
        descend(self._critics, self._optimizers["critics"], error)
        figures: dict[str, float | Tensor] = {"critics_loss": error.detach(), "temperature": temperature}
        if self._kind(self.version):
            figures |= self._improve(s_tm1, temperature)
        polyak_update(self._critics_target, self._critics, config.target_rate)
        return critics_priorities(q_tm1, target, config), figures

    def _critics_loss(self, q_tm1: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
        """The loss of the critics' values `[k, B]` for a target `[B]`; subclasses may have another one."""
        return critics_loss(q_tm1, target, weights)

    def _improve(self, s_tm1: Tensor, temperature: Tensor) -> dict[str, Tensor]:
        """Step the policy and the temperature; returns figures."""
        config = self._config
        a_tm1, log_pi_tm1 = self._act(s_tm1)
        q_tm1 = q_values_of(self._critics, s_tm1, a_tm1, self._random)
        loss = policy_loss(q_tm1, log_pi_tm1, temperature, mean_of_critics=config.policy_critics == "mean")
        descend(self._policy, self._optimizers["policy"], loss)
        if config.temperature_learning_rate > 0:
            steered = temperature_loss(self._temperature.module.log, log_pi_tm1, self._target_entropy)
            descend(self._temperature, self._optimizers["temperature"], steered)
        return {"policy_loss": loss.detach(), "entropy": -log_pi_tm1.detach().mean()}

    def _kind(self, version: int) -> int:
        """1 for the updates that step the policy, too."""
        return int((version + 1) % self._config.policy_period == 0)

    def _kinds(self) -> dict[int, int]:
        return {self._kind(version): version for version in range(self._config.policy_period)}

    def _acting(self) -> NDArray[np.float32]:
        return self._policy.numpy()
