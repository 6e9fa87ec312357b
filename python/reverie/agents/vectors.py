"""Environments that are vectors already: factories of `gymnasium.vector.VectorEnv`, and their autoreset modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from reverie.agents import env_plugins
from reverie.agents.env_errors import UnsupportedEnvironmentError
from reverie.agents.env_ids import id_and_options, maker_of, without_options
from reverie.agents.env_settings import EnvSettings
from reverie.agents.first_step import report_masks
from reverie.agents.named_parts import PartError, load_part, resolve
from reverie.agents.observations import UnsupportedSpaceError, inexact, leaves_of, pack, part_of, row_space
from reverie.agents.wrapper_checks import require_shared_statistics

SUCCESS = ("is_success", "success")
"""Keys of the info of an episode's last step that report its success, in the order in which they are looked for."""
VectorFactory = Callable[..., "VectorEnv[Any, Any, Any]"]
"""A function or class that makes a vector: `make(num_envs=8)`. If it has a parameter `seed`, it is called again for
each reset with a seed, as libraries need that take seeds only then; if it has `render_mode`, it gets "rgb_array" for
pictures."""


@dataclass(frozen=True)
class VectorSource:
    """The maker of the vectors that an id names."""

    env_id: str
    factory: VectorFactory
    settings: EnvSettings
    parameters: frozenset[str]
    """The ones among `seed`, `render_mode` and `max_episode_steps` that the factory takes."""

    @property
    def seeds_at_creation(self) -> bool:
        """Whether a reset with a seed makes the vector again."""
        return "seed" in self.parameters

    def make(self, num_envs: int, *, seed: int | None = None, render: bool = False) -> VectorEnv[Any, Any, Any]:
        """A vector with its wrappers. Raises `UnsupportedEnvironmentError` for one that agents cannot step."""
        options: dict[str, Any] = {"num_envs": num_envs}
        if self.seeds_at_creation and seed is not None:
            options["seed"] = seed
        if render and "render_mode" in self.parameters:
            options["render_mode"] = "rgb_array"
        if self.settings.time_limit is not None:
            options["max_episode_steps"] = self._time_limit(self.settings.time_limit)
        if self.settings.frame_stack is not None:
            raise UnsupportedEnvironmentError(
                f"frame_stack is {self.settings.frame_stack}, and {self.env_id} is a vector of environments already:"
                " let it stack frames itself, or leave frame_stack out"
            )
        made = self.factory(**options)
        try:
            self._check(made, num_envs)
            for reference in self.settings.wrappers:
                made = self._wrapped(made, reference)
            require_shared_statistics(self.env_id, made)
            if render and made.render_mode != "rgb_array":
                raise UnsupportedEnvironmentError(
                    f"{self.env_id} draws no pictures: its factory needs a parameter render_mode"
                )
        except Exception:
            with suppress(Exception):  # the first error is the cause
                made.close()
            raise
        return made

    def _time_limit(self, steps: int) -> int:
        if "max_episode_steps" not in self.parameters:
            raise UnsupportedEnvironmentError(
                f"time_limit is {steps}, and {self.env_id} is a vector of environments whose factory has no parameter"
                " max_episode_steps: set the limit there, or leave time_limit out"
            )
        return steps

    def _check(self, made: object, num_envs: int) -> None:
        if not isinstance(made, VectorEnv):
            raise UnsupportedEnvironmentError(
                f"{self.env_id} returns a {type(made).__name__}, and must return a gymnasium.vector.VectorEnv, since it"
                " takes num_envs: a function that makes single environments has no such parameter, and no **options"
            )
        if made.num_envs != num_envs:
            raise UnsupportedEnvironmentError(
                f"{self.env_id} has {made.num_envs} environments, and was called with num_envs={num_envs}"
            )
        mode_of(made, self.env_id)
        classes = type(made.unwrapped).__mro__
        if not self.seeds_at_creation and any(one.__module__.startswith("envpool.") for one in classes):
            raise UnsupportedEnvironmentError(
                f"{self.env_id} makes environments of EnvPool, which take seeds only when they are made, and has no"
                " parameter seed: add it and pass it on, or name the task as envpool:TASK"
            )

    def _wrapped(self, envs: VectorEnv[Any, Any, Any], reference: str) -> VectorEnv[Any, Any, Any]:
        try:
            part = resolve(reference).part
            if isinstance(part, type) and issubclass(part, gymnasium.Wrapper):
                raise UnsupportedEnvironmentError(
                    f"wrapper {reference!r} is for single environments, and {self.env_id} is a vector of them already:"
                    " name a gymnasium.vector.VectorWrapper, or wrap them in its factory"
                )
            wrapped: object = load_part(reference)(envs)
        except PartError as error:
            raise UnsupportedEnvironmentError(f"wrapper {error}") from error
        except UnsupportedEnvironmentError:
            raise
        except Exception as error:
            raise UnsupportedEnvironmentError(
                f"wrapper {reference!r} cannot wrap {self.env_id}, a vector of environments:"
                f" {type(error).__name__}: {error}"
            ) from error
        if not isinstance(wrapped, VectorEnv):
            raise UnsupportedEnvironmentError(
                f"wrapper {reference!r} returns a {type(wrapped).__name__}, and {self.env_id} is a vector of"
                " environments: it must return a gymnasium.vector.VectorEnv"
            )
        self._check(wrapped, envs.num_envs)
        return wrapped


