"""The base class of actors: a vector of environments, the newest weights, and counts."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reverie.agents.core import (
    ActingSettings,
    EnvironmentCrash,
    EnvironmentCrashedError,
    Policy,
    Stopwatch,
    WeightSource,
    seed_of,
)
from reverie.agents.env_errors import UnsupportedEnvironmentError
from reverie.agents.environments import EnvSpec, make_vector
from reverie.agents.error_places import place_of
from reverie.agents.step_checks import InvalidStepError, StepChecks, require_shapes

CRASHES_IN_A_ROW = 5
"""Crashes, without an episode's end in between, after which an actor raises `EnvironmentCrashedError`."""

Stepped = tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_], NDArray[np.bool_]]


class EnvActor(ABC):
    """Base of actors: steps a vector of environments. Subclasses decide what to do with the steps.

    Raises ValueError for an `index` outside of the settings' `num_actors`.
    """

    NEWEST_FRAMES: ClassVar[bool] = False
    """Whether it takes the newest frame of observations that are stacks, and stacks them itself."""

    def __init__(
        self, spec: EnvSpec, config: ActingSettings, weights: WeightSource, *, index: int, seed: int, watch: Stopwatch
    ) -> None:
        if not 0 <= index < config.num_actors:
            raise ValueError(f"actor {index} of {config.num_actors}: the index must lie in [0, {config.num_actors})")
        n = config.envs_per_actor
        self.num_envs = n
        self.env_steps = 0
        """Steps of episodes so far, in all environments of this actor."""
        self._weights, self._watch = weights, watch
        self._rng = np.random.default_rng(seed_of(seed, 0))
        self._spec, self._step_checks = spec, StepChecks(spec)
        self._envs = self._make_envs()
        self._same_step = bool(getattr(self._envs, "same_step", False))
        """Whether the step that ends an episode returns the next one's first observation, and has the last one as
        `final_obs` in its info. Otherwise the reset is a step of its own."""
        self._info: dict[str, Any] = {}
        """The `info` of the environments' last step."""
        self._acts = 0
        self._crashes: list[EnvironmentCrash] = []
        self._crashed_in_a_row = self._restarts = 0
        self._version = np.full(n, -1, dtype=np.int64)
        self._restored = False
        self._returns: list[float] = []
        self._begin(seed_of(seed, 1) >> 32)

    def _make_envs(self) -> Any:
        return make_vector(self._spec, self.num_envs, newest_frames=self.NEWEST_FRAMES)

    def _begin(self, seed: int) -> None:
        self._seed, self._steps = seed, 0
        self._discounted = np.zeros(self.num_envs)
        try:
            self._obs, _ = self._envs.reset(seed=seed)
        except UnsupportedEnvironmentError:
            raise
        except Exception as error:
            require_shapes(self._spec.env_id, self._envs, seed=seed, step=0, error=error)
            crash = EnvironmentCrash(self._spec.env_id, seed, 0, place_of(error))
            raise EnvironmentCrashedError(crash, 1) from error
        self._resets = np.zeros(self.num_envs, dtype=bool)
        """Environments whose next step is a reset and not a step of an episode."""
        self._begins = np.ones(self.num_envs, dtype=bool)
        """Environments whose next step begins an episode, or is the reset before it."""
        self._running = np.zeros(self.num_envs)
        self._check(self._obs, self._running)

    @abstractmethod
    def act(self) -> int:
        """Take one step in every environment; returns the number of steps of episodes."""

    def _step(self, actions: NDArray[Any]) -> Stepped | None:
        """Step the environments; returns observations, rewards, terminated, truncated.

        Returns None if one raised. All of them are then made again and start new episodes: a vector in which only some
        environments have stepped has no consistent state. The step that raised gives no transition. Raises
        `InvalidStepError` if a reward or an observation is not finite.
        """
        try:
            self._obs, reward, terminated, truncated, self._info = self._envs.step(actions)
        except UnsupportedEnvironmentError:
            raise
        except Exception as error:
            self._restart(error)
            return None
        self._steps += 1
        self._check(self._obs, reward)
        if self._same_step and self._info["final_obs"] is not self._obs:
            self._check(self._info["final_obs"], reward)
        return self._obs, reward, terminated, truncated

    def _check(self, obs: NDArray[Any], reward: NDArray[Any]) -> None:
        if not self._step_checks.passes(obs, reward):
            self._step_checks.require_finite(obs, reward, self._resets, seed=self._seed, step=self._steps)

    def _restart(self, error: Exception) -> None:
        """Make the environments again. Raises `EnvironmentCrashedError` if that was done as often as it may be.

        Raises `MisshapenStepError` at once where an observation has another shape than its space.
        """
        require_shapes(self._spec.env_id, self._envs, seed=self._seed, step=self._steps + 1, error=error)
        crash = EnvironmentCrash(self._spec.env_id, self._seed, self._steps, place_of(error))
        while True:
            self._count_crash(crash, error)
            with suppress(Exception):  # it is broken, so an error of its `close` is ignored
                self._envs.close()
            self._envs = self._make_envs()
            try:
                self._begin(int(self._rng.integers(2**31)))
                return
            except InvalidStepError:
                raise
            except EnvironmentCrashedError as again:  # of a reset
                crash, error = again.crash, again

    def _count_crash(self, crash: EnvironmentCrash, error: Exception) -> None:
        self._crashes.append(crash)
        self._crashed_in_a_row += 1
        limit = self._spec.settings.max_env_restarts
        if limit is not None and self._restarts >= limit:
            raise EnvironmentCrashedError(crash, self._restarts + 1, max_env_restarts=limit) from error
        if self._crashed_in_a_row >= CRASHES_IN_A_ROW:
            raise EnvironmentCrashedError(crash, self._crashed_in_a_row) from error
        self._restarts += 1

    @abstractmethod
    def settle(self, timeout: float | None = None) -> None:
        """Wait until the table has accepted all but a bounded rest of the written items."""

    def drain_crashes(self) -> list[EnvironmentCrash]:
        """Environments that raised since the last call."""
        drained, self._crashes = self._crashes, []
        return drained

    def drain_returns(self) -> list[float]:
        """Undiscounted returns of the episodes that ended since the last call, exploration included."""
        drained, self._returns = self._returns, []
        return drained

    def state_dict(self) -> dict[str, Any]:
        """Counters and random state. Running episodes are not included: environments cannot be copied."""
        return {
            "random": copy.deepcopy(self._rng.bit_generator.state),
            "acts": self._acts,
            "env_steps": self.env_steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`, with new episodes and seeds. Only for an actor that has not acted yet."""
        self._rng.bit_generator.state = state["random"]
        self._acts, self.env_steps = state["acts"], state["env_steps"]
        self._restored = True
        self._begin(int(self._rng.integers(2**31)))

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()

    def _weights_are_due(self, period: int) -> bool:
        """Whether to ask for newer weights before this act: once in a period, and after a restart until it has any."""
        return self._acts % period == 0 or (self._restored and self._version[0] < 0)

    def _pull(self, policy: Policy) -> bool:
        """Load the newest weights into `policy`; returns False if it has them already."""
        newer = self._weights.latest(int(self._version[0]))
        if newer is None:
            return False
        policy.load(newer)
        self._version = np.full_like(self._version, newer.version)
        return True

    def _bounded(self, reward: NDArray[Any]) -> NDArray[np.float32]:
        """Rewards for learning."""
        bound = self._spec.reward_bound
        return (reward if bound is None else np.clip(reward, -bound, bound)).astype(np.float32)

    def _returns_column(
        self, reward: NDArray[Any], discount: float, ended: NDArray[np.bool_]
    ) -> dict[str, NDArray[np.float32]]:
        """The column `discounted_return` `[N]` of episodes so far, whose deviation normalises rewards; else nothing.

        `ended` are the ends of training episodes, after which the sum begins again.
        """
        if not self._spec.settings.normalise_rewards:
            return {}
        self._discounted = np.where(self._resets, 0.0, discount * self._discounted + self._bounded(reward))
        column = self._discounted.astype(np.float32)
        self._discounted[ended] = 0.0
        return {"discounted_return": column}

    def _count(self, reward: NDArray[Any], done: NDArray[np.bool_]) -> int:
        resets = self._resets
        self._running += np.where(resets, 0.0, reward)
        if done.any():
            self._crashed_in_a_row = 0
            self._returns.extend(self._running[done].tolist())
            self._running[done] = 0.0
        self._begins = done
        self._resets = done & (not self._same_step)
        stepped = len(resets) - int(resets.sum())
        self.env_steps += stepped
        return stepped
