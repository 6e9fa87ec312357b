"""TensorFlow, where it is installed: imported when a call needs it, and never before."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from reverie import _native

__all__ = ["as_program_expects", "replaces_dm_reverb", "specs", "tensorflow"]


def replaces_dm_reverb() -> bool:
    """True where this package replaces dm-reverb in a program that uses TensorFlow.

    That is where `sys.modules["reverb"]` is this package and TensorFlow was imported. Datasets are TensorFlow's there,
    as all datasets of dm-reverb are.
    """
    return "tensorflow" in sys.modules and sys.modules.get("reverb") is sys.modules[__package__]


def as_program_expects(signature: Any) -> Any:
    """A nest of our specs, or of `tf.TensorSpec`s where this package replaces dm-reverb.

    A `tf.TensorSpec` is equal to no spec of another class. Specs that a server returns stay ours: they are equal to any
    spec of TensorFlow with the same shape, dtype and name, bounded ones included.
    """
    return specs(sys.modules["tensorflow"], signature) if replaces_dm_reverb() else signature


def specs(tf: Any, nest: Any) -> Any:
    """The nest of `TensorSpec`s as `tf.TensorSpec`s; bytes and str of any width are `tf.string`."""
    leaves, structure = _native.flatten(nest)
    return structure.unflatten([tf.TensorSpec(leaf.shape, _dtype(tf, leaf.dtype), leaf.name) for leaf in leaves])


def _dtype(tf: Any, dtype: np.dtype[Any]) -> Any:
    return tf.string if dtype.kind in "SU" else tf.as_dtype(dtype)


def tensorflow(what: str, instead: str) -> Any:
    """The module TensorFlow.

    Args:
        what: the call that needs it.
        instead: a call that does the same without TensorFlow.

    Raises:
        ImportError: TensorFlow is not installed; the text names the other call.
    """
    try:
        import tensorflow

        return tensorflow
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise ImportError(
            f"{what} returns tensors, and TensorFlow is not installed (pip install tensorflow); without it "
            f"use {instead}",
            name="tensorflow",
        ) from None
