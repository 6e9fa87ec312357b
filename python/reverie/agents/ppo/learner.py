"""The learner: one unroll of every environment, several passes over their steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from reverie.agents.optimizers import adam, descend_clipped
from reverie.agents.ppo.config import TABLE, PpoConfig
from reverie.agents.ppo.loss import advantages, explained_variance, ppo_loss, standardised
from reverie.agents.ppo.networks import make_network
from reverie.agents.rates import set_rates
from reverie.agents.tracing import STEPPED, Result

MOST_RESETS = 1 / 16
"""The largest share of resets in a batch whose gradient steps are compiled ones; more make other minibatches."""


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
        self._size = config.batch_size * config.unroll_length
        self._steps_of_update = config.epochs * config.minibatches(self._size)
        fewest = int(self._size * (1 - MOST_RESETS))
        self._most_rows = max(-(-n // config.minibatches(n)) for n in range(max(1, fewest), self._size + 1))
        """Rows of a compiled gradient step."""
        self._weights: dict[int, Tensor] = {}
        """The weights of its rows, by the number of those that count."""

    def learn(self) -> None:
        """Make one update. Raises `DeadlineExceededError` at once if the queue has no whole batch."""
        with self._watch("sample"):
            batch = self._unrolls.next(self._client)
        with self._watch("learn"):
            figures = self._update(self._statistics.scaled(batch.data, batch.data["is_step"]))
            self._statistics.merge(batch.data, batch.data["is_step"])
        self._check(figures)
        age = self.version - float(batch.data["weights_version"].mean())
        self._last = {"age_in_updates": age, **figures}
        self.version += 1

    def _update(self, data: dict[str, NDArray[Any]]) -> dict[str, float]:
        config = self._config
        set_rates([self._optimizer], config, self.version)
        v = float32(data["value"])
        lambda_t = config.gae_lambda * (1.0 - float32(data["ended"]))
        advantage = advantages(float32(data["reward"]), float32(data["discount"]), lambda_t, v)
        steps = torch.from_numpy(data["is_step"])  # without reset steps
        columns = {
            "obs": torch.from_numpy(data["obs"]),
            "action": torch.from_numpy(data["action"]),
            "log_pi": float32(data["log_pi"]),
            "advantage": advantage,
            "target": advantage + v[:, :-1],
            "value": v[:, :-1],
        }
        figures, refused = [], []
        for made in self._gradient_steps(columns, steps, data):
            values = {name: float(value) for name, value in made.items()}
            if not values.pop(STEPPED):
                refused = [values]
                break
            figures.append(values)
        known = figures or refused  # unrolls of an older policy may be too far before the first step
        return {
            **{name: float(np.mean([one[name] for one in known])) for name in known[0]},
            "explained_variance": explained_variance(v[:, :-1][steps], columns["target"][steps]).item(),
            "gradient_steps": float(len(figures)),
        }

    def _gradient_steps(
        self, columns: dict[str, Tensor], steps: Tensor, data: dict[str, NDArray[Any]]
    ) -> Iterator[Mapping[str, Any]]:
        """Make the gradient steps of all epochs; gives the figures of each."""
        config = self._config
        if config.lstm_units:
            columns |= {"is_step": steps, **{name: torch.from_numpy(data[name]) for name in ("first", "state")}}
            for rows in self._minibatches(len(steps), min(len(steps), config.minibatches(self._size))):
                yield self._step({**columns, "rows": rows})[1]
            return
        columns = {name: one.flatten(0, 1).contiguous() for name, one in columns.items()}
        at, clip = steps.flatten().nonzero().squeeze(1), torch.tensor(config.clip_at(self.version))
        for order in self._minibatches(len(at), config.minibatches(len(at))):
            rows, result = at[order], None
            if self._compiler is not None and len(rows) <= self._most_rows:
                result = self._compiler.update({**columns, **self._padded(rows), "clip": clip}, self._step)
            yield (self._step({**columns, "rows": rows}) if result is None else result)[1]

    def _padded(self, rows: Tensor) -> dict[str, Tensor]:
        """These rows as a compiled gradient step has them, whose number of rows is always the same.

        The others repeat the first one, with weight 0.
        """
        count, size = len(rows), self._most_rows
        weights = self._weights.get(count)
        if weights is None:
            weights = self._weights[count] = torch.zeros(size)
            weights[:count] = 1 / count
        return {"rows": rows if count == size else torch.cat([rows, rows[:1].expand(size - count)]), "weights": weights}

    def _minibatches(self, count: int, parts: int) -> Iterator[Tensor]:
        """The rows of each gradient step: every epoch has all of `count` rows, in an order of its own."""
        for _ in range(self._config.epochs):
            yield from torch.randperm(count, generator=self._generator).tensor_split(parts)

    def _step(self, columns: dict[str, Tensor]) -> Result:
        """Make one gradient step of the rows `rows`, unless the policy is too far from the actor's.

        A compiled one has `weights`, and the clip as a column.
        """
        config, compiled = self._config, "weights" in columns
        weights = columns["weights"] if compiled else None
        outputs, values, (actions, old_log_pi, advantage, target, old_values) = self._computed(columns)
        loss = ppo_loss(
            outputs,
            values,
            actions,
            old_log_pi,
            standardised(advantage, weights) if config.normalise_advantages else advantage,
            target,
            clip=columns["clip"] if compiled else config.clip_at(self.version),
            value_coefficient=config.value_coefficient,
            entropy_coefficient=config.entropy_coefficient,
            distribution=self._distribution,
            old_values=old_values,
            value_clip=config.value_clip,
            weights=weights,
        )
        # A KL that is not finite stops nothing: the figures have it, and learning ends with its reason.
        near = ~(loss.kl > 1.5 * config.target_kl) if config.target_kl > 0 else None
        norm = descend_clipped(self._network, self._optimizer, loss.loss, config.max_grad_norm, near)
        figures = dict(zip(("loss", "clipped", "kl", "entropy"), (loss.loss.detach(), *loss[1:]), strict=True))
        return None, {**figures, "gradient_norm": norm, STEPPED: 1.0 if near is None else near.float()}

    def _computed(self, columns: dict[str, Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Outputs `[M, O]` and values `[M]` of the steps of `rows`, and their actions and other columns."""
        rows, module = columns["rows"], self._network.module
        others = [columns[name] for name in ("action", "log_pi", "advantage", "target", "value")]
        if not self._config.lstm_units:
            outputs, values = module(columns["obs"][rows])
            return outputs, values, [one[rows] for one in others]
        here = columns["is_step"][rows]
        outputs, values = module.unroll(*(columns[name][rows] for name in ("obs", "first", "state")))
        return outputs[here], values[here], [one[rows][here] for one in others]

    def _acting(self) -> NDArray[np.float32]:
        return self._network.numpy()
