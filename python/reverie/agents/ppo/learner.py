"""The learner: one unroll of every environment, several passes over their steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.core import Stopwatch, seed_of
from reverie.agents.environments import EnvSpec
from reverie.agents.learning import NetworkLearner, adam, descend, float32
from reverie.agents.ppo.config import TABLE, PpoConfig
from reverie.agents.ppo.loss import advantages, ppo_loss, standardised
from reverie.agents.ppo.networks import make_network


class Learner(NetworkLearner):
    """Steps Adam on policy and value network together. The queue gives every unroll once."""

    ACTING = (("network",),)

    def __init__(self, spec: EnvSpec, config: PpoConfig, client: Any, *, seed: int, watch: Stopwatch) -> None:
        super().__init__(client, watch=watch)
        self._config, self._sizes = config, spec.action_sizes
        self._network = make_network(spec, config, seed=seed_of(seed, 0), trainable=True)
        self._optimizer = adam(self._network, config.learning_rate, config.adam_epsilon)
        self._networks = {"network": self._network}
        self._optimizers = {"network": self._optimizer}
        self._generator = torch.Generator().manual_seed(seed_of(seed, 1))

    def learn(self) -> None:
        """Make one update. Raises `DeadlineExceededError` at once if the queue has no whole batch."""
        with self._watch("sample"):
            batch = self._client.sample_batch(TABLE, self._config.batch_size, timeout=0)
        with self._watch("learn"):
            figures = self._update(self._statistics.scaled(batch.data))
            self._statistics.merge(batch.data, batch.data["is_step"])
        self._check(figures)
        age = self.version - float(batch.data["weights_version"].mean())
        self._last = {"age_in_updates": age, **figures}
        self.version += 1

    def _update(self, data: dict[str, NDArray[Any]]) -> dict[str, float]:
        config = self._config
        left = config.annealed(self.version)
        for group in self._optimizer.param_groups:
            group["lr"] = config.learning_rate * left
        v = float32(data["value"])
        lambda_t = config.gae_lambda * (1.0 - float32(data["ended"]))
        advantage = advantages(float32(data["reward"]), float32(data["discount"]), lambda_t, v)
        steps = torch.from_numpy(data["is_step"])  # without reset steps
        obs = torch.from_numpy(data["obs"])[steps]
        actions, old_log_pi = torch.from_numpy(data["action"])[steps], float32(data["log_pi"])[steps]
        target, advantage = (advantage + v[:, :-1])[steps], advantage[steps]
        figures: list[Tensor] = []
        for _ in range(config.epochs):
            order = torch.randperm(len(obs), generator=self._generator)
            for part in order.tensor_split(max(1, round(len(obs) / config.minibatch_size))):
                logits, values = self._network.module(obs[part])
                loss = ppo_loss(
                    logits,
                    values,
                    actions[part],
                    old_log_pi[part],
                    standardised(advantage[part]),
                    target[part],
                    clip=config.clip * left,
                    value_coefficient=config.value_coefficient,
                    entropy_coefficient=config.entropy_coefficient,
                    sizes=self._sizes,
                )
                descend(self._network, self._optimizer, loss.loss, config.max_grad_norm)
                figures.append(torch.stack([loss.loss.detach(), *loss[1:]]))
        return dict(zip(("loss", "clipped", "kl", "entropy"), torch.stack(figures).mean(dim=0).tolist(), strict=True))

    def _acting(self) -> NDArray[np.float32]:
        return self._network.numpy()
