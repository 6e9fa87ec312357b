"""Actors: one that reads a data set into the table, and one that plays the environment by the policy."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from reverie.agents.acting import Choice, ReplayActor
from reverie.agents.continuous import ActionScale
from reverie.agents.core import ActorRole, Crash, Stopwatch, WeightSource
from reverie.agents.environments import EnvSpec, UnsupportedEnvironmentError
from reverie.agents.iql.config import IqlConfig
from reverie.agents.iql.networks import GreedyPolicy
from reverie.agents.observations import pack, part_of
from reverie.agents.replay import TABLE
from reverie.errors import DeadlineExceededError
from reverie.integrations.datasets import Source, open_dataset
from reverie.integrations.datasets.importing import Append, appends


class Player(ReplayActor):
    """Plays the environment by draws from the policy."""

    def __init__(
        self, spec: EnvSpec, config: IqlConfig, client: Any, weights: WeightSource, **role: Unpack[ActorRole]
    ) -> None:
        self._policy = GreedyPolicy(spec, config)
        super().__init__(spec, config, client, weights, self._policy, **role)
        self._scale = ActionScale(spec)

    def _choose(self, obs: NDArray[Any]) -> Choice:
        actions = self._policy.noisy(obs, self._rng)
        return Choice(actions, self._scale.to_env(actions))


class Reader:
    """Reads the data set row by row into the table, in its order; after the last row it begins again.

    The table keeps the newest items, so that with a capacity of all it has each row once, or a few of them twice while
    they are read again. Returns are those of the data set's episodes.
    """

    def __init__(
        self,
        spec: EnvSpec,
        config: IqlConfig,
        client: Any,
        weights: WeightSource,
        *,
        index: int,
        seed: int,
        watch: Stopwatch,
    ) -> None:
        if index != 0:
            raise ValueError(f"actor {index} of 1: the index must lie in [0, 1)")
        self.env_steps = 0
        """Rows read so far."""
        self._spec, self._watch, self._weights = spec, watch, weights
        self._discount, self._scale = config.discount, ActionScale(spec)
        self._source = open_dataset(config.dataset)
        _require_fitting(self._source, spec, config)
        self._rows, self._row = appends(self._source), 0
        self._normalises = spec.settings.normalise_rewards
        self._return = self._discounted = 0.0
        self._returns: list[float] = []
        self._max_in_flight = 2 * config.inserts_per_act
        self._writer = client.transition_writer(
            TABLE, n_step=config.n_step, discount=config.discount, autoreset="disabled"
        )

    def act(self) -> int:
        """Read one row and append it; returns 1."""
        with self._watch("read"):
            row = self._next()
        obs, final = self._observation(row.obs), None if row.final_obs is None else self._observation(row.final_obs)
        reward = float(row.reward)
        self._return += reward
        self._discounted = self._discount * self._discounted + reward
        extras: dict[str, Any] = {"weights_version": np.int64(0)}
        if self._normalises:
            extras["discounted_return"] = np.float32(self._discounted)
        with self._watch("append"):
            self._writer.append(
                obs,
                self._scale.from_env(np.asarray(row.action, np.float32)),
                np.float32(reward),
                row.terminated,
                row.truncated,
                final_obs=final,
                extras=extras,
            )
            if row.cut:
                self._writer.end_episodes()
        if row.terminated or row.truncated or row.cut:
            self._returns.append(self._return)
            self._return = self._discounted = 0.0
        self.env_steps += 1
        return 1

    def _next(self) -> Append:
        row = next(self._rows, None)
        if row is None:
            self._rows, self._row = appends(self._source), 0
            row = next(self._rows)
        self._row += 1
        return row

    def _observation(self, observation: Any) -> NDArray[Any]:
        if self._spec.leaves:
            return pack(self._spec.leaves, [np.asarray(part_of(observation, leaf)) for leaf in self._spec.leaves])
        return np.asarray(observation, self._spec.obs_dtype)

    def settle(self, timeout: float | None = None) -> None:
        """Wait until at most the items of two steps are unconfirmed."""
        with self._watch("wait for the table"):
            self._writer.flush(self._max_in_flight, timeout=timeout)

    def drain_crashes(self) -> list[Crash]:
        """No environment, and so none that raised."""
        return []

    def drain_returns(self) -> list[float]:
        """Undiscounted returns of the data set's episodes that were read since the last call."""
        drained, self._returns = self._returns, []
        return drained

    def state_dict(self) -> dict[str, Any]:
        """The number of rows read, and the place in the data set."""
        return {"env_steps": self.env_steps, "row": self._row}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from this place. Only for an actor that has not acted yet."""
        self.env_steps = state["env_steps"]
        for _ in range(state["row"]):
            self._next()

    def close(self) -> None:
        """Close the writer. Items that the table does not accept at once are discarded."""
        with suppress(DeadlineExceededError):
            self._writer.close(timeout=0)


def make_actor(
    spec: EnvSpec, config: IqlConfig, client: Any, weights: WeightSource, *, index: int, seed: int, watch: Stopwatch
) -> Player | Reader:
    """A reader if there is a data set, else a player."""
    kind = Reader if config.dataset else Player
    return kind(spec, config, client, weights, index=index, seed=seed, watch=watch)


def _require_fitting(source: Source, spec: EnvSpec, config: IqlConfig) -> None:
    """Raise `UnsupportedEnvironmentError` for a data set with other shapes, ValueError for one that does not fit."""
    columns = {name: tuple(one.shape) for name, one in source.columns.items()}
    wanted = {"action": (spec.action_size,)} | ({} if spec.leaves else {"obs": spec.obs_shape})
    for name, shape in wanted.items():
        if name in columns and columns[name] != shape:
            raise UnsupportedEnvironmentError(
                f"{source.path} has {name} of shape {columns[name]}, and {spec.env_id} has {shape}: name a data set of"
                " this environment"
            )
    if source.num_rows is not None and source.num_rows > config.capacity:
        raise ValueError(
            f"capacity is {config.capacity}, and {source.path} has {source.num_rows} rows: with less, the first rows"
            " would leave the table before the last ones are in it"
        )
