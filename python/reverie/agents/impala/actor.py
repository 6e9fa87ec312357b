"""An actor: takes the newest weights, makes an unroll with them, and sends it into the queue."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from reverie.agents.core import ActorArguments, WeightSource
from reverie.agents.environments import EnvSpec
from reverie.agents.impala.config import TABLE, ImpalaConfig
from reverie.agents.impala.networks import make_policy
from reverie.agents.recurrent import LstmActorCriticPolicy
from reverie.agents.unrolls import Columns, UnrollActor


class Actor(UnrollActor):
    """Draws actions from the policy. The learner updates meanwhile, and corrects for the age of the unrolls.

    An item is the unroll of one environment: the columns of `UnrollActor` without `value`, `log_mu` instead of
    `log_pi` (the learner reads it as the behaviour policy's), and `obs` `[T + 1, ...]`, which includes the observation
    after the unroll. A policy with a state adds `first`, and `state` `[S]`: that before the unroll, as the weights of
    then had computed it. The reset step after an episode's end has the true last observation, so that a
    truncated episode bootstraps from the next observation like any other step.
    """

    def __init__(
        self, spec: EnvSpec, config: ImpalaConfig, client: Any, weights: WeightSource, **role: Unpack[ActorArguments]
    ) -> None:
        policy = make_policy(spec, config)
        super().__init__(spec, config, client, weights, policy, TABLE, **role)

    def _take_weights(self) -> None:
        if self._rows.empty:
            self._pull(self._policy)

    def _item(self, unrolls: Columns, after: NDArray[Any]) -> Columns:
        obs = np.concatenate([unrolls["obs"], after[:, None]], axis=1)
        kept = {name: column for name, column in unrolls.items() if name not in ("value", "log_pi", "state_after")}
        if isinstance(self._policy, LstmActorCriticPolicy):
            kept["state"] = unrolls["state"][:, 0]
        return {**kept, "obs": obs, "log_mu": unrolls["log_pi"]}
