"""Transitions with the goals of their episode: items that share observations and are made when the episode ends."""

from __future__ import annotations

from typing import Any, Literal

import numpy.typing as npt
from stable_baselines3.her.goal_selection_strategy import GoalSelectionStrategy

from reverie.integrations._replay_table import LocalTable, RemoteTable
from reverie.integrations._trajectories import FrameStack, Trajectory

__all__ = ["GoalTrajectory"]

#: The writer begins a new history at the end of an episode after this many steps. Until then it keeps what it has sent,
#: and one chunk has the steps of several short episodes.
_HISTORY = 2048


class GoalTrajectory(Trajectory):
    """Writes the transitions of one environment when their episode ends.

    An item has the columns of `Trajectory`, and `goal`: the achieved goals that may replace the desired one. "future"
    refers to those that were achieved by this step and later ones `[T, ...]`, "episode" to those of all steps
    `[T, ...]`, and "final" to the last one. They are references to the next observations: no goal is stored twice.

    Args:
        table: where the items go.
        capacity: of an episode with more steps than this, the last ones are kept.
        strategy: how goals are selected.
        priority: the priority of new items.
    """

    def __init__(
        self,
        table: LocalTable | RemoteTable,
        capacity: int,
        strategy: GoalSelectionStrategy,
        priority: float | Literal["max"],
    ) -> None:
        super().__init__(table, capacity + 1, FrameStack(), priority)
        self._strategy = strategy
        #: The number of steps of the longest episode so far.
        self.longest = 0

    def _complete(self) -> None:
        """Drops the first step of an episode that is longer than the table."""
        self._pending.popleft()

    @property
    def num_open(self) -> int:
        """The number of steps of the episode that has not ended."""
        return len(self._pending)

    def cut(self) -> None:
        """Ends the episode and sends its items."""
        if self._pending:
            self._send_episode()
            self.longest = max(self.longest, len(self._pending))
            self._pending.clear()
        self._newest = None
        if self._count >= _HISTORY:
            self._writer._end_episode(True)
            self._count = 0

    def _send_episode(self) -> None:
        columns = dict(self._writer.history)
        observation = columns.pop("observation")
        first, end = self._pending[0][1], self._pending[-1][1] + 1
        goals = observation["achieved_goal"]
        for _, cell in self._pending:
            item = {name: column[cell] for name, column in columns.items()}
            item["observation"] = {name: part[cell - 1] for name, part in observation.items()}
            item["next_observation"] = {name: part[cell] for name, part in observation.items()}
            match self._strategy:
                case GoalSelectionStrategy.FINAL:
                    item["goal"] = goals[end - 1]
                case GoalSelectionStrategy.FUTURE:
                    item["goal"] = goals[cell:end]
                case GoalSelectionStrategy.EPISODE:
                    item["goal"] = goals[first:end]
            self._writer.create_item(self._table, self._priority, item)

    def open_steps(self) -> dict[str, Any] | None:
        """The columns of the episode that has not ended, its first observation in front; None at a first step."""
        if not self._pending:
            return None
        cells = slice(self._pending[0][1] - 1, self._pending[-1][1] + 1)
        return {
            name: {part: cut[cells].numpy() for part, cut in column.items()}
            if isinstance(column, dict)
            else column[cells].numpy()
            for name, column in self._writer.history.items()
        }

    def restore(self, steps: dict[str, Any]) -> None:
        """Continues an episode with the columns that `open_steps` gave."""
        rest = {name: column for name, column in steps.items() if name != "observation"}

        def observation(step: int) -> dict[str, npt.NDArray[Any]]:
            return {name: part[step] for name, part in steps["observation"].items()}

        for step in range(1, len(rest["done"])):
            others = {name: column[step] for name, column in rest.items()}
            self.add(observation(step - 1), observation(step), others, False)
