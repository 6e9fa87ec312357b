"""The base class of actors that put unrolls into a queue."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from typing import Any, Protocol, Unpack

import numpy as np
from numpy.typing import NDArray

from reverie.agents.actor_critic import ActorCriticPolicy
from reverie.agents.atari import LifeStacks
from reverie.agents.core import ActingSettings, ActorArguments, WeightSource
from reverie.agents.env_actor import EnvActor
from reverie.agents.environments import EnvSpec
from reverie.agents.noise import ActionNoise
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

    def theta_at(self, env_steps: int) -> float:
        """The rate per step at which the random numbers of draws forget; 1 draws those of each step independently."""


class UnrollActor(EnvActor):
    """Draws actions from the policy, and puts unrolls of T steps into a queue, one item per environment.

    Columns: `obs` `[T, ...]`, `action` (`[T, A]` of vectors), `log_pi` (of the action drawn), `value`, `reward`,
    `discount` (0 where the episode terminated), `ended` (terminated or truncated), `is_step` (False for the reset after
    an end) and `weights_version`, all `[T]`; where rewards are normalised also `discounted_return`. A policy that is
    `recurrent` adds `first` `[T]` (the row begins an episode), `state` and `state_after` `[T, S]`.
    In a vector that resets in the same step, the row of the reset is made here: unrolls are the same for every vector.
    Stacks of frames are in the rows as networks read them. Their rows of resets follow truncated episodes only, which
    bootstrap from them; in a game with lives, a lost one ends the episode that is learnt from, and the game
    continues, as does the state of a recurrent policy: it is evaluated on whole games.
    Subclasses decide when to pull weights, and make the item from these columns.
    """

    NEWEST_FRAMES = True

    def __init__(
        self,
        spec: EnvSpec,
        config: UnrollSettings,
        client: Any,
        weights: WeightSource,
        policy: ActorCriticPolicy,
        table: str,
        **role: Unpack[ActorArguments],
    ) -> None:
        frames = spec.frame_stack is not None
        self._lives = LifeStacks(config.envs_per_actor, spec.obs_shape, spec.obs_dtype) if frames else None
        self._policy = policy
        super().__init__(spec, config, weights, **role)
        self._client, self._table = client, table
        self._discount = config.discount
        self._config, self._noise = config, ActionNoise((self.num_envs, policy.distribution.num_random), 1.0)
        self._rows = UnrollRows(self.num_envs, config.unroll_length)
        self._unsent: Columns = {}

    def _begin(self, seed: int) -> None:
        super()._begin(seed)
        if self._lives is not None:
            self._lives.begin(self._obs)
        self._state = self._policy.initial_state(self.num_envs)
        """The states `[N, S]` before the next step; S is 0 for a policy without one."""
        self._first = np.ones(self.num_envs, dtype=bool)
        """Environments whose next row begins an episode."""

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
        obs, resets = self._seen(), self._resets
        with self._watch("act"):
            self._take_weights()
            self._acts += 1
            # An actor counts only its own steps: the others are assumed to have taken as many.
            theta = self._config.theta_at(self.env_steps * self._config.num_actors)
            normal = None if theta == 1.0 else self._noise.draw(self._rng, self._begins, theta)
            drawn, after = self._policy.drawn_from(obs, self._state, self._rng, normal)
        with self._watch("env step"):
            stepped = self._step(drawn.env_actions)
        if stepped is None:
            self._rows.clear()
            return 0
        _, reward, terminated, truncated = stepped
        over, last, again = self._ends(terminated, truncated)
        row = {
            "obs": obs,
            "action": drawn.actions,
            "log_pi": drawn.log_pi,
            "value": drawn.values,
            "reward": self._bounded(reward),
            "discount": np.where(over, 0.0, self._discount).astype(np.float32),
            "ended": over | truncated,
            "is_step": ~resets,
            "weights_version": self._version,
            **self._returns_column(reward, self._discount, over | truncated),
            **self._memory_columns(self._first, self._state, after),
        }
        self._rows.add(row, last)
        if again.any():
            self._rows.add(self._reset_row(row, last, again, after), self._seen(), again)
        self._first = terminated | truncated if self._same_step else resets
        self._state = np.where(self._first[:, None], np.float32(0), after)
        stepped_here = self._count(reward, terminated | truncated)
        if self._rows.full:
            with self._watch("append"):
                self._unsent = self._item(*self._rows.take())
                with suppress(DeadlineExceededError):
                    self.settle(timeout=0)
        return stepped_here

    def _seen(self) -> NDArray[Any]:
        """The observations `[N, ...]` as networks read them; later steps do not change them."""
        return self._obs if self._lives is None else self._lives.seen.copy()

    def _ends(
        self, terminated: NDArray[np.bool_], truncated: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], NDArray[Any], NDArray[np.bool_]]:
        """Ends without a future `[N]`, observations after the actions, and environments whose reset is a row to add."""
        if self._lives is not None:
            ends = self._lives.step(self._obs, terminated, truncated, self._info)
            last = self._seen()
            last[truncated] = ends.truncated_stacks
            return ends.terminated, last, truncated
        if self._same_step:
            return terminated, self._info["final_obs"], terminated | truncated
        return terminated, self._obs, np.zeros_like(terminated)

    def _memory_columns(self, first: NDArray[np.bool_], state: NDArray[Any], after: NDArray[Any]) -> Columns:
        return {"first": first, "state": state, "state_after": after} if state.shape[1] else {}

    def _reset_row(
        self, row: Columns, last: NDArray[Any], ended: NDArray[np.bool_], state: NDArray[np.float32]
    ) -> Columns:
        """The row `[n, ...]` of a reset, which a vector that resets in the same step has not: the last observation."""
        with self._watch("act"):
            drawn, after = self._policy.drawn_from(last[ended], state[ended], self._rng)
        nothing = {name: np.zeros_like(column[ended]) for name, column in row.items()}
        return {
            **nothing,
            "obs": last[ended],
            "action": drawn.actions,
            "log_pi": drawn.log_pi,
            "value": drawn.values,
            "discount": np.full_like(row["discount"][ended], self._discount),
            "weights_version": row["weights_version"][ended],
            **self._memory_columns(np.zeros(len(after), dtype=bool), state[ended], after),
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
