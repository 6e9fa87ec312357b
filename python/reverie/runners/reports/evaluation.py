"""The greedy evaluator: separate from the actors, with its own seeds, which are the same in every run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from reverie import _checks
from reverie.agents.core import EnvironmentCrash, EnvironmentCrashedError
from reverie.agents.env_errors import UnsupportedEnvironmentError
from reverie.agents.env_ids import id_of
from reverie.agents.environments import EnvSpec, describe, make_one
from reverie.agents.episodes import Episodes
from reverie.agents.error_places import place_of
from reverie.agents.step_checks import StepChecks, require_shapes
from reverie.agents.vectors import SUCCESS


def screening_seeds(num_episodes: int) -> tuple[int, ...]:
    """The seeds for every point of a learning curve."""
    return tuple(range(10_000, 10_000 + num_episodes))


def confirmation_seeds(num_episodes: int) -> tuple[int, ...]:
    """The seeds for the result: other episodes, since one good evaluation may be luck."""
    return tuple(range(20_000, 20_000 + num_episodes))


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted returns of whole episodes, one for each seed."""

    seeds: tuple[int, ...]
    returns: tuple[float, ...]
    lengths: tuple[int, ...] = ()
    """Steps of each episode. Empty in results of earlier versions."""
    successes: tuple[bool, ...] | None = None
    """Whether each episode succeeded: `is_success` or `success` in the info of its last step. None if one lacks it."""

    @staticmethod
    def joined(parts: Sequence[Evaluation]) -> Evaluation:
        """The episodes of several, in their order; whether they succeeded, if all parts have it."""
        successes = [one.successes for one in parts if one.successes is not None]
        return Evaluation(
            tuple(seed for one in parts for seed in one.seeds),
            tuple(total for one in parts for total in one.returns),
            tuple(length for one in parts for length in one.lengths),
            tuple(success for one in successes for success in one) if len(successes) == len(parts) else None,
        )

    def head(self, count: int) -> Evaluation:
        """The first episodes of it."""
        successes = None if self.successes is None else self.successes[:count]
        return Evaluation(self.seeds[:count], self.returns[:count], self.lengths[:count], successes)

    @property
    def mean_return(self) -> float:
        """The mean over the episodes."""
        return float(np.mean(self.returns))

    @property
    def num_episodes(self) -> int:
        """The number of episodes."""
        return len(self.returns)

    @property
    def success_rate(self) -> float | None:
        """The share of episodes that succeeded; None where the environment does not report it."""
        return None if self.successes is None else float(np.mean(self.successes))


@dataclass(frozen=True)
class _Episode:
    """The figures of an episode that an evaluation keeps."""

    total: float
    length: int
    success: bool | None


def _success(info: Mapping[str, Any]) -> bool | None:
    """Whether an episode with this last info succeeded: by truth values, 0 or 1. None for anything else."""
    found = next((np.asarray(info[key]) for key in SUCCESS if info.get(key) is not None), None)
    known = found is not None and found.size > 0 and found.dtype.kind in "biuf" and bool(np.isin(found, (0, 1)).all())
    return bool(np.all(found)) if known else None


def _checked_seeds(seeds: Any) -> tuple[int, ...]:
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        raise TypeError(f"seeds is {seeds!r}, and must be one seed for each episode, such as range(30_000, 30_010)")
    found = tuple(_checks.count("seed", seed, 0) for seed in seeds)
    if not found:
        raise ValueError("seeds is empty: give one for each episode")
    return found


class StepRecorder(Protocol):
    """Receives the steps of the episodes of an evaluation, as environments return them: arrays may change later."""

    def begin(self, episode: int, obs: NDArray[Any]) -> None:
        """An episode, by its place among the seeds that are played together, begins with this observation."""

    def step(
        self, episode: int, action: NDArray[Any], reward: float, terminated: bool, truncated: bool, obs: NDArray[Any]
    ) -> None:
        """A step of it, and the observation after it."""


