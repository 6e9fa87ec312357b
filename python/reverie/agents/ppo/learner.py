"""The learner: one unroll of every environment, several passes over their steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.core import Stopwatch, seed_of
from reverie.agents.distributions import distribution_of
from reverie.agents.draws import QueueDraws
from reverie.agents.environments import EnvSpec
from reverie.agents.learning import NetworkLearner, float32
from reverie.agents.optimizers import adam, descend, set_rate
from reverie.agents.ppo.config import TABLE, PpoConfig
from reverie.agents.ppo.loss import advantages, explained_variance, ppo_loss, standardised
from reverie.agents.ppo.networks import make_network


class Learner(NetworkLearner):
    """Steps Adam on policy and value network together. The queue gives every unroll once."""

    ACTING = (("network",),)

    def __init__(self, spec: EnvSpec, config: PpoConfig, client: Any, *, seed: int, watch: Stopwatch) -> None:
        self._unrolls = QueueDraws(TABLE, config.batch_size)
        super().__init__(client, watch=watch, queue=self._unrolls)
        self._config, self._distribution = config, distribution_of(spec)
        self._network = make_network(spec, config, seed=seed_of(seed, 0), trainable=True)
        self._optimizer = adam(self._network, config.learning_rate, config.adam_epsilon)
        self._networks = {"network": self._network}
        self._optimizers = {"network": self._optimizer}
        self._generator = torch.Generator().manual_seed(seed_of(seed, 1))

    def learn(self) -> None:
        """Make one update. Raises `DeadlineExceededError` at once if the queue has no whole batch."""
        with self._watch("sample"):
            batch = self._unrolls.next(self._client)
        with self._watch("learn"):
            figures = self._update(self._statistics.scaled(batch.data))
            self._statistics.merge(batch.data, batch.data["is_step"])
        self._check(figures)
        age = self.version - float(batch.data["weights_version"].mean())
        self._last = {"age_in_updates": age, **figures}
        self.version += 1

    def _update(self, data: dict[str, NDArray[Any]]) -> dict[str, float]:
        config = self._config
        set_rate([self._optimizer], config.rate(self.version))
        v = float32(data["value"])
        lambda_t = config.gae_lambda * (1.0 - float32(data["ended"]))
        advantage = advantages(float32(data["reward"]), float32(data["discount"]), lambda_t, v)
        steps = torch.from_numpy(data["is_step"])  # without reset steps
        target = advantage + v[:, :-1]
        columns = (torch.from_numpy(data["action"]), float32(data["log_pi"]), advantage, target, v[:, :-1])
        figures: list[Tensor] = []
        for outputs, values, (actions, old_log_pi, advantage_of, target_of, old_values) in self._passes(
            data, steps, columns
        ):
            loss = ppo_loss(
                outputs,
                values,
                actions,
                old_log_pi,
                standardised(advantage_of) if config.normalise_advantages else advantage_of,
                target_of,
                clip=config.clip_at(self.version),
                value_coefficient=config.value_coefficient,
                entropy_coefficient=config.entropy_coefficient,
                distribution=self._distribution,
                old_values=old_values,
                value_clip=config.value_clip,
            )
            if config.target_kl > 0 and loss.kl > 1.5 * config.target_kl:
                break
            descend(self._network, self._optimizer, loss.loss, config.max_grad_norm)
            figures.append(torch.stack([loss.loss.detach(), *loss[1:]]))
        means = torch.stack(figures).mean(dim=0).tolist()
        return {
            **dict(zip(("loss", "clipped", "kl", "entropy"), means, strict=True)),
            "explained_variance": explained_variance(v[:, :-1][steps], target[steps]).item(),
            "gradient_steps": float(len(figures)),
        }

    def _passes(
        self, data: dict[str, NDArray[Any]], steps: Tensor, columns: tuple[Tensor, ...]
    ) -> Iterator[tuple[Tensor, Tensor, list[Tensor]]]:
        """The minibatches of all epochs: outputs `[M, O]`, values `[M]`, and the same steps of each column."""
        obs, config = torch.from_numpy(data["obs"]), self._config
        if config.lstm_units:
            first, state = torch.from_numpy(data["first"]), torch.from_numpy(data["state"])
            for rows in self._minibatches(len(obs), config.minibatch_size / config.unroll_length):
                here = steps[rows]
                outputs, values = self._network.module.unroll(obs[rows], first[rows], state[rows])
                yield outputs[here], values[here], [one[rows][here] for one in columns]
            return
        obs, columns = obs[steps], tuple(one[steps] for one in columns)
        for rows in self._minibatches(len(obs), config.minibatch_size):
            outputs, values = self._network.module(obs[rows])
            yield outputs, values, [one[rows] for one in columns]

    def _minibatches(self, count: int, size: float) -> Iterator[Tensor]:
        """The rows of each gradient step: every epoch has all of `count` rows, in an order of its own."""
        parts = min(count, max(1, round(count / size)))
        for _ in range(self._config.epochs):
            yield from torch.randperm(count, generator=self._generator).tensor_split(parts)

    def _acting(self) -> NDArray[np.float32]:
        return self._network.numpy()
