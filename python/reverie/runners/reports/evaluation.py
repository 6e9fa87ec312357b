"""The greedy evaluator: separate from the actors, with its own seeds, which are the same in every run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reverie.agents.core import Crash, EnvironmentCrashedError
from reverie.agents.environments import EnvSpec, make_one
from reverie.agents.episodes import Episodes


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

    @property
    def mean_return(self) -> float:
        """The mean over the episodes."""
        return float(np.mean(self.returns))

    @property
    def num_episodes(self) -> int:
        """The number of episodes."""
        return len(self.returns)


class Evaluator:
    """Runs evaluations in environments that it makes once. Not thread-safe."""

    def __init__(self, env: EnvSpec | str, num_envs: int) -> None:
        """`env` is a description (`Topology.env`, `TrainedPolicy.spec`), or the id of an environment as it is."""
        self._env = env
        self._envs = [make_one(env) for _ in range(num_envs)]

    def evaluate(
        self,
        policy: Callable[[NDArray[Any]], NDArray[Any]],
        seeds: Sequence[int],
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Evaluation:
        """Play one episode per seed in lockstep; `policy` gets the observations of running episodes, `[n, ...]`.

        A policy with a state (`agents.core.RecurrentPolicy`) begins each episode with a new one. `meanwhile` is called
        before every step; it may raise, which ends the evaluation.

        Raises ValueError for no seeds or more than environments, and `EnvironmentCrashedError` if an environment
        raises, with the episode's seed and step (0: its reset); all environments are made again then.
        """
        if not 0 < len(seeds) <= len(self._envs):
            raise ValueError(f"{len(seeds)} seeds for {len(self._envs)} environments; give 1 to {len(self._envs)}")
        observations = []
        for env, seed in zip(list(self._envs), seeds, strict=False):
            try:
                observations.append(env.reset(seed=seed)[0])
            except Exception as error:
                raise self._crashed(seed, 0, error) from error
        returns = [0.0] * len(seeds)
        running, steps, episodes = list(range(len(seeds))), 0, Episodes(policy, len(seeds))
        while running:
            meanwhile()
            actions = episodes.actions(np.stack([observations[i] for i in running]), running)
            still = []
            steps += 1
            for i, action in zip(running, actions, strict=True):
                try:
                    observations[i], reward, terminated, truncated, _ = self._envs[i].step(action)
                except Exception as error:
                    raise self._crashed(seeds[i], steps, error) from error
                returns[i] += float(reward)
                if not (terminated or truncated):
                    still.append(i)
            running = still
        return Evaluation(tuple(seeds), tuple(returns))

    def _crashed(self, seed: int, step: int, error: Exception) -> EnvironmentCrashedError:
        """Make all environments again; returns the error to raise."""
        for i, env in enumerate(self._envs):
            with suppress(Exception):  # one that raised may do so again
                env.close()
            self._envs[i] = make_one(self._env)
        env_id = self._env if isinstance(self._env, str) else self._env.env_id
        return EnvironmentCrashedError(Crash(env_id, seed, step, f"{type(error).__name__}: {error}"), 1)

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()
