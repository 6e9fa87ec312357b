"""TensorFlow, where the user has it: datasets as `tf.data.Dataset`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reverie import _native

__all__ = ["as_tf"]


def as_tf(dataset: Any) -> Any:
    """A `tf.data.Dataset` over a dataset of Reverie, made anew for every iterator.

    Raises:
        ImportError: TensorFlow is not installed.
    """
    try:
        import tensorflow as tf
    except ImportError as error:
        raise ImportError("as_tf() gives a tf.data.Dataset and needs TensorFlow: pip install tensorflow") from error

    leaves, structure = _native.flatten(dataset.element_spec)
    signature = tuple(tf.TensorSpec(spec.shape, tf.as_dtype(spec.dtype), spec.name) for spec in leaves)

    def flat() -> Iterator[tuple[Any, ...]]:
        for element in dataset:
            yield tuple(_native.flatten(element)[0])

    made = tf.data.Dataset.from_generator(flat, output_signature=signature)
    return made.map(lambda *columns: structure.unflatten(list(columns)))