class Evaluator:
    """Runs evaluations in environments that it makes once. Not thread-safe."""

    def __init__(self, env: EnvSpec | str | Callable[..., Any], num_envs: int) -> None:
        """`env` is a description (`Topology.env`, `TrainedPolicy.spec`), or an environment as it is: an id, or a class
        or function that makes one.

        With a description it makes the environment for evaluations: `EnvSettings.evaluation_env`, with the wrappers
        `evaluation_wrappers`, if they are set.

        Raises TypeError for an environment: the evaluator makes its own, `num_envs` of them.
        """
        if not isinstance(env, EnvSpec | str) and not callable(env):
            raise TypeError(
                f"env is {env!r}, and an Evaluator makes its environments itself: give the id of an environment, or the"
                " `spec` of a policy"
            )
        self._env = env.for_evaluation() if isinstance(env, EnvSpec) else describe(id_of(env, "env"))
        self._env_id = self._env.env_id
        self._step_checks = StepChecks(self._env)
        self._envs = [make_one(self._env) for _ in range(_checks.count("num_envs", num_envs, 1))]

    def evaluate(
        self,
        policy: Callable[[NDArray[Any]], NDArray[Any]],
        seeds: Sequence[int],
        meanwhile: Callable[[], object] = lambda: None,
        *,
        recorder: StepRecorder | None = None,
    ) -> Evaluation:
        """Play one episode per seed, as many at a time in lockstep as there are environments.

        `policy` gets the observations of running episodes, `[n, ...]`. A policy with a state
        (`agents.core.RecurrentPolicy`) begins each episode with a new one. `meanwhile` is called before every step; it
        may raise, which ends the evaluation. `recorder` receives the steps.

        Raises TypeError for seeds that are no sequence; ValueError for no seeds, a negative one, and another number of
        actions than of observations; and `EnvironmentCrashedError` if an environment raises, with the episode's seed
        and step (0: its reset); all environments are made again then. It is an `InvalidStepError` for a reward or an
        observation that is not finite, and a `MisshapenStepError` where nothing can be computed of an observation,
        since it is not of its space. An `UnsupportedEnvironmentError` passes.
        """
        seeds, together = _checked_seeds(seeds), len(self._envs)
        played: list[_Episode] = []
        for first in range(0, len(seeds), together):
            played += self._play(policy, seeds[first : first + together], meanwhile, recorder)
        successes = [one.success for one in played if one.success is not None]
        return Evaluation(
            seeds,
            returns=tuple(one.total for one in played),
            lengths=tuple(one.length for one in played),
            successes=tuple(successes) if len(successes) == len(played) else None,
        )

    def _play(
        self,
        policy: Callable[[NDArray[Any]], NDArray[Any]],
        seeds: Sequence[int],
        meanwhile: Callable[[], object],
        recorder: StepRecorder | None,
    ) -> list[_Episode]:
        """Episodes that are played together, one in each environment."""
        observations = []
        for env, seed in zip(list(self._envs), seeds, strict=False):
            try:
                observations.append(env.reset(seed=seed)[0])
            except UnsupportedEnvironmentError:
                raise
            except Exception as error:
                require_shapes(self._env_id, env, seed=seed, step=0, error=error)
                raise self._crashed(seed, 0, error) from error
        if recorder is not None:
            for i, obs in enumerate(observations):
                recorder.begin(i, obs)
        returns = [0.0] * len(seeds)
        ended: dict[int, _Episode] = {}
        running, steps, episodes = list(range(len(seeds))), 0, Episodes(policy, len(seeds))
        rows = self._checked(observations, returns, running, seeds, steps)
        while running:
            meanwhile()
            try:
                actions = episodes.actions(rows, running)
            except Exception as error:
                self._require_shapes(running, seeds, steps, error)
                raise
            _require_one_each(actions, len(running))
            rewards = []
            steps += 1
            for i, action in zip(running, actions, strict=True):
                try:
                    observations[i], reward, terminated, truncated, info = self._envs[i].step(action)
                except UnsupportedEnvironmentError:
                    raise
                except Exception as error:
                    require_shapes(self._env_id, self._envs[i], seed=seeds[i], step=steps, error=error)
                    raise self._crashed(seeds[i], steps, error) from error
                rewards.append(float(reward))
                returns[i] += rewards[-1]
                if recorder is not None:
                    recorder.step(i, action, rewards[-1], bool(terminated), bool(truncated), observations[i])
                if terminated or truncated:
                    ended[i] = _Episode(returns[i], steps, _success(info))
            rows = self._checked(observations, rewards, running, seeds, steps)
            rows = rows[[i not in ended for i in running]]
            running = [i for i in running if i not in ended]
        return [ended[i] for i in range(len(seeds))]

    def _checked(
        self,
        observations: Sequence[NDArray[Any]],
        rewards: Sequence[float],
        running: Sequence[int],
        seeds: Sequence[int],
        step: int,
    ) -> NDArray[Any]:
        """The observations of running episodes as one array, after a step that gave them these rewards.

        Raises `InvalidStepError` for one that is not finite, `MisshapenStepError` for one that is not of its space.
        """
        try:
            rows = np.stack([observations[i] for i in running])
        except Exception as error:
            self._require_shapes(running, seeds, step, error)
            raise
        received = np.array(rewards)
        if not self._step_checks.passes(rows, received):
            for k, i in enumerate(running):
                one = slice(k, k + 1)
                none = np.zeros(1, bool)
                self._step_checks.require_finite(rows[one], received[one], none, seed=seeds[i], step=step)
        return rows

    def _require_shapes(self, running: Sequence[int], seeds: Sequence[int], step: int, error: Exception) -> None:
        for i in running:
            require_shapes(self._env_id, self._envs[i], seed=seeds[i], step=step, error=error)

    def _crashed(self, seed: int, step: int, error: Exception) -> EnvironmentCrashedError:
        """Make all environments again; returns the error to raise."""
        for i, env in enumerate(self._envs):
            with suppress(Exception):  # one that raised may do so again
                env.close()
            self._envs[i] = make_one(self._env)
        return EnvironmentCrashedError(EnvironmentCrash(self._env_id, seed, step, place_of(error)), 1)

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()


def _require_one_each(actions: Any, num_observations: int) -> None:
    """Raise ValueError for another number of actions than of observations."""
    try:
        count = len(actions)
    except TypeError as error:
        raise ValueError(
            f"policy returned {actions!r} for observations [{num_observations}, ...]: return a sequence of"
            " actions, one for each"
        ) from error
    if count != num_observations:
        raise ValueError(
            f"policy returned {count} actions for observations [{num_observations}, ...]: return one for each"
        )
