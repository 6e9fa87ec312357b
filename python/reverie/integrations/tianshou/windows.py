"""Windows of consecutive steps of one environment as items that share observations."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from tianshou.data import Batch

from reverie.client import Client
from reverie.integrations._trajectories import copied, equal

__all__ = ["StepWindows", "nest_of"]


def nest_of(value: Any) -> Any:
    """Arrays, and dicts of arrays where tianshou has a `Batch`."""
    return {name: nest_of(value[name]) for name in value.get_keys()} if isinstance(value, Batch) else np.asarray(value)


class StepWindows:
    """Writes an item for each step of one environment: `n_step` steps from there, fewer at the end of an episode.

    An item has `obs` with one more cell than the other columns, the observation behind the last step.

    Args:
        client, table: where the items go.
        n_step: the number of steps of an item.
        priority: the priority of new items.
    """

    def __init__(self, client: Client, table: str, n_step: int, priority: float | Literal["max"]) -> None:
        self._writer = client.trajectory_writer(n_step + 1)
        self._table, self._n_step, self._priority = table, n_step, priority
        self._open, self._begins, self._newest = 0, True, None

    def add(self, obs: Any, obs_next: Any, rest: dict[str, Any]) -> None:
        """Adds a step. An observation that is not the one behind the step before begins another episode.

        Args:
            obs, obs_next: before and after the step; copied.
            rest: `act`, `rew`, `terminated` and `truncated`.
        """
        if not self._begins and not equal(obs, self._newest):
            self.cut()
        if self._begins:
            self._writer.append({"obs": obs, **rest})
        self._writer.append({"obs": obs_next, **rest})
        self._open, self._begins, self._newest = self._open + 1, False, copied(obs_next)
        if self._open == self._n_step:
            self._send()
        if rest["terminated"] or rest["truncated"]:
            self.cut()

    def cut(self) -> None:
        """Ends the episode: its last steps become shorter items."""
        while self._open:
            self._send()
        self._begins = True

    def flush(self) -> None:
        """Waits until all items are in the table."""
        self._writer.flush()

    def _send(self) -> None:
        """Makes an item of the oldest step that has none."""
        columns = dict(self._writer.history)
        obs, steps = columns.pop("obs"), self._open
        item = {name: column[-steps:] for name, column in columns.items()}
        self._writer.create_item(self._table, self._priority, {**item, "obs": _last(obs, steps + 1)})
        self._open -= 1


def _last(column: Any, count: int) -> Any:
    return {name: _last(part, count) for name, part in column.items()} if isinstance(column, dict) else column[-count:]
