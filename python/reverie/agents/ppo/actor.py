"""An actor: unrolls of a fixed length from a vector of environments, into the queue."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from reverie.agents.core import ActorArguments, WeightSource
from reverie.agents.environments import EnvSpec
from reverie.agents.ppo.config import TABLE, PpoConfig
from reverie.agents.ppo.networks import make_policy
from reverie.agents.recurrent import LstmActorCriticPolicy
from reverie.agents.unrolls import Columns, UnrollActor


class Actor(UnrollActor):
    """Draws actions from the policy. All steps of an unroll are made with the newest weights there are.

    After an unroll it awaits newer weights: an unroll that it made while the learner learns from the last one would be
    an update behind, and that of a fast actor would take the place of a slow one's. In one process the learner always
    comes first. If newer weights come in the middle of an unroll it begins again, and one that is not in the queue yet
    is discarded; the learner's role discards what is in the queue. That happens only where an actor has made two with
    the same weights: after a resume, a restart or a loss.

    An item is the unroll of one environment: the columns of `UnrollActor`, with `value` `[T + 1]`, the last one for the
    observation after the unroll, and the one `state` `[S]` before it of a policy that has them. The reset step after an
    episode's end has the true last observation, so that a truncated episode bootstraps from the value of the next step
    like any other.
    """

    def __init__(
        self, spec: EnvSpec, config: PpoConfig, client: Any, weights: WeightSource, **role: Unpack[ActorArguments]
    ) -> None:
        policy = make_policy(spec, config)
        super().__init__(spec, config, client, weights, policy, TABLE, **role)
        self._finished = False
        """Whether it has made an unroll with the newest weights that it has."""

    def awaits_weights(self) -> bool:
        """Whether it has made its unroll with the newest weights there are. Does not block."""
        if self._finished:
            self._take_weights()
        return self._finished

    def act_again(self) -> None:
        """Let it make another unroll with the same weights."""
        self._finished = False

    def _take_weights(self) -> None:
        if self._pull(self._policy):
            self._rows.clear()
            self._unsent, self._finished = {}, False

    def _item(self, unrolls: Columns, after: NDArray[Any]) -> Columns:
        self._finished = True
        if isinstance(self._policy, LstmActorCriticPolicy):
            last = self._policy.values_from(after, unrolls.pop("state_after")[:, -1])
            unrolls["state"] = unrolls["state"][:, 0]
        else:
            last = self._policy.values(after)
        return {**unrolls, "value": np.concatenate([unrolls["value"], last[:, None]], axis=1)}
