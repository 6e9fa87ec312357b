"""Episodes that are played together by one policy, which may have a state for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Episodes:
    """The actions of a policy in episodes that step together; a `core.RecurrentPolicy` has a state in each."""

    def __init__(self, policy: Any, count: int) -> None:
        """`policy` is one of an agent, a `TrainedPolicy`, or a function of observations."""
        self._policy = policy
        self._states: NDArray[np.float32] | None = (
            policy.initial_state(count) if getattr(policy, "recurrent", False) else None
        )

    def actions(self, observations: NDArray[Any], running: Sequence[int]) -> NDArray[Any]:
        """Greedy actions for observations `[n, ...]` of the episodes `running` `[n]`, whose states go one step on."""
        if self._states is None:
            actions: NDArray[Any] = self._policy(observations)
            return actions
        rows = np.asarray(running)
        actions, self._states[rows] = self._policy.step(observations, self._states[rows])
        return actions
