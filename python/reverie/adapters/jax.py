"""JAX: batches as arrays of JAX."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from reverie import _native
from reverie.types import Batch

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise ImportError('JAX is missing: pip install "reverie[jax]"') from error

__all__ = ["converter", "to_array", "to_jax"]


def to_array(array: np.ndarray[Any, Any], device: Any = None) -> jax.Array:
    """An array of JAX, by way of dlpack: on the CPU over the same memory where that is aligned as JAX wants it.

    Nobody else writes to a batch's memory, and it is not used again before the array of JAX is gone.

    Args:
        array: of numbers or bools. Without JAX's 64-bit mode, 64-bit numbers become 32-bit ones, as everywhere there.
        device: a `jax.Device` or a sharding; None leaves the array on the CPU's default device.
    """
    # Extension types (bfloat16 and its like), and 64-bit ones that become narrower, are for JAX itself to read.
    as_it_is = array.dtype.kind in "biufc" and jax.dtypes.canonicalize_dtype(array.dtype) == array.dtype
    made = jax.dlpack.from_dlpack(array) if as_it_is and array.size else jnp.asarray(array)
    return made if device is None else jax.device_put(made, device)


def to_jax(batch: Batch, device: Any = None) -> Batch:
    """The batch with arrays of JAX in `data`, `mask` and `lengths`.

    `info` stays NumPy: its keys are int64, which JAX has in its 64-bit mode only, and go back to `update_priorities`.
    Columns of bytes and str stay NumPy too, as JAX has no arrays of text.
    """

    def convert(nest: Any) -> Any:
        if nest is None:
            return None
        leaves, structure = _native.flatten(nest)
        return structure.unflatten([leaf if leaf.dtype.kind in "SU" else to_array(leaf, device) for leaf in leaves])

    return dataclasses.replace(
        batch,
        data=convert(batch.data),
        mask=convert(batch.mask),
        lengths=convert(batch.lengths),
        is_first=convert(batch.is_first),
        start=convert(batch.start),
        loss_mask=convert(batch.loss_mask),
    )


def converter(device: Any) -> Callable[[Batch], Batch]:
    """`to_jax` with this device."""
    return lambda batch: to_jax(batch, device)
