"""The columns of a data set as observations, actions and rewards of an environment, and the checks that they are.

`require_columns` compares shapes and dtypes, which are known before a row is read. The others read a row, and raise
`UnsupportedEnvironmentError` with its number for a value that the environment cannot have. Rows count from 0.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reverie.agents.actions import ActionEnumeration
from reverie.agents.continuous import ActionScale
from reverie.agents.environments import EnvSpec, UnsupportedEnvironmentError
from reverie.agents.error_places import warn
from reverie.agents.observations import ObservationLeaf, inexact, pack, part_of
from reverie.integrations.datasets import DatasetSource
from reverie.integrations.datasets.transitions import FLAGS, next_name_of, require_transitions
from reverie.specs import TensorSpec

_LOG = logging.getLogger("reverie")
REMEDY = "name a data set of this environment"
NEAR = 1e-3
"""How far a floating-point image may be outside of [0, 1], and an action of its bounds, as a share of their
distance: a rounding error."""
LONG_EPISODE = 10_000
"""Rows of an episode, on average, above which its ends are most often not marked."""
FIRST_ROWS = 1_000
"""Rows after which actions outside of the space are reported, if there are any."""


def require_columns(source: DatasetSource, spec: EnvSpec) -> None:
    """Raise `UnsupportedEnvironmentError` for columns of other shapes or dtypes than the environment's.

    Raises DatasetError for a data set without the columns of transitions.
    """
    require_transitions(source)
    columns = source.structure.unflatten(source.specs)
    _require_actions(source, spec, columns["action"])
    for leaf in spec.parts:
        name = _name(leaf)
        _require_part(source, spec, leaf, _column(source, spec, name, _walk(columns["obs"], leaf.path)))


def warn_of_unread(source: DatasetSource, spec: EnvSpec) -> None:
    """Issue one `TrainingWarning` if columns are not read, or if most episodes have no end that is marked.

    Counts the episodes in the columns that end or number them.
    """
    after = next_name_of(source)
    read = {*map(_name, spec.parts), "action", "reward", *FLAGS}
    unread = [path for path in source.columns if path not in read and path.partition("/")[0] != after]
    if source.num_rows is None or not (unread or (source.ends_by_flags and after is None)):
        return
    episodes = source.count_episodes() or 1
    endless = after is None and source.ends_by_flags and (episodes == 1 or source.num_rows > episodes * LONG_EPISODE)
    if not (unread or endless):
        return
    names = f"the columns {', '.join(unread)} are not read, and " if unread else ""
    remedy = ""
    if endless:
        remedy = (
            ", because terminated and truncated end no others: mark the end of each in a column truncated, or number"
            " them in a column episode"
        )
    elif unread and after is None and source.ends_by_flags and "truncated" not in source.columns:
        remedy = ": if one of these columns ends episodes, give it the name truncated by dataset_rename"
    warn(
        f"{source.path}: {names}its {source.num_rows} rows are {episodes} episode{'s' if episodes > 1 else ''}{remedy}"
    )


def _walk(nest: Any, path: tuple[str, ...]) -> Any:
    """The part of a nest at a path; None if it has none."""
    for key in path:
        if isinstance(nest, Mapping):
            nest = nest.get(key)
        else:
            within = isinstance(nest, list | tuple) and key.isdecimal() and int(key) < len(nest)
            nest = nest[int(key)] if within else None
    return nest


def _column(source: DatasetSource, spec: EnvSpec, name: str, found: Any) -> TensorSpec:
    """The spec that was found in the place of a column; raises an error if it is missing or not a single array."""
    if found is None:
        names = ", ".join(f"{one} {tuple(its.shape)}" for one, its in source.columns.items())
        raise UnsupportedEnvironmentError(
            f"{source.path} has no {name}, and {spec.env_id} has it; there is {names}: {REMEDY}, or give the column"
            " this name by dataset_rename"
        )
    if not isinstance(found, TensorSpec):
        names = ", ".join(one for one in source.columns if one.startswith(f"{name}/"))
        raise UnsupportedEnvironmentError(
            f"{source.path} has {names}, and {spec.env_id} has one array as {name}: {REMEDY}, or give one of these"
            f" columns the name {name} by dataset_rename"
        )
    return found


def _require_part(source: DatasetSource, spec: EnvSpec, leaf: ObservationLeaf, column: TensorSpec) -> None:
    name, wanted, found = _name(leaf), _shape(spec, leaf), tuple(column.shape)
    if found != wanted and not (wanted == () and found == (1,)):  # some programs store a number as an array of one
        remedy = REMEDY
        if spec.frame_stack is None and found[1:] == leaf.shape and len(found) > 1:
            remedy += f", or set frame_stack={found[0]} if it has stacks of {found[0]} frames"
        elif found == leaf.shape and spec.frame_stack is not None:
            remedy += ", or leave out frame_stack: each row must have the whole stack"
        elif sorted(map(str, found)) == sorted(map(str, wanted)):
            remedy += ", or write it with its axes in the environment's order"
        raise UnsupportedEnvironmentError(
            f"{source.path} has {name} of shape {found}, and {spec.env_id} has {wanted}: {remedy}"
        )
    kind, own = np.dtype(column.dtype).kind, np.dtype(leaf.dtype)
    if kind not in "biuf":
        raise UnsupportedEnvironmentError(
            f"{source.path} has {name} of dtype {column.dtype}, and {spec.env_id} has numbers of {own} there: {REMEDY}"
        )
    scaled = (kind in "iu" and own.kind == "f") or (kind == "f" and own.kind == "u")
    if leaf.kind == "image" and scaled:
        within = "from 0 to 1" if own.kind == "f" else f"from 0 to {leaf.largest}"
        raise UnsupportedEnvironmentError(
            f"{source.path} has {name} of dtype {column.dtype}, and {spec.env_id} has images of {own}, {within}, there:"
            f" {REMEDY}, or write it in this dtype and range"
        )


def _require_actions(source: DatasetSource, spec: EnvSpec, found: Any) -> None:
    column = _column(source, spec, "action", found)
    kinds = "biuf" if spec.num_actions is None else "biu"
    if np.dtype(column.dtype).kind not in kinds:
        raise UnsupportedEnvironmentError(
            f"{source.path} has action of dtype {column.dtype}, and actions of {spec.env_id} are {spec.action_space}:"
            f" {REMEDY}"
        )
    shape, size = tuple(column.shape), spec.action_size or len(spec.action_sizes)
    wanted = (size,) if size else ()
    if shape != wanted and not (wanted == () and shape == (1,)):
        raise UnsupportedEnvironmentError(
            f"{source.path} has action of shape {shape}, and {spec.env_id} has {wanted}: {REMEDY}"
        )


def _name(leaf: ObservationLeaf) -> str:
    """The column of a leaf."""
    return "/".join(("obs", *leaf.path))


def _shape(spec: EnvSpec, leaf: ObservationLeaf) -> tuple[int, ...]:
    """The shape of the column of a leaf, with its stack of frames."""
    return (*(() if spec.frame_stack is None else (spec.frame_stack,)), *leaf.shape)


class RowReader:
    """Converts observations, actions and rewards of rows to those of tables."""

    def __init__(self, spec: EnvSpec, source: DatasetSource) -> None:
        self._spec, self._path = spec, source.path
        self._parts = [(leaf, _name(leaf), _shape(spec, leaf)) for leaf in spec.parts]
        self._leaves = spec.parts
        self._scale = ActionScale(spec) if spec.num_actions is None else None
        self._enumeration = ActionEnumeration(spec.action_sizes)
        self._sizes = np.array(spec.action_sizes or (spec.num_actions,))
        low, high = np.array(spec.action_low), np.array(spec.action_high)
        near = NEAR * (high - low)
        self._low, self._high = low - near, high + near
        self._rows = self._clipped = 0
        self._least, self._most = np.inf, -np.inf
        self._reported = False

    def observation(self, nest: Any, row: int) -> NDArray[Any]:
        """The array of an observation, as actors write it."""
        parts = []
        for leaf, name, shape in self._parts:
            part = np.asarray(part_of(nest, leaf)).reshape(shape)
            if leaf.kind != "numbers":
                self._require_within(leaf, name, part, row)
            if leaf.dtype.startswith("float"):
                with np.errstate(over="ignore"):
                    self._require_finite(name, part, part.astype(leaf.dtype), row)
            elif (number := inexact(leaf.dtype, part)) is not None:
                raise self._refused(row, f"{name} has {number!s}, which {leaf.dtype} cannot hold")
            parts.append(part)
        with np.errstate(over="ignore"):
            return pack(self._leaves, parts)

    def action(self, action: Any, row: int) -> NDArray[Any]:
        """The action of tables and losses: scaled, or the number of a choice."""
        if self._scale is not None:
            scaled = self._scale.from_env(np.asarray(action, np.float32))
            self._require_finite("action", np.asarray(action), scaled, row)
            self._count_clipped(np.asarray(action))
            return scaled
        chosen = np.asarray(action, np.int64).reshape(len(self._spec.action_sizes) or ())
        if ((chosen < 0) | (chosen >= self._sizes)).any():
            raise UnsupportedEnvironmentError(
                f"{self._path}, row {row} (from 0), has the action {chosen.tolist()}, and actions of"
                f" {self._spec.env_id} are {self._spec.action_space}: {REMEDY}"
            )
        return self._enumeration.from_env(chosen)

    def _count_clipped(self, action: NDArray[Any]) -> None:
        self._rows += 1
        if ((action < self._low) | (action > self._high)).any():
            self._clipped += 1
            self._least, self._most = min(self._least, action.min()), max(self._most, action.max())
        if self._rows == FIRST_ROWS:
            self.report_clipped()

    def report_clipped(self) -> None:
        """Warn, once, of actions so far that were outside of the space."""
        if self._reported or not self._clipped:
            return
        self._reported = True
        _LOG.warning(
            "%s: %d of %d rows have actions outside of %s of %s, from %g to %g, which are clipped: if they are of"
            " another unit, write them in the environment's",
            *(self._path, self._clipped, self._rows, self._spec.action_space, self._spec.env_id),
            *(self._least, self._most),
        )

    def reward(self, reward: Any, row: int) -> float:
        """The reward, which float32 can hold."""
        with np.errstate(over="ignore"):
            self._require_finite("reward", np.asarray(reward), np.asarray(reward, np.float32), row)
        return float(reward)

    def _require_within(self, leaf: ObservationLeaf, name: str, part: NDArray[Any], row: int) -> None:
        """Refuse a category that the space does not have, and an image of another range."""
        near = 0.0
        if leaf.kind == "category":
            low = np.reshape(leaf.starts, leaf.shape)
            high = low + np.reshape(leaf.sizes, leaf.shape) - 1
        elif leaf.dtype.startswith("float"):
            low, high, near = np.array(0), np.array(1), NEAR
        elif leaf.dtype == "bool" or (part.dtype == np.uint8 and leaf.largest == 255):
            return  # no number is outside
        else:
            low, high = np.array(0), np.array(leaf.largest)
        outside = (part < low - near) | (part > high + near)
        if outside.any():
            at = np.unravel_index(int(np.argmax(outside)), outside.shape)
            least, most = (np.broadcast_to(bound, part.shape)[at] for bound in (low, high))
            raise self._refused(row, f"{name} has {part[at]!s}, and the space is from {least} to {most} there")

    def _require_finite(self, name: str, part: NDArray[Any], stored: NDArray[Any], row: int) -> None:
        finite = np.isfinite(stored)
        if not finite.all():
            number = part.reshape(finite.shape)[~finite][0]
            raise self._refused(row, f"{name} has {number!s}, and numbers must be finite in {stored.dtype}")

    def _refused(self, row: int, what: str) -> UnsupportedEnvironmentError:
        where = f"{self._path}, row {row} (from 0)"
        return UnsupportedEnvironmentError(f"{where}: {what}: leave out such rows, or name another data set")
