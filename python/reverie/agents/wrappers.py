"""Wrappers of environments that settings can name: `wrappers = ["reverie.agents.wrappers:ActionsFromZero"]`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class ActionsFromZero(gymnasium.ActionWrapper[Any, Any, Any]):
    """An environment whose choices count from 0, as agents count them. The start of its own space is added.

    Raises TypeError for an environment whose actions are neither `Discrete` nor `MultiDiscrete`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        actions = env.action_space
        if isinstance(actions, spaces.Discrete):
            self.action_space = spaces.Discrete(int(actions.n), dtype=actions.dtype)
        elif isinstance(actions, spaces.MultiDiscrete):
            self.action_space = spaces.MultiDiscrete(actions.nvec, dtype=actions.dtype.type)
        else:
            raise TypeError(f"its actions are {actions}, and have no start")
        self._start = actions.start

    def action(self, action: Any) -> Any:
        """The action as the inner environment counts."""
        return np.asarray(action + self._start, self.env.action_space.dtype)[()]
