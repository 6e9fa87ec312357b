"""TensorFlow, where it is installed, and only when something is asked for that is made of it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from reverie import _native

__all__ = ["specs", "stands_in", "tensorflow", "told"]


def stands_in() -> bool:
    """True where this package stands in for dm-reverb in a program that uses TensorFlow.

    That is where `sys.modules["reverb"]` is this package and TensorFlow was imported. Datasets are TensorFlow's there,
    as those of dm-reverb are everywhere.
    """
    return "tensorflow" in sys.modules and sys.modules.get("reverb") is sys.modules[__package__]


def told(signature: Any) -> Any:
    """A nest of specs that was made for a program: of `tf.TensorSpec`s where this package stands in for dm-reverb.

    Those say of everything else, ours too, that it is not equal. What a server tells remains ours: it is equal to any
    spec of TensorFlow with its shape, dtype and name, to one with bounds as well, which a server does not keep.
    """
    return specs(sys.modules["tensorflow"], signature) if stands_in() else signature


def specs(tf: Any, nest: Any) -> Any:
    """The nest of `TensorSpec`s as TensorFlow's; text of any width is `tf.string`."""
    leaves, structure = _native.flatten(nest)
    return structure.unflatten([tf.TensorSpec(leaf.shape, _dtype(tf, leaf.dtype), leaf.name) for leaf in leaves])


def _dtype(tf: Any, dtype: np.dtype[Any]) -> Any:
    return tf.string if dtype.kind in "SU" else tf.as_dtype(dtype)


def tensorflow(what: str, instead: str) -> Any:
    """The module.

    Args:
        what: what was asked for.
        instead: what does the same without TensorFlow.

    Raises:
        ImportError: it is not installed; the text says what replaces what was asked for.
    """
    try:
        import tensorflow

        return tensorflow
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise ImportError(
            f"{what} gives TensorFlow's tensors, and TensorFlow is not installed (pip install tensorflow); without it "
            f"use {instead}",
            name="tensorflow",
        ) from None
