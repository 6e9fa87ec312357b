"""Steps of a data set as the arguments of a writer of transitions, and the checks that they are steps."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from reverie import _native
from reverie.integrations.datasets.sources import DatasetError, DatasetSource, EpisodeRow, flags_of
from reverie.specs import TensorSpec

__all__ = [
    "FLAGS",
    "NEXT_NAMES",
    "Append",
    "appends",
    "next_name_of",
    "num_breaks",
    "num_transitions",
    "require_ends",
    "require_transitions",
]

#: The columns of a step that end its episode.
FLAGS = ("terminated", "truncated")
#: Columns that have the observation after each step, which is not needed where that is the next row's.
NEXT_NAMES = ("next_obs", "next_observation", "next_observations")
#: Names of other programs for the columns of a step. D4RL has the first five.
OTHER_NAMES = {
    "observations": "obs",
    "actions": "action",
    "rewards": "reward",
    "terminals": "terminated",
    "timeouts": "truncated",
    "observation": "obs",
    "terminal": "terminated",
    "terminations": "terminated",
    "done": "terminated",
    "dones": "terminated",
    "timeout": "truncated",
    "truncations": "truncated",
}


class Append(NamedTuple):
    """A step of a data set as the arguments of `TransitionWriter.append`, with autoreset "disabled"."""

    obs: Any
    action: Any
    reward: Any
    terminated: bool
    truncated: bool
    final_obs: Any
    """The last observation of an episode that ends here; None if it goes on, or if that is not in the data set."""
    extras: dict[str, Any] | None
    cut: bool
    """Whether its episode ends here without a last observation: `end_episodes` follows."""
    breaks: bool = False
    """Whether the next row is of its episode but does not have its next observation, so that this step ends it."""
    row: int = 0
    """The number of its row in the data set, from 0."""
    final_row: int = 0
    """The number of the row that has `final_obs`."""


def appends(source: DatasetSource, steps: Iterator[EpisodeRow] | None = None) -> Iterator[Append]:
    """The steps of a data set for a writer of transitions, in its order; `steps` are some of its steps, by default all.

    With a column of next observations every step has its own: one that is not the observation of the next row ends the
    episode there, as a truncation does, and so does the last row. Transitions in any order are read so. Where it is not
    finite, and at an episode's end where it is the first observation of the next episode (a shifted column), it counts
    as missing.

    Raises:
        DatasetError: for a data set without the columns that transitions need, a flag that is neither 0 nor 1, and
            episodes that go on after their end.
    """
    split, over = _Split(source), False
    for number, (step, after) in enumerate(_pairs(source.steps() if steps is None else steps)):
        follows = after is not None and not step.is_last
        if over:  # The last observation, which the step before ended in.
            if not step.is_last:
                where = f"{source.path}, episode {step.episode}"
                raise DatasetError(f"{where}: it has steps after the one that ended it; number its episodes apart")
            over = False
            continue
        row = split(step.data, number)
        final = after.data["obs"] if follows and after is not None else None
        breaks = final is not None and not split.continues(step.data, final)
        final_row = number if breaks or final is None else number + 1
        flagged = row.terminated or row.truncated
        if split.next_name is not None and (final is None or breaks):
            is_reset = final is None and after is not None and split.continues(step.data, after.data["obs"])
            final = None if is_reset else split.next_of(step.data)
            row = row._replace(truncated=row.truncated or not flagged)
        if final is None and row.terminated:
            final = row.obs
        ended = (row.terminated or row.truncated) and final is not None
        yield row._replace(
            terminated=row.terminated and ended,
            truncated=row.truncated and ended,
            final_obs=final if ended else None,
            cut=not ended and (breaks or not follows),
            breaks=breaks and not flagged,
            final_row=final_row,
        )
        over = ended and follows and flagged and not breaks


def require_transitions(source: DatasetSource) -> None:
    """Raises DatasetError for a data set without the columns that transitions need. Reads no rows."""
    _Split(source)


def require_ends(source: DatasetSource) -> None:
    """Raises DatasetError where episodes would have no end but in a column of another name. Reads no rows."""
    lacking = [flag for flag in FLAGS if flag not in source.columns]
    unread = [name for name in source.columns if OTHER_NAMES.get(name) in FLAGS]
    if not source.ends_by_flags or not lacking or not unread or next_name_of(source) is not None:
        return
    name = next((one for one in unread if OTHER_NAMES[one] in lacking), unread[0])
    raise DatasetError(
        f"{source.path}: column '{name}' may end episodes and is not read, so that items could go beyond the ends: give"
        f" it the name {lacking[0]}, in addition to other new names (a step that also terminated counts as terminated):"
        f" {_with_names({name: lacking[0]})}"
    )


def next_name_of(source: DatasetSource) -> str | None:
    """The column of the observations after each step; None if there is none."""
    names = {path.partition("/")[0] for path in source.structure.paths}
    return next((name for name in NEXT_NAMES if name in names), None)


def num_breaks(source: DatasetSource, rows: int) -> int:
    """The first rows of a data set with next observations whose next row does not go on from them.

    Reads no rows without next observations. Raises DatasetError as `appends` does.
    """
    if next_name_of(source) is None:
        return 0
    return sum(row.breaks for row in itertools.islice(appends(source), rows))


def num_transitions(source: DatasetSource) -> int:
    """The transitions that `appends` gives to a writer of one step. Reads all rows, of a source with the flags alone.

    The last row of an episode makes one only where it terminates: else its next observation is not known, or it is the
    last observation, of the step before. With a column of next observations they are nearly as many as rows.
    """
    starts, terminated, ended, before, row = [], [], [], None, 0
    for block in source.blocks():
        assert block.episodes is not None
        if not len(block):
            continue
        named = dict(zip(source.structure.paths, block.columns, strict=True))
        flags = {name: flags_of(named[name], name, source.path, row) for name in FLAGS if name in named}
        previous = block.episodes[0] - 1 if before is None else before
        starts.append(block.episodes != np.concatenate([[previous], block.episodes[:-1]]))
        terminated.append(flags["terminated"])
        ended.append(np.logical_or.reduce(list(flags.values())))
        before = block.episodes[-1]
        row += len(block)
    if not starts:
        return 0
    first, final, over = (np.concatenate(one) for one in (starts, terminated, ended))
    last = np.append(first[1:], True)
    after_end = ~first & np.insert(over[:-1], 0, False)
    return len(first) - int(np.count_nonzero(last & ~(final & ~after_end)))


class _Split:
    """Divides steps into the arguments of `TransitionWriter.append`.

    Raises:
        DatasetError: for a data set without the columns that transitions need.
    """

    def __init__(self, source: DatasetSource) -> None:
        probe = source.structure.unflatten(source.specs)
        names = list(probe) if isinstance(probe, dict) else []
        missing = [name for name in ("obs", "action", "reward", "terminated") if name not in names]
        if missing:
            raise DatasetError(
                f"{source.path}: transitions need the columns {', '.join(missing)}; it has {', '.join(names) or 'none'}"
                f" ({_hint(names)})"
            )
        require_ends(source)
        for name in ("reward", *(flag for flag in FLAGS if flag in names)):
            spec = probe[name]
            if not isinstance(spec, TensorSpec) or spec.shape not in ((), (1,)) or spec.dtype.kind not in "biuf":
                raise DatasetError(f"{source.path}: column '{name}' must be a number for each step, got {probe[name]}")
        self.next_name = next_name_of(source)
        if self.next_name is not None:
            own, after = (_parts(source, name) for name in ("obs", self.next_name))
            if own != after:
                raise DatasetError(
                    f"{source.path}: column '{self.next_name}' differs from obs: it has the shapes {after} and obs"
                    f" {own}; give it another name or leave it out"
                )
        self._arrays = {name for name in ("reward", *FLAGS) if name in names and probe[name].shape}
        self._flags, self._path = [name for name in FLAGS if name in names], source.path
        self._extras = [name for name in names if name not in ("obs", "action", "reward", *FLAGS, self.next_name)]

    def __call__(self, data: dict[str, Any], row: int) -> Append:
        if self._arrays:
            # Some programs store a number as an array of one number.
            data = {name: value[0] if name in self._arrays else value for name, value in data.items()}
        flags = {name: data[name] == 1 for name in self._flags}
        for name, is_set in flags.items():
            if not is_set and data[name] != 0:
                flags_of(data[name], name, self._path, row)  # raises
        return Append(
            data["obs"],
            data["action"],
            data["reward"],
            bool(flags["terminated"]),
            bool(flags.get("truncated", False)),
            None,
            {name: data[name] for name in self._extras} if self._extras else None,
            False,
            row=row,
        )

    def next_of(self, data: dict[str, Any]) -> Any:
        """The next observation of a step, in the dtypes of `obs`; None if it is not finite."""
        (leaves, structure), (like, _) = _native.flatten(data[self.next_name or ""]), _native.flatten(data["obs"])
        cast_to = [np.asarray(leaf).astype(np.asarray(own).dtype) for leaf, own in zip(leaves, like, strict=True)]
        finite = all(np.isfinite(leaf).all() for leaf in cast_to if leaf.dtype.kind == "f")
        return structure.unflatten(cast_to) if finite else None

    def continues(self, data: dict[str, Any], obs: Any) -> bool:
        """Whether a step's next observation, if the data set has it, is `obs`, that of the next row."""
        if self.next_name is None:
            return True
        (found, _), (expected, _) = _native.flatten(data[self.next_name]), _native.flatten(obs)
        return all(itertools.starmap(_is_same, zip(found, expected, strict=True)))


