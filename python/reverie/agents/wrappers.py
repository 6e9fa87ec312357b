"""Wrappers of environments that settings can name: `wrappers = ["reverie.agents.wrappers:ActionsFromZero"]`."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class ActionsFromZero(gymnasium.ActionWrapper[Any, Any, Any]):
    """An environment whose choices count from 0 in int64, as agents count them. It gets them in its own space.

    Raises TypeError for an environment whose actions are neither `Discrete` nor `MultiDiscrete`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        actions = env.action_space
        if isinstance(actions, spaces.Discrete):
            self.action_space = spaces.Discrete(int(actions.n))
        elif isinstance(actions, spaces.MultiDiscrete):
            self.action_space = spaces.MultiDiscrete(actions.nvec)
        else:
            raise TypeError(f"its actions are {actions}, and have no start")
        self._start = actions.start

    def action(self, action: Any) -> Any:
        """The action as the inner environment counts."""
        return np.asarray(action + self._start, self.env.action_space.dtype)[()]


class FlatActions(gymnasium.ActionWrapper[Any, Any, Any]):
    """An environment whose actions are one vector, of an environment with a nest of actions, or with several axes.

    A Dict, a Tuple, and what they have in them becomes one Box if all parts are Boxes of floats, or one MultiDiscrete
    that counts from 0 if all are choices (Discrete, MultiDiscrete, MultiBinary); the parts in the space's order.

    Raises TypeError for numbers and choices together, and for other parts.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._space = env.action_space
        self.action_space = flat_space(env.action_space)

    def action(self, action: Any) -> Any:
        """The action as the inner environment takes it."""
        nest, rest = _nested(self._space, np.asarray(action))
        assert rest.size == 0
        return nest


CHOICES = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def flat_space(actions: spaces.Space[Any]) -> spaces.Box | spaces.MultiDiscrete:
    """The actions of `FlatActions` for an environment with these. Raises TypeError."""
    parts = _parts(actions)
    boxes = [one for one in parts if isinstance(one, spaces.Box) and np.dtype(one.dtype).kind == "f"]
    if parts and len(boxes) == len(parts):
        low, high = (np.concatenate([getattr(one, name).ravel() for one in boxes]) for name in ("low", "high"))
        return spaces.Box(low, high, dtype=low.dtype.type)
    if parts and all(isinstance(one, CHOICES) for one in parts):
        return spaces.MultiDiscrete(np.concatenate([_sizes(one) for one in parts]))
    raise TypeError(
        f"its actions are {actions}, and FlatActions joins Boxes of floats alone, or Discrete, MultiDiscrete and"
        " MultiBinary alone"
    )


def _parts(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    if isinstance(space, spaces.Dict):
        return [part for one in space.spaces.values() for part in _parts(one)]
    if isinstance(space, spaces.Tuple):
        return [part for one in space.spaces for part in _parts(one)]
    return [space]


def _sizes(space: spaces.Space[Any]) -> NDArray[np.int64]:
    """The choices `[A]` of each number of a part."""
    if isinstance(space, spaces.Discrete):
        return np.array([space.n])
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.ravel().astype(np.int64)
    return np.full(math.prod(space.shape or ()), 2)


def _nested(space: spaces.Space[Any], flat: NDArray[Any]) -> tuple[Any, NDArray[Any]]:
    """An action of the space from the first numbers of a vector, and the rest of the vector."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        found: dict[Any, Any] = {}
        for key, one in items:
            found[key], flat = _nested(one, flat)
        return found if isinstance(space, spaces.Dict) else tuple(found.values()), flat
    shape = space.shape or ()
    count = math.prod(shape)
    part = flat[:count].reshape(shape) + getattr(space, "start", 0)
    part = np.asarray(part, space.dtype)
    return part if isinstance(space, spaces.Box) else part[()], flat[count:]
