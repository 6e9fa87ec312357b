"""An actor that reads a data set into the replay table, for agents that learn without an environment to play."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from reverie.agents.core import EnvironmentCrash, Stopwatch, WeightSource
from reverie.agents.dataset_columns import FIRST_ROWS, RowReader, require_columns, warn_of_unread
from reverie.agents.environments import EnvSpec
from reverie.agents.error_places import warn
from reverie.agents.outcomes import NO_WEIGHTS
from reverie.agents.replay import TABLE, ReplaySettings
from reverie.agents.settings import PAIRS
from reverie.errors import DeadlineExceededError
from reverie.integrations.datasets import DatasetError, DatasetSource, open_dataset
from reverie.integrations.datasets.transitions import (
    FLAGS,
    Append,
    appends,
    next_name_of,
    num_breaks,
    num_transitions,
)

EXPLORATION = (
    *("epsilon_start", "epsilon_end", "epsilon_steps", "random_hold"),
    *("random_steps", "noise_theta", "noise_theta_steps", "weights_period"),
)
"""Settings of actors that play the environment."""


@dataclass(frozen=True, kw_only=True)
class DatasetSettings(ReplaySettings):
    """Settings of agents that can learn from a data set. Steps of such a run are rows that were read of it."""

    dataset: str = ""
    """A data set as `reverie.integrations.datasets.open_dataset` reads it, with the columns `obs`, `action`, `reward`
    and `terminated`, its observations and actions as the environment has them (others are refused; continuous actions
    outside of its bounds are clipped, with a warning). Then only evaluations play the environment, and
    the settings of exploration and `weights_period` have no effect. Without one, actors play it by the policy, as
    fine-tuning after a run from a data set does."""
    dataset_rename: tuple[str, ...] = ()
    """New names of the data set's columns, each as `old=new`: `["observations=obs", "done=terminated"]`. In
    Python also a dict. For Parquet and LeRobot."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for one in self.dataset_rename:
            if not all(one.partition("=")):
                raise ValueError(
                    f"dataset_rename has {one!r}, and each must be old=new, such as {PAIRS['dataset_rename']}"
                )
        if self.dataset and (self.num_actors, self.envs_per_actor) != (1, 1):
            raise ValueError(
                f"num_actors is {self.num_actors} and envs_per_actor {self.envs_per_actor}: a dataset is read by one"
                " actor, so that both must be 1"
            )

    def without_effect(self) -> dict[str, str]:
        """Adds `dataset_rename` if there is no data set, and the settings of exploration if there is one."""
        own = {one.name for one in fields(self)}.intersection(EXPLORATION)
        idle = dict.fromkeys(own, "a dataset is read") if self.dataset else {"dataset_rename": "dataset is empty"}
        return {**super().without_effect(), **idle}

    def require_files(self, spec: EnvSpec, *, elsewhere: bool) -> None:
        """Also checks the data set: raises as `opened` does, and if it does not fit. Reads no rows of most files."""
        super().require_files(spec, elsewhere=elsewhere)
        if self.dataset and not (elsewhere and not os.path.exists(self.dataset)):
            _require_fitting(self.opened(), spec, self)

    def opened(self, columns: Sequence[str] | None = None) -> DatasetSource:
        """The data set, with its columns under their new names, or some of them. Raises as `open_dataset` does."""
        names = (one.partition("=") for one in self.dataset_rename)
        try:
            return open_dataset(self.dataset, columns=columns, rename={old: new for old, _, new in names} or None)
        except FileNotFoundError as error:
            text = "the setting dataset names no file or folder"
            raise FileNotFoundError(errno.ENOENT, text, self.dataset) from error


