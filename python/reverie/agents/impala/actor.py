"""An actor: takes the newest weights, makes an unroll with them, and sends it into the queue."""

from __future__ import annotations

from typing import Any

import numpy as np

from reverie.agents.acting import Columns, UnrollActor
from reverie.agents.core import Stopwatch, WeightSource
from reverie.agents.environments import EnvSpec
from reverie.agents.impala.config import TABLE, ImpalaConfig
from reverie.agents.impala.networks import GreedyPolicy


class Actor(UnrollActor):
    """Draws actions from the policy; the learner goes on while an unroll is being made, and corrects for it.

    An item is the unroll of one environment: the columns of `UnrollActor` without `value`, `log_mu` in place of
    `log_pi` (by the time that it is read it is the behaviour's), and `obs` `[T + 1, ...]`, that after the unroll
    included. The reset step after an episode's end has the true last observation, so what a truncated episode
    bootstraps from is where the next observation always is.
    """

    def __init__(
        self,
        spec: EnvSpec,
        config: ImpalaConfig,
        client: Any,
        weights: WeightSource,
        *,
        index: int,
        seed: int,
        watch: Stopwatch,
    ) -> None:
        policy = GreedyPolicy(spec, config)
        super().__init__(spec, config, client, weights, policy, TABLE, index=index, seed=seed, watch=watch)

    def _take_weights(self) -> None:
        if not self._rows:
            self._pull(self._policy)

    def _item(self, unrolls: Columns) -> Columns:
        obs = np.concatenate([unrolls["obs"], self._obs[:, None]], axis=1)
        kept = {name: column for name, column in unrolls.items() if name not in ("value", "log_pi")}
        return {**kept, "obs": obs, "log_mu": unrolls["log_pi"]}
