"""JAX: batches as arrays of JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from reverie.adapters.batches import converted
from reverie.types import Batch

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise ImportError('JAX is missing: pip install "reverie[jax]"') from error

__all__ = ["converter", "to_array", "to_jax"]


def to_array(array: np.ndarray[Any, Any], device: Any = None) -> jax.Array:
    """A JAX array, through dlpack: on the CPU it shares the memory where the alignment suits JAX.

    Nothing else writes to a batch's memory, which is not reused while the JAX array exists.

    Args:
        array: of numbers or bools. Without JAX's 64-bit mode, 64-bit numbers become 32-bit ones.
        device: a `jax.Device` or a sharding; None leaves the array on the CPU's default device.
    """
    # JAX itself converts extension types (such as bfloat16), and 64-bit types that become narrower.
    as_it_is = array.dtype.kind in "biufc" and jax.dtypes.canonicalize_dtype(array.dtype) == array.dtype
    made = jax.dlpack.from_dlpack(array) if as_it_is and array.size else jnp.asarray(array)
    return made if device is None else jax.device_put(made, device)


def to_jax(batch: Batch, device: Any = None) -> Batch:
    """The batch with JAX arrays in `data`, `mask` and `lengths`, and in the fields of windows; `weights` gives float32.

    `info` stays NumPy: `update_priorities` takes its keys, which are int64, and JAX has that in its 64-bit mode only.
    Columns of bytes and str stay NumPy too: JAX has no arrays of text.
    """

    return converted(batch, functools.partial(to_array, device=device), functools.partial(_float32, device=device))


def _float32(array: np.ndarray[Any, Any], device: Any) -> jax.Array:
    return to_array(array.astype(np.float32), device)


def converter(device: Any) -> Callable[[Batch], Batch]:
    """`to_jax` with this device."""
    return lambda batch: to_jax(batch, device)
