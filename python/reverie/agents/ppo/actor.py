"""An actor: unrolls of a fixed length from a vector of environments, into the queue."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reverie.agents.acting import EnvActor
from reverie.agents.core import Stopwatch, WeightSource
from reverie.agents.environments import EnvSpec
from reverie.agents.ppo.config import TABLE, PpoConfig
from reverie.agents.ppo.networks import GreedyPolicy
from reverie.errors import DeadlineExceededError

Row = dict[str, NDArray[Any]]


class Actor(EnvActor):
    """Draws actions from the policy. All steps of an unroll are made with the newest weights there are.

    Where newer ones come in the middle of an unroll it begins anew. Within one process that happens only after a resume
    that found some actors' unrolls in the queue and others still at work on theirs.

    An item is the unroll of one environment: `obs` `[T, ...]`, `action`, `log_pi`, `reward`, `discount` (0 where the
    episode terminated), `ended` (in any way), `is_step` (False for the reset after an end) and `weights_version`, all
    `[T]`, and `value` `[T + 1]`, the last one of the observation after the unroll. The reset step after an episode's
    end has the true last observation, so the value of a truncated episode's end is where the next step's always is.
    """

    def __init__(
        self,
        spec: EnvSpec,
        config: PpoConfig,
        client: Any,
        weights: WeightSource,
        *,
        index: int,
        seed: int,
        watch: Stopwatch,
    ) -> None:
        super().__init__(spec, config, weights, index=index, seed=seed, watch=watch)
        self._config, self._client = config, client
        self._policy = GreedyPolicy(spec, config)
        self._rows: list[Row] = []
        self._unsent: Row = {}

    def act(self) -> int:
        """One step of every environment; how many were steps of an episode.

        Where the queue has no room for the unroll that ends with it, `settle` waits, and so does the next step.
        """
        self.settle()
        obs, resets = self._obs, self._resets
        with self._watch("act"):
            if self._pull(self._policy):
                self._rows.clear()
            self._acts += 1
            log_pi, values = self._policy.outputs(obs)
            actions = draw(self._rng, log_pi)
        with self._watch("env step"):
            after = self._step(actions)
        if after is None:
            self._rows.clear()
            return 0
        _, reward, terminated, truncated = after
        self._rows.append(
            {
                "obs": obs,
                "action": actions,
                "log_pi": np.take_along_axis(log_pi, actions[:, None], axis=1)[:, 0],
                "value": values,
                "reward": reward.astype(np.float32),
                "discount": np.where(terminated, 0.0, self._config.discount).astype(np.float32),
                "ended": terminated | truncated,
                "is_step": ~resets,
                "weights_version": self._version,
            }
        )
        stepped = self._count(reward, terminated | truncated)
        if len(self._rows) == self._config.unroll_length:
            with self._watch("append"):
                self._unsent = self._unrolls()
                with suppress(DeadlineExceededError):
                    self.settle(timeout=0)
        return stepped

    def settle(self, timeout: float | None = None) -> None:
        """Wait until all of the last unroll is in the queue."""
        if not self._unsent:
            return
        try:
            self._client.insert_batch(TABLE, self._unsent, timeout=timeout)
        except DeadlineExceededError as error:
            sent = 0 if error.partial is None else len(error.partial)
            self._unsent = {name: rows[sent:] for name, rows in self._unsent.items()}
            raise
        self._unsent = {}

    def _unrolls(self) -> Row:
        rows, self._rows = self._rows, []
        unrolls = {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}
        last = self._policy.values(self._obs)
        unrolls["value"] = np.concatenate([unrolls["value"], last[:, None]], axis=1)
        return unrolls


def draw(rng: np.random.Generator, log_pi: NDArray[np.float32]) -> NDArray[np.int64]:
    """One action `[N]` of each row of `log pi` `[N, num_actions]`: the largest with Gumbel noise (Gumbel 1954)."""
    actions: NDArray[np.int64] = (log_pi + rng.gumbel(size=log_pi.shape)).argmax(axis=1)
    return actions
