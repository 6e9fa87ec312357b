"""Transitions as items that share observations: each observation, or each frame of a stack, is stored once."""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from reverie import _checks
from reverie.integrations._replay_table import LocalTable, RemoteTable

__all__ = ["FrameStack", "Trajectory", "copied", "equal"]

#: An observation of one environment: an array, or a dict of arrays.
Observation = Any


@dataclasses.dataclass(frozen=True)
class FrameStack:
    """How an observation is made of frames: `length` of them, one after another along an axis.

    Args:
        length: the number of frames; 1 means an observation without a stack.
        axis: the axis of the observation along which frames follow each other.
        shape: the observation's shape; None where it is not known yet, see `of`.

    Raises:
        ValueError: for an axis that the shape does not have, or that cannot be divided into frames.
    """

    length: int = 1
    axis: int = 0
    shape: tuple[int, ...] | None = ()

    def __post_init__(self) -> None:
        _checks.count("frame_stack", self.length, 1)
        if self.shape is None:
            return
        if self.length > 1 and not -len(self.shape) <= self.axis < len(self.shape):
            raise ValueError(f"stack_axis is {self.axis}, and observations have the shape {self.shape}")
        if self.length > 1 and self.shape[self.axis] % self.length:
            raise ValueError(
                f"frame_stack is {self.length}, which does not divide axis {self.axis} of observations {self.shape}"
            )

    def of(self, observation: Observation) -> FrameStack:
        """The stack for observations as this one.

        Raises:
            ValueError: also for a dict of arrays, which cannot be a stack.
        """
        if self.length > 1 and isinstance(observation, dict):
            raise ValueError("frame_stack is for observations that are one array, not for a dict of arrays")
        return dataclasses.replace(self, shape=() if isinstance(observation, dict) else np.shape(observation))

    def split(self, observation: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """The frames of an observation, the oldest first."""
        return np.split(observation, self.length, self.axis)

    def join(self, frames: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The observations `[B, ...]` of frames `[B, length, ...]`."""
        count, shape = len(frames), list(frames.shape[2:])
        axis = self.axis % len(shape)
        shape[axis] *= self.length
        return np.moveaxis(frames, 1, 1 + axis).reshape(count, *shape)


class Trajectory:
    """Writes the transitions of one environment.

    An item has the columns `observation` and `next_observation` (with an axis of frames for a stack), `action`,
    `reward` (of n-step transitions one number for each step) and `done`.

    Args:
        table: where the items go.
        n_steps: the number of steps from an item's observation to its next observation, fewer at the end of an episode.
        stack: how observations are made of frames.
        priority: the priority of new items.
    """

    def __init__(
        self, table: LocalTable | RemoteTable, n_steps: int, stack: FrameStack, priority: float | Literal["max"]
    ) -> None:
        # If no two observations share a frame, a window has (n_steps + 1) stacks.
        self._writer = table.writer((n_steps + 1) * stack.length)
        self._table, self._n_steps, self._stack, self._priority = table.name, n_steps, stack, priority
        self._newest: Observation = None
        self._count = 0
        #: Steps without an item yet: the end of the observation's cells, and the cell of the action.
        self._pending: deque[tuple[int, int]] = deque()

    def add(
        self,
        observation: Observation,
        next_observation: Observation,
        rest: dict[str, Any],
        ended: bool,
        *,
        follows: bool = False,
        followed: bool = False,
    ) -> None:
        """Adds a transition. An observation that is not the previous next observation begins another trajectory.

        So does the transition after an error, which may have come before or behind the end of its step.

        Args:
            observation, next_observation: of this step; copied.
            rest: `action`, `reward`, `done` (1 where nothing is bootstrapped from the next observation), and any
                further columns.
            ended: the episode ends with this step.
            follows: `observation` is the previous next observation; this is the caller's claim and not checked.
            followed: the next step will be added with `follows`, so that this next observation is not copied.
        """
        newest, self._newest = self._newest, None
        if not follows and (newest is None or not equal(observation, newest)):
            self.cut()
            self._append(self._frames(observation), rest)
        start = self._count
        self._append(self._new_frames(observation, next_observation), rest)
        self._pending.append((start, self._count - 1))
        if len(self._pending) == self._n_steps:
            self._complete()
        if ended:
            self.cut()
        elif not followed:
            self._newest = copied(next_observation)

    def _complete(self) -> None:
        """Handles the oldest step without an item, which has `n_steps` steps now."""
        self._send()

    def cut(self) -> None:
        """Ends the trajectory: steps that wait for later ones become shorter transitions."""
        while self._pending:
            self._send()
        self._newest = None

    def flush(self) -> None:
        """Waits until all items are in the table."""
        self._writer.flush()

    def _frames(self, observation: Observation) -> list[Observation]:
        return [observation] if self._stack.length == 1 else self._stack.split(observation)

    def _new_frames(self, observation: Observation, next_observation: Observation) -> list[Observation]:
        """The frames of the next observation that are not stored yet: one, where it continues the stack."""
        if self._stack.length == 1:
            return [next_observation]
        frames = self._frames(next_observation)
        before = self._frames(observation)[1:]
        continues = all(equal(old, new) for old, new in zip(before, frames, strict=False))
        return frames[-1:] if continues else frames

    def _append(self, frames: list[Observation], rest: dict[str, Any]) -> None:
        try:
            for frame in frames:
                self._writer.append({"observation": frame, **rest})
        finally:
            self._count = self._writer.episode_steps  # If too much was in flight, a step raises and is there.

    def _send(self) -> None:
        """Makes an item of the oldest step that has none."""
        (end, _), cells = self._pending[0], [cell for _, cell in self._pending]
        last = cells[-1] + 1  # A step behind it whose append raised is in the history, and in no item.
        self._pending.popleft()
        history = self._writer.history
        item = {
            "observation": self._cells(history["observation"], end),
            "next_observation": self._cells(history["observation"], last),
            "action": history["action"][cells[0]],
            "reward": history["reward"][cells[0] if self._n_steps == 1 else cells],
            "done": history["done"][cells[-1]],
        }
        self._writer.create_item(self._table, self._priority, item)

    def _cells(self, column: Any, end: int) -> Any:
        if isinstance(column, dict):
            return {name: self._cells(part, end) for name, part in column.items()}
        return column[end - 1] if self._stack.length == 1 else column[end - self._stack.length : end]


def equal(one: Observation, other: Observation) -> bool:
    """Whether two observations, of the same structure, are equal."""
    if isinstance(one, dict):
        return all(equal(part, other[name]) for name, part in one.items())
    return np.array_equal(one, other)


def copied(observation: Observation) -> Observation:
    """A copy of an observation's arrays."""
    if isinstance(observation, dict):
        return {name: copied(part) for name, part in observation.items()}
    return np.array(observation)
