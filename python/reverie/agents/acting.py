"""The base classes of actors: a vector of environments, the newest weights, and counts."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, ClassVar, Literal, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from reverie.agents.atari import Ends, Lives
from reverie.agents.core import (
    ActingSettings,
    ActorArguments,
    Crash,
    EnvironmentCrashedError,
    Policy,
    Stopwatch,
    WeightSource,
    seed_of,
)
from reverie.agents.env_errors import UnsupportedEnvironmentError
from reverie.agents.environments import EnvSpec, make_vector
from reverie.agents.error_places import place_of
from reverie.agents.hindsight import EpisodeStep, Hindsight, goal_functions
from reverie.agents.inputs import reward_deviation
from reverie.agents.replay import HindsightSettings, ReplaySettings
from reverie.agents.step_checks import InvalidStepError, StepChecks, require_shapes
from reverie.errors import DeadlineExceededError

CRASHES_IN_A_ROW = 5
"""At this number of crashes without an episode's end in between, an actor raises `EnvironmentCrashedError`."""

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
        self._crashes: list[Crash] = []
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
            crash = Crash(self._spec.env_id, seed, 0, place_of(error))
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
        crash = Crash(self._spec.env_id, self._seed, self._steps, place_of(error))
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

    def _count_crash(self, crash: Crash, error: Exception) -> None:
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

    def drain_crashes(self) -> list[Crash]:
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

    def _returns_column(self, reward: NDArray[Any], discount: float) -> dict[str, NDArray[np.float32]]:
        """The column `discounted_return` `[N]` of episodes so far, whose deviation normalises rewards; else nothing."""
        if not self._spec.settings.normalise_rewards:
            return {}
        self._discounted = np.where(self._resets, 0.0, discount * self._discounted + self._bounded(reward))
        return {"discounted_return": self._discounted.astype(np.float32)}

    def _count(self, reward: NDArray[Any], done: NDArray[np.bool_]) -> int:
        resets = self._resets
        self._running += np.where(resets, 0.0, reward)
        if done.any():
            self._crashed_in_a_row = 0
            self._returns.extend(self._running[done].tolist())
            self._running[done] = 0.0
            self._discounted[done] = 0.0
        self._begins = done
        self._resets = done & (not self._same_step)
        stepped = len(resets) - int(resets.sum())
        self.env_steps += stepped
        return stepped


class Choice(NamedTuple):
    """An actor's choice of actions for observations `[N, ...]`."""

    actions: NDArray[Any]
    """In the form for the learner, `[N]` or `[N, A]`."""
    env_actions: NDArray[Any]
    """In the form for the environment."""
    q_taken: NDArray[np.float32] | None = None
    """q(s, a), if the actor computes it for first priorities; then `bootstrap_value` is set, too."""
    bootstrap_value: NDArray[np.float32] | None = None
    """The value of the observations, for items that end in them."""
    unit: float = 1.0
    """The unit of the values, in which first priorities are bounded: the deviation of normalised rewards."""

    def scaled(self, factor: float) -> Choice:
        """The same choice with its values times `factor`, which is their unit."""
        if factor == 1.0 or self.q_taken is None or self.bootstrap_value is None:
            return self
        unit = np.float32(factor)
        return self._replace(q_taken=self.q_taken * unit, bootstrap_value=self.bootstrap_value * unit, unit=factor)


