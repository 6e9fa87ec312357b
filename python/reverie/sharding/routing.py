"""Splits arguments over shards by their keys, and merges the results in the order of the arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from reverie import _native
from reverie.errors import RaggedError
from reverie.types import Batch, BatchInfo

__all__ = ["arrays", "in_order", "keys", "merged", "refuse_negative"]


def keys(given: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Keys as one array. Raises TypeError for values that are not ints."""
    array = np.asarray(given)
    if not array.size:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"keys must be ints, got {array.dtype}")
    return array.astype(np.int64, copy=False).reshape(-1)


def arrays(
    given: npt.ArrayLike, priorities: npt.ArrayLike, if_version: npt.ArrayLike | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64] | None]:
    """The arguments of an update as arrays. Raises ValueError for different lengths, or priorities not finite."""
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
    """Raises ValueError for negative priorities, as a Prioritized selector does, before any shard has applied some."""
    if (priorities < 0).any():
        raise ValueError(f"a priority of a Prioritized selector must not be negative, got {priorities.min()}")


def in_order(parts: list[Batch], order: npt.NDArray[np.intp], ragged: Literal["pad", "values"] | None) -> Batch:
    """Joins batches into one, with its rows in this order. Raises RaggedError or ValueError if that is impossible."""
    if len(parts) == 1:
        # The places of one shard are ascending, so they are in order.
        return parts[0]
    if ragged == "values":
        raise ValueError(
            'ragged="values" puts cells behind one another, which several shards cannot do together: pass ragged="pad",'
            " or read each shard's keys with its own client"
        )
    leaves = [_native.flatten(part.data) for part in parts]
    structure = leaves[0][1]
    columns = zip(structure.paths, zip(*(each for each, _ in leaves), strict=True), strict=True)
    data = structure.unflatten([_joined(list(column), path, order, ragged is not None) for path, column in columns])
    fields = [field.name for field in dataclasses.fields(BatchInfo)]
    info = BatchInfo(*(np.concatenate([getattr(part.info, field) for part in parts])[order] for field in fields))
    batch = Batch(info, data)
    masks = [part.mask for part in parts]
    if isinstance(masks[0], dict):
        batch.mask = {path: _joined([mask[path] for mask in masks], path, order, True) for path in masks[0]}
    elif masks[0] is not None:
        batch.mask = _joined(masks, "mask", order, True)
    return batch


def _joined(parts: list[npt.NDArray[Any]], path: str, order: npt.NDArray[np.intp], pads: bool) -> npt.NDArray[Any]:
    """Rows of several arrays in this order; `pads` pads the second axis of shorter ones with zeros."""
    longest = max((part.shape[1] for part in parts if part.ndim > 1), default=0)
    lengths = {part.shape[1] for part in parts if part.ndim > 1}
    if len(lengths) > 1 and not pads:
        raise RaggedError(
            f"column '{path}': items of {min(lengths)} to {max(lengths)} cells make no array; pass ragged=\"pad\"",
            path=path,
        )
    if len(lengths) > 1:
        parts = [np.pad(part, [(0, 0), (0, longest - part.shape[1])] + [(0, 0)] * (part.ndim - 2)) for part in parts]
    return np.concatenate(parts)[order]


def merged(
    found: Mapping[int, BatchInfo], ahead: Mapping[int, float], size: int, order: str | None, limit: int | None
) -> BatchInfo:
    """Merges the results of the shards' queries into the result that one table would return.

    Args:
        found: the result of every shard, in the requested order.
        ahead: seconds by which each shard's clock is ahead of a common clock.
        size: items of all shards.
        order, limit: as of `Client.query`.
    """
    names = [field.name for field in dataclasses.fields(BatchInfo)]
    columns = {name: np.concatenate([getattr(info, name) for info in found.values()]) for name in names}
    inserted = np.concatenate([info.inserted_at - ahead[shard] for shard, info in found.items()])
    field, descends = (order or "").removeprefix("-"), (order or "").startswith("-")
    # The youngest have the smallest age.
    by = {"": inserted, "age": -inserted}.get(field, columns.get(field, inserted))
    # Equal values are in order of insertion.
    places = np.lexsort((inserted, -by if descends else by))[:limit]
    columns["table_size"] = np.full(len(inserted), size)
    return BatchInfo(*(columns[name][places] for name in names))
