"""The dtypes of actions: agents compute them in float32 or int64, and each environment gets those of its own space."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


def own_dtype(actions: spaces.Space[Any]) -> str:
    """The dtype of an action space where it is another than that of the agents' actions; else an empty text."""
    usual = np.float32 if isinstance(actions, spaces.Box) else np.int64
    return "" if actions.dtype is None or actions.dtype == usual else np.dtype(actions.dtype).name


class ActionsOfSpace(gymnasium.ActionWrapper[Any, Any, Any]):
    """An environment whose actions are converted to the dtype of its space.

    Rounding keeps an action within the bounds of a Box, since these are numbers of its dtype.
    """

    def action(self, action: Any) -> Any:
        """The action in the space's dtype."""
        return np.asarray(action, self.action_space.dtype)[()]
