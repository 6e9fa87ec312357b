"""DQN and SAC of Stable-Baselines3 with prioritised replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.utils import polyak_update
from torch.nn import functional

from reverie.integrations.stable_baselines3.buffers import PrioritizedReplayBuffer
from reverie.integrations.stable_baselines3.samples import PrioritizedSamples

__all__ = ["PrioritizedDQN", "PrioritizedSAC"]


class _Prioritized(OffPolicyAlgorithm):
    """The parts that both algorithms have: the buffer, and the annealed beta.

    Args:
        policy, env, args, options: as for the algorithm of SB3.
        beta_initial: how much of the bias the weights correct in the beginning.
        beta_final: the same at the end of `learn`; in between it changes linearly.
    """

    def __init__(
        self, policy: Any, env: Any, *args: Any, beta_initial: float = 0.4, beta_final: float = 1.0, **options: Any
    ) -> None:
        for name, value in (("beta_initial", beta_initial), ("beta_final", beta_final)):
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} must be between 0 and 1, got {value}")
        self.beta_initial, self.beta_final = beta_initial, beta_final
        super().__init__(policy, env, *args, **options)

    @property
    def beta(self) -> float:
        """The exponent of the importance weights now."""
        return self.beta_final + (self.beta_initial - self.beta_final) * self._current_progress_remaining

    def _setup_model(self) -> None:
        n_steps = self.n_steps
        if self.replay_buffer_class is None:
            self.replay_buffer_class = PrioritizedReplayBuffer
            if n_steps > 1:
                self.replay_buffer_kwargs = {**self.replay_buffer_kwargs, "n_steps": n_steps, "gamma": self.gamma}
                self.n_steps = 1  # SB3 would warn that a given class ignores it.
        if not issubclass(self.replay_buffer_class, PrioritizedReplayBuffer):
            raise TypeError(
                f"{type(self).__name__} needs a PrioritizedReplayBuffer, got {self.replay_buffer_class.__name__}"
            )
        super()._setup_model()
        self.n_steps = n_steps

    def _draw(self, batch_size: int) -> tuple[PrioritizedSamples, torch.Tensor | float]:
        """Transitions, and the discount of their next value."""
        assert isinstance(self.replay_buffer, PrioritizedReplayBuffer)
        drawn = self.replay_buffer.sample(batch_size, self._vec_normalize_env, beta=self.beta)
        return drawn, self.gamma if drawn.discounts is None else drawn.discounts

    def _learnt(self, drawn: PrioritizedSamples, td_errors: torch.Tensor) -> None:
        """Sends the new priorities of transitions."""
        assert isinstance(self.replay_buffer, PrioritizedReplayBuffer)
        self.replay_buffer.update_priorities(drawn.keys, td_errors.detach().cpu().numpy())


class PrioritizedDQN(_Prioritized, DQN):
    """SB3's DQN with prioritised replay: the loss of a transition is multiplied by its weight.

    Args:
        policy, env, args, options: as for SB3's DQN.
        beta_initial, beta_final: the exponent of the weights at the start and at the end of `learn`.
    """

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Makes `gradient_steps` updates, each followed by new priorities."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        losses = [self._update(batch_size) for _ in range(gradient_steps)]
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))
        self.logger.record("train/beta", self.beta)

    def _update(self, batch_size: int) -> float:
        drawn, discount = self._draw(batch_size)
        with torch.no_grad():
            best = self.q_net_target(drawn.next_observations).amax(dim=1, keepdim=True)
            targets = drawn.rewards + (1 - drawn.dones) * discount * best
        values = self.q_net(drawn.observations).gather(1, drawn.actions.long())
        loss = (drawn.weights * functional.smooth_l1_loss(values, targets, reduction="none")).mean()
        self.policy.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
        self.policy.optimizer.step()
        self._learnt(drawn, values - targets)
        return loss.item()


class PrioritizedSAC(_Prioritized, SAC):
    """SB3's SAC with prioritised replay: the critics' loss of a transition is multiplied by its weight.

    A transition's TD error is the mean of the critics' absolute errors. The actor's loss and that of the entropy
    coefficient have no weights, as in SB3.

    Args:
        policy, env, args, options: as for SB3's SAC.
        beta_initial, beta_final: the exponent of the weights at the start and at the end of `learn`.
    """

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        """Makes `gradient_steps` updates, each followed by new priorities."""
        self.policy.set_training_mode(True)
        optimizers = [self.actor.optimizer, self.critic.optimizer]
        self._update_learning_rate([*optimizers, *([self.ent_coef_optimizer] if self.ent_coef_optimizer else [])])
        figures: dict[str, list[float]] = {}
        for step in range(gradient_steps):
            for name, value in self._update(batch_size).items():
                figures.setdefault(name, []).append(value)
            if step % self.target_update_interval == 0:
                polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
                polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/beta", self.beta)
        for name, values in figures.items():
            self.logger.record(f"train/{name}", np.mean(values))

    def _update(self, batch_size: int) -> dict[str, float]:
        drawn, discount = self._draw(batch_size)
        if self.use_sde:
            self.actor.reset_noise()
        actions, log_prob = self.actor.action_log_prob(drawn.observations)
        log_prob = log_prob.reshape(-1, 1)
        figures: dict[str, float] = {}
        entropy = self._update_entropy(log_prob, figures)
        with torch.no_grad():
            next_actions, next_log_prob = self.actor.action_log_prob(drawn.next_observations)
            next_values = torch.cat(self.critic_target(drawn.next_observations, next_actions), dim=1)
            soft = next_values.amin(dim=1, keepdim=True) - entropy * next_log_prob.reshape(-1, 1)
            targets = drawn.rewards + (1 - drawn.dones) * discount * soft
        values = self.critic(drawn.observations, drawn.actions)
        losses = [(drawn.weights * functional.mse_loss(value, targets, reduction="none")).mean() for value in values]
        critic_loss = 0.5 * torch.stack(losses).sum()
        _step(self.critic.optimizer, critic_loss)
        self._learnt(drawn, torch.stack([(value - targets).abs() for value in values]).mean(dim=0))
        lowest = torch.cat(self.critic(drawn.observations, actions), dim=1).amin(dim=1, keepdim=True)
        actor_loss = (entropy * log_prob - lowest).mean()
        _step(self.actor.optimizer, actor_loss)
        return {
            **figures,
            "ent_coef": entropy.item(),
            "actor_loss": actor_loss.item(),
            "critic_loss": critic_loss.item(),
        }

    def _update_entropy(self, log_prob: torch.Tensor, figures: dict[str, float]) -> torch.Tensor:
        """The entropy coefficient of this update; where it is learnt, it is updated for the next one."""
        if self.ent_coef_optimizer is None or self.log_ent_coef is None:
            return self.ent_coef_tensor
        entropy = self.log_ent_coef.detach().exp()
        loss = -(self.log_ent_coef * (log_prob + float(self.target_entropy)).detach()).mean()
        figures["ent_coef_loss"] = loss.item()
        _step(self.ent_coef_optimizer, loss)
        return entropy


def _step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