def mode_of(envs: VectorEnv[Any, Any, Any], env_id: str) -> AutoresetMode:
    """The autoreset mode in the metadata. Raises `UnsupportedEnvironmentError` if there is none."""
    found: object = envs.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(found)
    except ValueError:
        modes = ", ".join(f"AutoresetMode.{one.name}" for one in AutoresetMode)
        raise UnsupportedEnvironmentError(
            f'{env_id} has the metadata["autoreset_mode"] {found!r}, and needs one of {modes}: without it the ends of'
            " episodes are ambiguous"
        ) from None


def source_of(env_id: str, settings: EnvSettings) -> VectorSource | None:
    """The maker of vectors that an id names, or None for an id of single environments.

    `envpool:TASK` is a task of EnvPool. `module:name` may be a factory of vectors (`env_ids.maker_of`). An id that is
    registered with a `vector_entry_point` only is a vector too.
    """
    from reverie.agents import envpool_tasks

    plain = without_options(env_id)
    env_plugins.register_for(plain)
    if plain.startswith("envpool:"):
        return VectorSource(env_id, envpool_tasks.factory_of(env_id), settings, envpool_tasks.PARAMETERS)
    maker = maker_of(env_id)  # imports the module of the id
    if maker is not None:
        if not maker.of_vectors:
            return None
        return VectorSource(env_id, maker.make, settings, maker.parameters & envpool_tasks.PARAMETERS)
    registered = gymnasium.registry.get(plain.rpartition(":")[2])
    if registered is None or registered.entry_point is not None or registered.vector_entry_point is None:
        return None
    own, options = id_and_options(env_id)
    make = partial(gymnasium.make_vec, own, vectorization_mode="vector_entry_point", **options)
    return VectorSource(env_id, make, settings, frozenset())


