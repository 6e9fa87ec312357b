"""The base class of actors that put unrolls into a queue."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from reverie.agents.acting import EnvActor
from reverie.agents.actor_critic import SoftmaxPolicy, draw, log_pi_taken
from reverie.agents.core import ActingSettings, Stopwatch, WeightSource
from reverie.agents.environments import EnvSpec
from reverie.errors import DeadlineExceededError

Columns = dict[str, NDArray[Any]]


class UnrollRows:
    """Rows of N environments that become unrolls of T rows. Environments may add unequal numbers of rows.

    Rows of an environment whose unroll is full are left out until those of all are.
    """

    def __init__(self, num_envs: int, length: int) -> None:
        self._num_envs, self._length = num_envs, length
        self._columns: Columns = {}
        self._after: NDArray[Any] = np.empty(0)
        self.clear()

    @property
    def full(self) -> bool:
        """Whether every environment has T rows."""
        return bool((self._count == self._length).all())

    @property
    def empty(self) -> bool:
        """Whether no environment has a row."""
        return not self._count.any()

    def clear(self) -> None:
        """Discard all rows."""
        self._count = np.zeros(self._num_envs, dtype=np.int64)
        self._columns = {}

    def add(self, row: Columns, after: NDArray[Any], which: NDArray[np.bool_] | None = None) -> None:
        """Add one row to each environment of `which` `[N]` (all).

        `row` has columns `[which.sum(), ...]`; `after` `[N, ...]` are the observations that follow it.
        """
        if not self._columns:
            n, t = self._num_envs, self._length
            self._columns = {name: np.empty((n, t, *one.shape[1:]), one.dtype) for name, one in row.items()}
            self._after = np.empty_like(after)
        wanted = np.ones(self._num_envs, dtype=bool) if which is None else which
        room = wanted & (self._count < self._length)
        places, at = np.flatnonzero(room), self._count[room]
        for name, one in row.items():
            self._columns[name][places, at] = one[room[wanted]]
        self._count[room] += 1
        done = room & (self._count == self._length)
        self._after[done] = after[done]

    def take(self) -> tuple[Columns, NDArray[Any]]:
        """The unrolls `[N, T, ...]` and the observations `[N, ...]` after them; begins new ones."""
        taken = self._columns, self._after
        self.clear()
        return taken


class UnrollSettings(ActingSettings, Protocol):
    """The settings that an actor with unrolls needs from its agent."""

    @property
    def unroll_length(self) -> int:
        """T: steps of every environment in an item."""

    @property
    def discount(self) -> float:
        """The discount of a step that does not terminate the episode."""


class UnrollActor(EnvActor):
    """Draws actions from the policy, and puts unrolls of T steps into a queue, one item per environment.

    Columns: `obs` `[T, ...]`, `action` (`[T, A]` of vectors of choices), `log_pi` (of the action drawn), `value`,
    `reward`, `discount` (0 where the episode terminated), `ended` (terminated or truncated), `is_step` (False for the
    reset after an end) and `weights_version`, all `[T]`; where rewards are normalised also `discounted_return`.
    In a vector that resets in the same step, the row of the reset is made here: unrolls are the same for every vector.
    Subclasses decide when to pull weights, and make the item from these columns.
    """

    def __init__(
        self,
        spec: EnvSpec,
        config: UnrollSettings,
        client: Any,
        weights: WeightSource,
        policy: SoftmaxPolicy,
        table: str,
        *,
        index: int,
        seed: int,
        watch: Stopwatch,
    ) -> None:
        super().__init__(spec, config, weights, index=index, seed=seed, watch=watch)
        self._client, self._policy, self._table = client, policy, table
        self._discount = config.discount
        self._rows = UnrollRows(self.num_envs, config.unroll_length)
        self._unsent: Columns = {}

    @abstractmethod
    def _take_weights(self) -> None:
        """Pull weights if that is due. Called before every step."""

    @abstractmethod
    def _item(self, unrolls: Columns, after: NDArray[Any]) -> Columns:
        """The columns to insert, from unrolls `[N, T, ...]` that end before the observations `after` `[N, ...]`."""

    def act(self) -> int:
        """Take one step in every environment; returns the number of steps of episodes.

        If the queue has no room for the unroll that ends with it, `settle` waits, and so does the next step.
        """
        self.settle()
        obs, resets = self._obs, self._resets
        with self._watch("act"):
            self._take_weights()
            self._acts += 1
            log_pi, values = self._policy.outputs(obs)
            actions = draw(self._rng, log_pi, self._policy.sizes)
        with self._watch("env step"):
            after = self._step(actions)
        if after is None:
            self._rows.clear()
            return 0
        _, reward, terminated, truncated = after
        ended, last = terminated | truncated, self._info["final_obs"] if self._same_step else self._obs
        row = {
            "obs": obs,
            "action": actions,
            "log_pi": log_pi_taken(log_pi, actions, self._policy.sizes),
            "value": values,
            "reward": self._bounded(reward),
            "discount": np.where(terminated, 0.0, self._discount).astype(np.float32),
            "ended": ended,
            "is_step": ~resets,
            "weights_version": self._version,
            **self._returns_column(reward, self._discount),
        }
        self._rows.add(row, last)
        if self._same_step and ended.any():
            self._rows.add(self._reset_row(row, last, ended), self._obs, ended)
        stepped = self._count(reward, ended)
        if self._rows.full:
            with self._watch("append"):
                self._unsent = self._item(*self._rows.take())
                with suppress(DeadlineExceededError):
                    self.settle(timeout=0)
        return stepped

    def _reset_row(self, row: Columns, last: NDArray[Any], ended: NDArray[np.bool_]) -> Columns:
        """The row `[n, ...]` of a reset, which a vector that resets in the same step has not: the last observation."""
        with self._watch("act"):
            log_pi, values = self._policy.outputs(last[ended])
            actions = draw(self._rng, log_pi, self._policy.sizes)
        nothing = {name: np.zeros_like(column[ended]) for name, column in row.items()}
        return {
            **nothing,
            "obs": last[ended],
            "action": actions,
            "log_pi": log_pi_taken(log_pi, actions, self._policy.sizes),
            "value": values,
            "discount": np.full_like(row["discount"][ended], self._discount),
            "weights_version": row["weights_version"][ended],
        }

    def settle(self, timeout: float | None = None) -> None:
        """Wait until the whole last unroll is in the queue."""
        if not self._unsent:
            return
        try:
            self._client.insert_batch(self._table, self._unsent, timeout=timeout)
        except DeadlineExceededError as error:
            sent = 0 if error.partial is None else len(error.partial)
            if sent < len(self._unsent["action"]):
                self._unsent = {name: rows[sent:] for name, rows in self._unsent.items()}
                raise
            # The deadline passed between the last item and its acknowledgement: nothing is left to send.
        self._unsent = {}
