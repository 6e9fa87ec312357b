"""`FirstStepChecked`: checks the first reset and step of an environment against its spaces and Gymnasium's interface.

Later ones are looked at only where something failed: an environment that does not follow the interface usually does so
from the first step on.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np

from reverie.agents.env_errors import UnsupportedEnvironmentError
from reverie.agents.observations import ObservationLeaf, inexact, part_of, unknown_category

_LOG = logging.getLogger("reverie")
MASK = "action_mask"
"""The key of an info, or of a Dict observation, with which environments of other libraries mark legal actions."""
_masked: set[str] = set()
"""Environments whose masks were reported in this process."""

RESET = "(observation, info)"
STEP = "(observation, reward, terminated, truncated, info)"


class FirstStepChecked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose first reset and step raise `UnsupportedEnvironmentError` for what agents cannot use.

    `leaves` are those of its observation space. `make` makes the environment again: if a wrapper, such as Gymnasium's
    time limit, cannot read what the environment returns, another one is asked for it without its wrappers.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        env_id: str,
        leaves: tuple[ObservationLeaf, ...],
        make: Callable[[], gymnasium.Env[Any, Any]],
    ) -> None:
        super().__init__(env)
        self._env_id, self._leaves, self._make = env_id, leaves, make
        self._is_reset = self._has_stepped = False
        self._last: Any = None
        """The values that the last reset or step returned, for `last_mistake`."""

    def last_mistake(self) -> str | None:
        """The form of the last observation, if it is not one of its space; otherwise None."""
        if not isinstance(self._last, tuple) or not self._last:
            return None
        return self._mistake(self._last[0])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode."""
        if self._is_reset:
            self._last = later = self.env.reset(seed=seed, options=options)
            return later
        try:
            returned: Any = self.env.reset(seed=seed, options=options)
        except (TypeError, ValueError) as error:
            self._explain_reset(seed, error)
            raise
        observation, info = self._parts("reset", returned, RESET)
        self._check_observation("reset", observation)
        report_masks(self._env_id, info, self._leaves)
        self._is_reset = True
        return returned  # type: ignore[no-any-return]

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one step."""
        if self._has_stepped:
            self._last = later = self.env.step(action)
            return later
        try:
            returned: Any = self.env.step(action)
        except (TypeError, ValueError):
            for one in self._returned_without_wrappers(None)[1:]:
                self._parts("step", one, STEP)
            raise
        observation, reward, terminated, truncated, info = self._parts("step", returned, STEP)
        self._check_observation("step", observation)
        if not _is_number(reward):
            raise self._error("step", f"the reward {_shown(reward)}, and it must be a number")
        for name, value in (("terminated", terminated), ("truncated", truncated)):
            if not _is_number(value):
                raise self._error("step", f"{name} as {_shown(value)}, and it must be true or false")
        report_masks(self._env_id, info)
        self._has_stepped = True
        return returned  # type: ignore[no-any-return]

    def _explain_reset(self, seed: int | None, error: Exception) -> None:
        """Raise the error for users if the reset has another form than Gymnasium's."""
        for one in self._returned_without_wrappers(seed)[:1]:
            self._parts("reset", one, RESET)
        try:
            inspect.signature(type(self.env.unwrapped).reset).bind(self.env.unwrapped, seed=seed, options=None)
        except TypeError:
            raise UnsupportedEnvironmentError(
                f"reset of {self._env_id} takes no seed and options, as in the interface of gym before 0.26: define"
                f" reset(self, *, seed=None, options=None), which returns {RESET}"
            ) from error

    def _returned_without_wrappers(self, seed: int | None) -> list[Any]:
        """The values that the reset and a step of another such environment return, until one raises."""
        returned: list[Any] = []
        try:
            with closing(self._make()) as another:
                own: Any = another.unwrapped
                returned.append(own.reset(seed=seed, options=None))
                returned.append(own.step(own.action_space.sample()))
        except Exception:  # the error of the environment in use is the one to report
            return returned
        return returned

    def _parts(self, method: str, returned: Any, form: str) -> tuple[Any, ...]:
        count = form.count(",") + 1
        if not isinstance(returned, tuple):
            raise self._error(method, f"a {type(returned).__name__}, and must return {form}")
        if len(returned) != count:
            raise self._error(method, f"{len(returned)} values, and must return {form}")
        if not isinstance(returned[-1], dict):
            raise self._error(method, f"info as {_shown(returned[-1])}, and must return {form}, info as a dict")
        return returned

    def _check_observation(self, method: str, observation: Any) -> None:
        mistake = self._mistake(observation)
        if mistake is not None:
            raise self._error(method, f"{mistake}: make them equal")

    def _mistake(self, observation: Any) -> str | None:
        """The form, or the category, of an observation that is not of its space, and that of the space; else None."""
        for leaf in self._leaves:
            what = "an observation" if not leaf.path else f"an observation whose {leaf.name} is"
            try:
                part = np.asarray(part_of(observation, leaf))
            except (KeyError, IndexError, TypeError, ValueError):
                return f"{_shown(observation)} as an observation, and its space has {leaf.name}"
            if part.shape != leaf.shape and not (leaf.shape == () and part.size == 1):
                return f"{what} of shape {part.shape}, and its observation_space has {leaf.shape}"
            if part.dtype.kind not in "biuf":
                return f"{what} of dtype {part.dtype}, and it must consist of numbers"
            if (number := inexact(leaf.dtype, part)) is not None:
                return f"{what} of {part.dtype} with {number!s}, and its observation_space has {leaf.dtype}"
            if (unknown := unknown_category(leaf, part.reshape(leaf.shape))) is not None:
                category, first, last = unknown
                return f"{what} of category {category}, and its observation_space has {first} to {last}"
        return None

    def _error(self, method: str, what: str) -> UnsupportedEnvironmentError:
        return UnsupportedEnvironmentError(f"{method} of {self._env_id} returns {what}")


def report_masks(env_id: str, info: Mapping[str, Any], leaves: tuple[ObservationLeaf, ...] = ()) -> None:
    """Warn, once in this process, of an environment that marks legal actions in its info or its observations."""
    if env_id in _masked or not (MASK in info or any(MASK in leaf.path for leaf in leaves)):
        return
    _masked.add(env_id)
    _LOG.warning(
        "%s has an %s, which no agent here obeys: each action of the space may be chosen. If the environment raises for"
        " an illegal one, let it take a legal one in its place, or end the episode with a penalty",
        env_id,
        MASK,
    )


def _is_number(value: Any) -> bool:
    """Whether this is one number or boolean, of Python, NumPy or another library."""
    if isinstance(value, str | bytes) or getattr(value, "ndim", False):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _shown(value: Any) -> str:
    if isinstance(value, Mapping) and value:
        return f"a {type(value).__name__} with {' and '.join(map(str, value))}"
    shape = getattr(value, "shape", None)
    return repr(value) if not shape else f"a {type(value).__name__} of shape {tuple(shape)}"