class OwnVector:
    """A vector of any library as actors step it: observations `[N, ...]` as rows, and copied; actions in its dtype.

    With `same_step` the step that ends an episode returns the first observation of the next one, and the true last one
    as `info["final_obs"]`, as `FrameVector` does: those that reset in the same step, and those that
    do not reset themselves, which are reset here. Otherwise it resets in the next step, whose action it ignores.
    """

    def __init__(self, source: VectorSource, num_envs: int, *, render: bool = False) -> None:
        self._source, self._num_envs, self._render = source, num_envs, render
        self._envs = source.make(num_envs, render=render)
        self._mode = mode_of(self._envs, source.env_id)
        try:
            self.leaves = leaves_of(self._envs.single_observation_space, in_vector=True)
        except UnsupportedSpaceError as error:
            self._envs.close()
            raise UnsupportedEnvironmentError(f"observations of {source.env_id} cannot be read: {error}") from error
        self.same_step = self._mode is not AutoresetMode.NEXT_STEP
        self._action_dtype = self._envs.single_action_space.dtype

    @property
    def envs(self) -> VectorEnv[Any, Any, Any]:
        """The vector itself, which a reset with a seed may replace."""
        return self._envs

    def reset(self, *, seed: int | None = None) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin new episodes; environment i has the seed `seed + i`."""
        if seed is not None and self._source.seeds_at_creation:
            self._envs.close()
            self._envs = self._source.make(self._num_envs, seed=seed, render=self._render)
            seed = None
        observations, info = self._envs.reset(seed=seed)
        report_masks(self._source.env_id, info, self.leaves)
        return self._all_rows("reset", observations), {}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step every environment; returns observations, rewards, terminated, truncated, info."""
        observations, reward, terminated, truncated, info = self._envs.step(
            np.asarray(actions, dtype=self._action_dtype)
        )
        report_masks(self._source.env_id, info)
        rows = self._all_rows("step", observations)
        reward = self._of_all("the reward", np.array(reward, dtype=np.float64))
        terminated = self._of_all("terminated", np.array(terminated, dtype=bool))
        truncated = self._of_all("truncated", np.array(truncated, dtype=bool))
        over = terminated | truncated
        found: dict[str, Any] = {}
        if self._mode is AutoresetMode.SAME_STEP:
            found["final_obs"] = self._with_final(rows, over, info)
        elif self._mode is AutoresetMode.DISABLED:
            found["final_obs"] = rows
            if over.any():
                first = self._rows(self._envs.reset(options={"reset_mask": over.copy()})[0])
                rows = rows.copy()
                rows[over] = first[over]
        final = info.get("final_info")
        ends = final if isinstance(final, Mapping) else info
        found |= {key: ends[key] for key in SUCCESS if key in ends}
        if self.same_step:
            found["life_lost"] = np.zeros_like(over)
        return rows, reward, terminated, truncated, found

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()

    def _all_rows(self, method: str, observations: Any) -> NDArray[Any]:
        """The rows of the observations of all environments, which `method` returned."""
        rows = self._rows(observations)
        if len(rows) != self._num_envs:
            number = f"{self._num_envs} environment{'s' if self._num_envs > 1 else ''}"
            raise UnsupportedEnvironmentError(
                f"{method} of {self._source.env_id} returns {len(rows)} observations, and it has {number}: return one"
                " for each"
            )
        return rows

    def _of_all(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """The values that a step returned for all environments, as an array `[N]`."""
        if values.shape != (self._num_envs,):
            raise UnsupportedEnvironmentError(
                f"step of {self._source.env_id} returns {name} as an array of shape {values.shape}, and must return"
                f" ({self._num_envs},): one for each environment"
            )
        return values

    def _rows(self, observations: Any) -> NDArray[Any]:
        """Observations as rows, without memory of the vector, which may use it again."""
        parts = [np.asarray(part_of(observations, leaf)) for leaf in self.leaves]
        try:
            return pack(self.leaves, parts)
        except ValueError as error:
            for leaf, part in zip(self.leaves, parts, strict=True):
                if part.shape[1:] != leaf.shape:
                    raise ValueError(
                        f"observations of {self._source.env_id} have the shape {part.shape} in {leaf.name}, and its"
                        f" single_observation_space has {leaf.shape}: make them equal"
                    ) from error
                if (number := inexact(leaf.dtype, part)) is not None:
                    raise UnsupportedEnvironmentError(
                        f"{self._source.env_id} returns an observation of {part.dtype} with {number!s} in {leaf.name},"
                        f" and its single_observation_space has {leaf.dtype}: make them equal"
                    ) from error
            raise

    def _with_final(self, rows: NDArray[Any], over: NDArray[np.bool_], info: Mapping[str, Any]) -> NDArray[Any]:
        """The observations `[N, ...]` before any reset."""
        if not over.any():
            return rows
        if "final_obs" not in info:
            raise ValueError(
                f"{self._source.env_id} resets in the same step, and an episode ended without info['final_obs']: its"
                " last observation is lost"
            )
        final, found = rows.copy(), info["final_obs"]
        if isinstance(found, np.ndarray):  # one observation for each environment, or None
            for i in np.flatnonzero(over):
                final[i] = self._rows(found[i])
        else:  # a nest of arrays [N, ...]
            final[over] = self._rows(found)[over]
        return final


class FrameVector:
    """Environments that step together, as `atari.GameVector` does: the newest frames `[N, ...]` of their stacks.

    The step that ends an episode returns the first frame of the next one, and the last frame of the old one as
    `info["final_obs"]` (for other environments: the frame itself). `info["life_lost"]` is false everywhere.
    """

    same_step = True

    def __init__(self, envs: SyncVectorEnv) -> None:
        self._envs = envs

    @property
    def vector(self) -> SyncVectorEnv:
        """The vector itself."""
        return self._envs

    def reset(self, *, seed: int) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin new episodes; environment i has the seed `seed + i`."""
        frames, _ = self._envs.reset(seed=seed)
        return np.asarray(frames), {}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step every environment; returns frames, rewards, terminated, truncated, info."""
        frames, reward, terminated, truncated, info = self._envs.step(actions)
        frames, over = np.asarray(frames), terminated | truncated
        final = frames
        if over.any():
            final = frames.copy()
            for i in np.flatnonzero(over):
                final[i] = info["final_obs"][i]
        return frames, reward, terminated, truncated, {"final_obs": final, "life_lost": np.zeros_like(over)}

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()


class OneOfVector(gymnasium.Env[Any, Any]):
    """A vector of one environment as a single environment, for the evaluator; observations are rows."""

    def __init__(self, source: VectorSource, *, render: bool = False) -> None:
        self._vector = OwnVector(source, 1, render=render)
        envs = self._vector.envs
        self.metadata = {**envs.metadata, "render_modes": ["rgb_array"] if render else []}
        self.render_mode = "rgb_array" if render else None
        self.leaves = self._vector.leaves
        self.observation_space, self.action_space = row_space(self.leaves), envs.single_action_space
        self.own_space = envs.single_observation_space
        """The space of the observations as the vector returns them."""
        self.reward_threshold: float | None = getattr(envs.spec, "reward_threshold", None)
        """The threshold of the library's own specification, if it has one."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode."""
        super().reset(seed=seed)
        return self._vector.reset(seed=seed)[0][0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step; at the end of an episode the observation is its last one."""
        rows, reward, terminated, truncated, info = self._vector.step(np.asarray(action)[None])
        last = info["final_obs"] if self._vector.same_step else rows
        success = {key: info[key][0] for key in SUCCESS if np.asarray(info.get(key)).shape[:1] == (1,)}
        return last[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), success

    def render(self) -> Any:
        """The picture `[H, W, 3]`."""
        pictures = self._vector.envs.render()
        assert pictures is not None
        return pictures[0]

    def close(self) -> None:
        """Close the environment."""
        self._vector.close()