class ReplayActor(EnvActor):
    """Writes n-step items into the replay table. Subclasses choose the actions.

    The reset step after an episode's end is handled like any other: the true last observation passes through the
    network, so that a truncated episode bootstraps from it. Stacks of frames, and vectors that reset in the same step,
    have no reset step: if an episode was truncated, the value of its last observation is computed separately.
    """

    NEWEST_FRAMES = True

    def __init__(
        self,
        spec: EnvSpec,
        config: ReplaySettings,
        client: Any,
        weights: WeightSource,
        policy: Policy,
        *,
        priority_eps: float = 0.0,
        priority_clip: float = 0.0,
        priority: float | Literal["max"] = 1.0,
        **role: Unpack[ActorArguments],
    ) -> None:
        frames = spec.frame_stack is not None
        self._lives = Lives(config.envs_per_actor, spec.obs_shape, spec.obs_dtype) if frames else None
        super().__init__(spec, config, weights, **role)
        self._acting_policy, self._weights_period = policy, config.weights_period
        self._discount = config.discount
        self._max_in_flight = 2 * config.inserts_per_act
        self._hindsight: Hindsight | None = None
        if isinstance(config, HindsightSettings) and config.her:
            goal_functions(self._envs, spec.env_id)  # raises where it has none
            self._hindsight = Hindsight(spec, config, self.num_envs, self._rng)
        self._client, self._table, self._new_priority = client, config.table_of(role["index"]), priority
        self._writer = client.transition_writer(
            self._table,
            n_step=config.n_step,
            discount=config.discount,
            num_envs=self.num_envs,
            autoreset="same_step" if self._same_step else "next_step",
            **({"frame_stack": spec.frame_stack} if frames else {}),
            priority_eps=priority_eps,
            priority_clip=priority_clip or None,
            priority=priority,
        )

    def _begin(self, seed: int) -> None:
        super()._begin(seed)
        if self._lives is not None:
            self._lives.begin(self._obs)

    @abstractmethod
    def _choose(self, obs: NDArray[Any]) -> Choice:
        """Actions for all environments, exploration included."""

    def _values(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Values `[N]` of observations from the acting network; implemented by subclasses that set `q_taken`."""
        raise NotImplementedError

    def act(self) -> int:
        """Take one step in every environment, when the table's limiter allows it; the number of steps of episodes."""
        obs = self._obs
        with self._watch("act"):
            if self._weights_are_due(self._weights_period):
                self._pull(self._acting_policy)
            self._acts += 1
            choice = self._choose(obs if self._lives is None else self._lives.seen)
            deviation = self._reward_deviation(choice)
            choice = choice.scaled(deviation)
        with self._watch("env step"):
            stepped = self._step(choice.env_actions)
        if stepped is None:
            if self._hindsight is not None:
                self._hindsight.abandon()
            self._end_in(obs, choice)
            return 0
        _, reward, terminated, truncated = stepped
        ended, last = self._ends(terminated, truncated, choice, deviation)
        self._append(obs, choice, reward, ended, truncated, **last)
        if self._hindsight is not None:
            with self._watch("append"):
                self._relabel(self._hindsight, obs, choice.actions, reward, terminated, terminated | truncated)
        return self._count(reward, terminated | truncated)

    def _end_in(self, obs: NDArray[Any], choice: Choice) -> None:
        """End all episodes in `obs`, the observations before the step that raised; the writer drops that step.

        The last complete step of each environment ends in them, also one after which it was to be reset.
        """
        none, value = np.zeros(self.num_envs, dtype=bool), choice.bootstrap_value
        last = {"final_obs": obs, "final_value": value} if self._same_step else {}  # which no end reads
        try:
            self._append(obs, choice, np.zeros(self.num_envs), none, none, **last)
        finally:
            self._writer.end_episodes(bootstrap_value=value)

    def _append(self, obs: NDArray[Any], choice: Choice, reward: NDArray[Any], *ends: Any, **last: Any) -> None:
        """Write a step of every environment; `last` are the writer's arguments for `ends`."""
        values: dict[str, Any] = {"q_taken": choice.q_taken, "bootstrap_value": choice.bootstrap_value}
        if choice.unit != 1.0:
            values["priority_unit"] = choice.unit
        extras = {"weights_version": self._version, **self._returns_column(reward, self._discount)}
        with self._watch("append"):
            self._writer.append(obs, choice.actions, self._bounded(reward), *ends, extras=extras, **values, **last)

    def _relabel(
        self,
        hindsight: Hindsight,
        obs: NDArray[Any],
        actions: NDArray[Any],
        reward: NDArray[Any],
        terminated: NDArray[np.bool_],
        ended: NDArray[np.bool_],
    ) -> None:
        """Add the steps of the episodes, and insert the next items with other goals."""
        after = self._info["final_obs"] if self._same_step else self._obs
        functions = goal_functions(self._envs, self._spec.env_id)
        for i in np.flatnonzero(~self._resets):
            step = EpisodeStep(
                obs[i], actions[i], float(reward[i]), after[i], bool(terminated[i]), int(self._version[i])
            )
            hindsight.add(int(i), step, ended=bool(ended[i]), functions=functions)
        items = hindsight.take()
        if items is not None:
            items["reward"] = self._bounded(items["reward"])
            self._client.insert_batch(self._table, items, self._new_priority, wait=False)

    def _ends(
        self, terminated: NDArray[np.bool_], truncated: NDArray[np.bool_], choice: Choice, deviation: float
    ) -> tuple[NDArray[np.bool_], dict[str, Any]]:
        """The ends of training episodes, and the writer's arguments for them."""
        if not self._same_step:
            return terminated, {}
        if self._lives is None:
            ends = Ends(terminated, self._info["final_obs"], self._info["final_obs"][truncated])
        else:
            ends = self._lives.step(self._obs, terminated, truncated, self._info)
        if choice.q_taken is None:
            return ends.terminated, {"final_obs": ends.final_obs}
        values = np.zeros(self.num_envs, dtype=np.float32)
        if truncated.any():
            with self._watch("act"):
                values[truncated] = self._values(ends.truncated_stacks) * deviation
        return ends.terminated, {"final_obs": ends.final_obs, "final_value": values}

    def _reward_deviation(self, choice: Choice) -> float:
        """The unit of the values of a choice: first priorities are in that of the rewards."""
        if choice.q_taken is None or not self._spec.settings.normalise_rewards:
            return 1.0
        return reward_deviation(self._acting_policy.module)

    def settle(self, timeout: float | None = None) -> None:
        """Wait until at most the items of two steps are unconfirmed."""
        with self._watch("wait for the table"):
            self._writer.flush(self._max_in_flight, timeout=timeout)
            if self._hindsight is not None:
                self._client.flush(timeout)

    def close(self) -> None:
        """Close the environments and the writer.

        Tails of episodes that the table does not accept at once are discarded: a closing actor must not wait for a
        learner that has ended.
        """
        super().close()
        with suppress(DeadlineExceededError):
            self._writer.close(timeout=0)
