"""Batches with the arrays of another library."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from reverie import _native
from reverie.types import Batch


def converted(
    batch: Batch,
    to_array: Callable[[np.ndarray[Any, Any]], Any],
    weights_as: Callable[[np.ndarray[Any, Any]], Any] | None,
) -> Batch:
    """The batch with `to_array` of each array in its data and in the fields of windows.

    `info` stays NumPy, as do columns of bytes and str. `Batch.weights` is what `weights_as` makes of its array, or that
    array for None.
    """

    def convert(nest: Any) -> Any:
        if nest is None:
            return None
        leaves, structure = _native.flatten(nest)
        return structure.unflatten([leaf if leaf.dtype.kind in "SU" else to_array(leaf) for leaf in leaves])

    fields = ("data", "mask", "lengths", "is_first", "start", "loss_mask")
    nests = {name: convert(getattr(batch, name)) for name in fields}
    return dataclasses.replace(batch, **nests, _weights_as=weights_as)
