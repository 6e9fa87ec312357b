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
        self._length, self._discount = config.unroll_length, config.discount
        self._rows: list[Columns] = []
        self._unsent: Columns = {}

    @abstractmethod
    def _take_weights(self) -> None:
        """Pull weights if that is due. Called before every step."""

    @abstractmethod
    def _item(self, unrolls: Columns) -> Columns:
        """The columns to insert, from unrolls `[N, T, ...]` that end before the observations `self._obs`."""

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
        self._rows.append(
            {
                "obs": obs,
                "action": actions,
                "log_pi": log_pi_taken(log_pi, actions, self._policy.sizes),
                "value": values,
                "reward": self._bounded(reward),
                "discount": np.where(terminated, 0.0, self._discount).astype(np.float32),
                "ended": terminated | truncated,
                "is_step": ~resets,
                "weights_version": self._version,
                **self._returns_column(reward, self._discount),
            }
        )
        stepped = self._count(reward, terminated | truncated)
        if len(self._rows) == self._length:
            with self._watch("append"):
                rows, self._rows = self._rows, []
                unrolls = {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}
                self._unsent = self._item(unrolls)
                with suppress(DeadlineExceededError):
                    self.settle(timeout=0)
        return stepped

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