class DatasetReader:
    """Reads the data set row by row into the table, in its order; after the last row it begins again.

    The table keeps the newest items, so that with a capacity of all it has each row once, or a few of them twice while
    they are read again. Returns are those of the data set's episodes.
    """

    def __init__(
        self,
        spec: EnvSpec,
        config: DatasetSettings,
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
        self._discount, self._bound = config.discount, spec.reward_bound
        self._source = config.opened()
        _require_fitting(self._source, spec, config)
        warn_of_unread(self._source, spec)
        _warn_of_breaks(self._source, config.n_step, normalises=spec.settings.normalise_rewards)
        self._reader = RowReader(spec, self._source)
        self._rows, self._row = appends(self._source), 0
        self._normalises = spec.settings.normalise_rewards
        self._return = self._discounted = 0.0
        self._sums: deque[tuple[float, float]] = deque(maxlen=config.n_step)
        """Both sums before each of the episode's last rows, whose items need rows that are not read yet."""
        self._again = 0
        """Rows that an earlier reader read, whose items are still to be written."""
        self._returns: list[float] = []
        self._max_in_flight = 2 * config.inserts_per_act
        self._writer = client.transition_writer(
            TABLE, n_step=config.n_step, discount=config.discount, autoreset="disabled"
        )

    def act(self) -> int:
        """Read one row and append it; returns 1."""
        for _ in range(self._again):
            self._append()
        self._again = 0
        self._append()
        self.env_steps += 1
        return 1

    def _append(self) -> None:
        with self._watch("read"):
            row = self._next()
        self._sums.append((self._return, self._discounted))
        obs, reward = self._reader.observation(row.obs, row.row), self._reader.reward(row.reward, row.row)
        final = None
        if row.final_obs is not None:
            final = obs if row.final_obs is row.obs else self._reader.observation(row.final_obs, row.final_row)
        self._return += reward
        if self._bound is not None:
            reward = min(max(reward, -self._bound), self._bound)
        self._discounted = self._discount * self._discounted + reward
        extras: dict[str, Any] = {"weights_version": np.int64(NO_WEIGHTS)}
        if self._normalises:
            extras["discounted_return"] = np.float32(self._discounted)
        with self._watch("append"):
            self._writer.append(
                obs,
                self._reader.action(row.action, row.row),
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
            self._sums.clear()

    def _next(self) -> Append:
        row = next(self._rows, None)
        if row is None:
            self._reader.report_clipped()
            self._rows, self._row = appends(self._source), 0
            row = next(self._rows)
        self._row += 1
        return row

    def settle(self, timeout: float | None = None) -> None:
        """Wait until at most the items of two steps are unconfirmed."""
        with self._watch("wait for the table"):
            self._writer.flush(self._max_in_flight, timeout=timeout)

    def drain_crashes(self) -> list[EnvironmentCrash]:
        """No environment, and so none that raised."""
        return []

    def drain_returns(self) -> list[float]:
        """Undiscounted returns of the data set's episodes that were read since the last call."""
        drained, self._returns = self._returns, []
        return drained

    def state_dict(self) -> dict[str, Any]:
        """The number of rows read, and the place in the data set of the first row whose item is not written yet."""
        row, sums = self._row - len(self._sums), [*self._sums, (self._return, self._discounted)]
        return {"env_steps": self.env_steps, "row": row, "again": self._again + len(self._sums), "sums": list(sums[0])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from this place. Only for an actor that has not acted yet."""
        self.env_steps, self._again = state["env_steps"], state["again"]
        self._return, self._discounted = state["sums"]
        for _ in range(state["row"]):
            self._next()

    def close(self) -> None:
        """Close the writer. Items that the table does not accept at once are discarded."""
        self._reader.report_clipped()
        with suppress(DeadlineExceededError):
            self._writer.close(timeout=0)


def _warn_of_breaks(source: DatasetSource, n_step: int, *, normalises: bool) -> None:
    """Issue a `TrainingWarning` if returns end where the next row does not go on, and a setting depends on them."""
    breaks = num_breaks(source, FIRST_ROWS) if n_step > 1 or normalises else 0
    if breaks:
        effects = [f"they have fewer steps than n_step={n_step}"] if n_step > 1 else []
        effects += ["normalise_rewards divides by the deviation of returns that are too short"] if normalises else []
        warn(
            f"{source.path}: after {breaks} of the first {FIRST_ROWS:,} rows the next row does not begin with their"
            f" {next_name_of(source)}: they end episodes and so returns, and {' and '.join(effects)}"
        )


def _require_fitting(source: DatasetSource, spec: EnvSpec, config: DatasetSettings) -> None:
    """Raise `UnsupportedEnvironmentError` for columns of another environment, DatasetError for too many items."""
    require_columns(source, spec)
    if source.num_rows is None or source.num_rows <= config.capacity:
        return
    flags = [one for one in FLAGS if one in source.columns]
    items = source.num_rows if next_name_of(source) else num_transitions(config.opened(columns=flags))
    if items > config.capacity:
        raise DatasetError(
            f"capacity is {config.capacity}, and {source.path} has {source.num_rows} rows, which make {items} items:"
            f" with less, the first ones would leave the table before the last ones are in it; set capacity={items}"
        )
