"""An actor: a vector of environments, the newest weights, and a writer that turns steps into items."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reverie.agents.apex_dqn.config import TABLE, ApexDqnConfig, epsilon_alone, epsilon_ladder
from reverie.agents.apex_dqn.networks import GreedyPolicy
from reverie.agents.core import Stopwatch, WeightSource, seed_of
from reverie.agents.environments import EnvSpec, make_vector
from reverie.errors import DeadlineExceededError


class Actor:
    """Explores by its own rungs of the ladder, and sends priorities from the q-values that it computed to act.

    One forward pass a step serves three ends: the action, q(s, a) of the step that starts here, and max q(s) for the
    step that ended here n steps on. The reset step after an episode's end passes the true last observation through the
    network, so that a truncated episode bootstraps from it.
    """

    def __init__(
        self,
        spec: EnvSpec,
        config: ApexDqnConfig,
        client: Any,
        weights: WeightSource,
        *,
        index: int,
        seed: int,
        watch: Stopwatch,
    ) -> None:
        if not 0 <= index < config.num_actors:
            raise ValueError(f"actor {index} of {config.num_actors}: the index must lie in [0, {config.num_actors})")
        n = config.envs_per_actor
        total = config.num_actors * n
        self.epsilons = epsilon_ladder(total, config.epsilon_base, config.epsilon_alpha)[index * n : (index + 1) * n]
        self._alone = total == 1
        self._config, self._weights, self._watch = config, weights, watch
        self._num_actions = spec.num_actions or 0
        self._policy = GreedyPolicy(spec, config)
        self._rng = np.random.default_rng(seed_of(seed, 0))
        self._envs = make_vector(spec.env_id, n)
        self._writer = client.transition_writer(
            TABLE,
            n_step=config.n_step,
            discount=config.discount,
            num_envs=n,
            autoreset="next_step",
            priority_eps=config.priority_eps,
        )
        self._obs, _ = self._envs.reset(seed=seed_of(seed, 1) >> 32)
        self._resets = np.zeros(n, dtype=bool)
        self._running = np.zeros(n)
        self._returns: list[float] = []
        self._rows = np.arange(n)
        self._version = np.full(n, -1, dtype=np.int64)
        self._acts = 0
        self._env_steps = 0

    def act(self) -> int:
        """One step of every environment; how many were steps of an episode. Waits where the table's limiter does."""
        obs, resets = self._obs, self._resets
        with self._watch("act"):
            if self._acts % self._config.weights_period == 0:
                self._pull()
            self._acts += 1
            q = self._policy.q_values(obs)
            actions = self._explore(q.argmax(axis=1))
        with self._watch("env step"):
            self._obs, reward, terminated, truncated, _ = self._envs.step(actions)
        with self._watch("append"):
            self._writer.append(
                obs,
                actions,
                reward.astype(np.float32),
                terminated,
                truncated,
                q_taken=q[self._rows, actions],
                bootstrap_value=q.max(axis=1),
                extras={"weights_version": self._version},
            )
        return self._count(resets, reward, terminated | truncated)

    def drain_returns(self) -> list[float]:
        """Undiscounted returns of the episodes that ended since the last call, exploration included."""
        drained, self._returns = self._returns, []
        return drained

    def close(self) -> None:
        """Close the environments and the writer.

        Tails of episodes that the table does not take at once are dropped: a closing actor must not wait for a learner
        that is gone.
        """
        self._envs.close()
        with suppress(DeadlineExceededError):
            self._writer.close(timeout=0)

    def _pull(self) -> None:
        newer = self._weights.latest(int(self._version[0]))
        if newer is not None:
            self._policy.load(newer)
            self._version = np.full_like(self._version, newer.version)

    def _explore(self, greedy: NDArray[np.int64]) -> NDArray[np.int64]:
        epsilons = epsilon_alone(self._env_steps, self._config) if self._alone else self.epsilons
        random = self._rng.integers(self._num_actions, size=len(greedy))
        return np.where(self._rng.random(len(greedy)) < epsilons, random, greedy)

    def _count(self, resets: NDArray[np.bool_], reward: NDArray[Any], done: NDArray[np.bool_]) -> int:
        self._running += np.where(resets, 0.0, reward)
        if done.any():
            self._returns.extend(self._running[done].tolist())
            self._running[done] = 0.0
        self._resets = done
        stepped = len(resets) - int(resets.sum())
        self._env_steps += stepped
        return stepped