def _parts(source: DatasetSource, name: str) -> dict[str, tuple[int | None, ...]]:
    """The shape of each part of a column, by its path within the column."""
    columns = source.columns.items()
    return {path[len(name) :]: spec.shape for path, spec in columns if path.partition("/")[0] == name}


def _is_same(found: Any, expected: Any) -> bool:
    """Whether two arrays are equal, in the shorter of their dtypes if one has floats; NaN equals NaN."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.dtype == expected.dtype and found.tobytes() == expected.tobytes():  # the usual case; the shapes are equal
        return True
    floats = [array.dtype for array in (found, expected) if array.dtype.kind == "f"]
    if floats and {found.dtype.kind, expected.dtype.kind} <= set("biuf"):
        shorter = min(floats, key=lambda dtype: dtype.itemsize)
        with np.errstate(over="ignore"):
            return np.array_equal(found.astype(shorter), expected.astype(shorter), equal_nan=True)
    return np.array_equal(found, expected)


def _hint(names: Sequence[str]) -> str:
    """Advice about missing columns."""
    if "discount" in names and "next_obs" in names:
        return "its rows are items of a replay table, each a transition of its own and not steps: import them as items"
    renames: dict[str, str] = {}
    for name, own in OTHER_NAMES.items():
        if name in names and own not in names and own not in renames.values():
            renames[name] = own
    return _with_names(renames or {"OLD": "NEW"})


def _with_names(renames: dict[str, str]) -> str:
    """Advice to give columns other names, as each interface takes them."""
    pairs = [f"{old}={new}" for old, new in renames.items()]
    options = " ".join(f"--rename {pair}" for pair in pairs)
    setting = f"dataset_rename={json.dumps(pairs)}"
    return (
        f"rename={renames} of open_dataset, {options} of `reverie data` and {setting} of `train` (in a shell"
        f" --set '{setting}') give columns other names"
    )


def _pairs(steps: Iterator[EpisodeRow]) -> Iterator[tuple[EpisodeRow, EpisodeRow | None]]:
    """Each step with the next one; the last with None."""
    return itertools.pairwise(cast("Iterator[EpisodeRow]", itertools.chain(steps, [None])))
