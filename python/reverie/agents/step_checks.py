"""Checks of what environments return: numbers are finite in float32, which networks compute in, and shapes the space's.

Shapes are checked where a step failed, or what was to be computed of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray

from reverie.agents.core import EnvironmentCrash, EnvironmentCrashedError
from reverie.agents.environments import EnvSpec
from reverie.agents.first_step import FirstStepChecked
from reverie.agents.observations import is_mixed
from reverie.agents.vectors import FrameVector

LARGEST = float(np.finfo(np.float32).max)


class InvalidStepError(EnvironmentCrashedError):
    """An environment returned a reward or an observation that is not finite. `.crash` has its own seed and step."""

    def _text(self) -> str:
        crash = self.crash
        return (
            f"{crash.env_id} returned {crash.error} at step {crash.step} from seed {crash.seed}: agents need"
            " finite numbers of float32; correct the environment, or name a wrapper that replaces such numbers"
        )


class MisshapenStepError(InvalidStepError):
    """An environment returned an observation of another form than its space. `.crash` has its own seed and step."""

    def _text(self) -> str:
        crash = self.crash
        return (
            f"{crash.env_id}, at step {crash.step} from seed {crash.seed}, returned {crash.error}: every observation"
            " must be of the space; correct the environment"
        )


def require_shapes(env_id: str, envs: Any, *, seed: int, step: int, error: Exception) -> None:
    """Raise `MisshapenStepError` if `error` came of an observation whose shape is not that of its space.

    `envs` is an environment of `environments.make_one`, or a vector of `make_vector` whose environment i has the seed
    `seed` + i. It looks at the last observations that they returned, and so costs steps that raise nothing no time.
    """
    for i, env in enumerate(_single(envs)):
        wrong = _last_mistake(env)
        if wrong is not None:
            raise MisshapenStepError(EnvironmentCrash(env_id, seed + i, step, wrong), 1) from error


def _single(envs: Any) -> list[gymnasium.Env[Any, Any]]:
    """The environments of a vector that this package makes, or the one; none of vectors of other libraries."""
    envs = envs.vector if isinstance(envs, FrameVector) else envs
    if isinstance(envs, SyncVectorEnv):
        return list(envs.envs)
    return [envs] if isinstance(envs, gymnasium.Env) else []


def _last_mistake(env: gymnasium.Env[Any, Any]) -> str | None:
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, FirstStepChecked):
            return env.last_mistake()
        env = env.env
    return None


class StepChecks:
    """Raises `InvalidStepError` for a reward or an observation of an environment that is not finite in float32."""

    def __init__(self, spec: EnvSpec) -> None:
        self._env_id = spec.env_id
        self._mixed = is_mixed(spec.parts)
        self._has_floats = any(np.dtype(leaf.dtype).kind == "f" for leaf in spec.parts)
        self._columns: list[tuple[str, slice, str]] = []
        """Name, place in rows, and dtype of the floating-point leaves of observations that are rows."""
        start = 0
        for leaf in spec.leaves if len(spec.leaves) > 1 else ():
            width = leaf.num_bytes if self._mixed else leaf.count
            if np.dtype(leaf.dtype).kind == "f":
                self._columns.append((leaf.name, slice(start, start + width), leaf.dtype))
            start += width

    def passes(self, obs: NDArray[Any], reward: NDArray[Any]) -> bool:
        """Whether observations `[N, ...]` and rewards `[N]` are small enough to be finite without a closer look.

        A sum of squares is finite only if all numbers are, and takes less time than `numpy.isfinite`.
        """
        if not _are_small(reward):
            return False
        if self._mixed:
            return all(_are_small(part) for _, part in self._floats(obs))
        return not self._has_floats or _are_small(obs)

    def require_finite(
        self, obs: NDArray[Any], reward: NDArray[Any], resets: NDArray[np.bool_], *, seed: int, step: int
    ) -> None:
        """Raise `InvalidStepError` if an observation is not finite, or a reward that is not of `resets` `[N]`.

        `seed` is that of the vector's last full reset (environment i has `seed` + i), `step` the number of steps since.
        """
        bad = ~_finite(reward) & ~resets
        if bad.any():
            which = int(bad.argmax())
            self._refuse(f"a reward of {reward[which]!s}", seed + which, step)
        if (found := self.not_finite(obs)) is not None:
            which, name, number = found
            self._refuse(f"an observation {f'whose {name} has' if name else 'with'} {number}", seed + which, step)

    def not_finite(self, obs: NDArray[Any]) -> tuple[int, str, str] | None:
        """The first number of observations `[N, ...]` that is not finite; None without one.

        Its observation's number, its part's name (empty for the only part), and itself as text.
        """
        for name, part in self._floats(obs):
            if _are_small(part):
                continue
            bad = ~_finite(part)
            if bad.any():
                first = tuple(np.argwhere(bad)[0])
                return int(first[0]), name, str(part[first])
        return None

    def _floats(self, obs: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
        """The floating-point parts of observations, and their names; the name of the only one is empty."""
        if self._has_floats and not self._columns:
            yield "", obs
        for name, columns, dtype in self._columns:
            part = obs[..., columns]
            yield name, part.view(dtype) if self._mixed else part

    def _refuse(self, what: str, seed: int, step: int) -> NoReturn:
        raise InvalidStepError(EnvironmentCrash(self._env_id, seed, step, what), 1)


def _are_small(values: NDArray[Any]) -> bool:
    if values.dtype == np.float16:  # in which the limit is infinite
        values = values.astype(np.float32)
    return bool(np.vdot(values, values) <= LARGEST)


def _finite(values: NDArray[Any]) -> NDArray[np.bool_]:
    finite: NDArray[np.bool_] = np.abs(values.astype(np.float64)) <= LARGEST
    return finite
