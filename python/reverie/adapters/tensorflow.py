"""Datasets as TensorFlow's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from reverie import _native
from reverie._tensorflow import tensorflow
from reverie.specs import TensorSpec

__all__ = ["dataset"]


def dataset(elements: Iterable[Any], element_spec: Any) -> Any:
    """A `tf.data.Dataset` of these elements; every iterator of it makes one of theirs.

    Args:
        elements: gives nests of arrays, lists as tuples.
        element_spec: the nest of `TensorSpec`s that each has.
    """
    tf = tensorflow("Dataset.as_tf", "the dataset itself, whose elements are NumPy arrays, or its .torch()")
    leaves, structure = _native.flatten(element_spec)
    specs = [tf.TensorSpec(leaf.shape, _dtype(tf, leaf), leaf.name) for leaf in leaves]
    return tf.data.Dataset.from_generator(lambda: iter(elements), output_signature=structure.unflatten(specs))


def _dtype(tf: Any, spec: TensorSpec) -> Any:
    return tf.string if spec.dtype.kind in "SU" else tf.as_dtype(np.dtype(spec.dtype))
