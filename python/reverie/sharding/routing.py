"""Arguments that are spread over shards by their keys, and what comes back in their order."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from reverie import _native
from reverie.types import Batch, BatchInfo

__all__ = ["arrays", "in_order", "keys", "refuse_negative"]


def keys(given: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Keys as one array; TypeError for what are no ints."""
    array = np.asarray(given)
    if not array.size:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"keys must be ints, got {array.dtype}")
    return array.astype(np.int64, copy=False).reshape(-1)


def arrays(
    given: npt.ArrayLike, priorities: npt.ArrayLike, if_version: npt.ArrayLike | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64] | None]:
    """The arguments of an update as arrays of one length; ValueError where they are not."""
    found = keys(given), np.asarray(priorities, np.float64).reshape(-1)
    versions = None if if_version is None else np.asarray(if_version).reshape(-1)
    lengths = [len(found[0]), len(found[1]), len(found[0]) if versions is None else len(versions)]
    if len(set(lengths)) > 1:
        count = "none" if versions is None else lengths[2]
        raise ValueError(
            f"keys, priorities and if_version must have one length, got {lengths[0]}, {lengths[1]}, {count}"
        )
    if not np.isfinite(found[1]).all():
        raise ValueError(f"a priority must be a finite number, got {found[1][~np.isfinite(found[1])][0]}")
    return *found, versions


def refuse_negative(priorities: npt.NDArray[np.float64]) -> None:
    """Refuses what a Prioritized selector refuses, before any shard has taken a part of it."""
    if (priorities < 0).any():
        raise ValueError(f"a priority of a Prioritized selector must not be negative, got {priorities.min()}")


def in_order(parts: list[Batch], order: npt.NDArray[np.intp]) -> Batch:
    """Batches of items that look alike as one, its rows in this order."""

    def joined(columns: list[Any]) -> Any:
        return np.concatenate(columns)[order]

    leaves = [_native.flatten(part.data) for part in parts]
    data = leaves[0][1].unflatten(
        [joined(list(columns)) for columns in zip(*(each for each, _ in leaves), strict=True)]
    )
    fields = dataclasses.fields(BatchInfo)
    return Batch(BatchInfo(*(joined([getattr(part.info, field.name) for part in parts]) for field in fields)), data)
