"""Datasets as TensorFlow's own."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from reverie import _native
from reverie._tensorflow import specs, tensorflow
from reverie.errors import (
    ClosedError,
    DeadlineExceededError,
    ReplayError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnknownTableError,
)

__all__ = ["accept", "dataset", "errors_as_theirs", "expanded", "is_tracing", "spec_of", "waiting"]


#: Seconds for which a wait of ours holds up TensorFlow, which cannot cancel Python: it does between two of them.
LOOK_SECONDS = 0.1


def dataset(elements: Iterable[Any], element_spec: Any) -> Any:
    """A `tf.data.Dataset` of these elements; every iterator of it makes one of theirs.

    Args:
        elements: gives nests of arrays, lists as tuples.
        element_spec: the nest of `TensorSpec`s that each has.
    """
    tf = tensorflow("Dataset.as_tf", "the dataset itself, whose elements are NumPy arrays, or its .torch()")
    return _made(tf, lambda: iter(elements), specs(tf, element_spec))


def waiting(looks: Callable[..., Iterator[Any]], element_spec: Any, texts: Iterable[Any] = ()) -> Any:
    """As `dataset`, of elements that are waited for: an iterator that is let go of meanwhile ends within a look.

    Args:
        looks: gives the elements, and None each time that none came within as many seconds as it is given.
        texts: what it is given besides, as str. May be tensors, those of a graph too.
    """
    tf = tensorflow("Dataset.as_tf", "the dataset itself, whose elements are NumPy arrays, or its .torch()")
    leaves, structure = _native.flatten(element_spec)
    nothing = structure.unflatten([np.zeros([size or 0 for size in leaf.shape], leaf.dtype) for leaf in leaves])

    def elements(*values: bytes) -> Iterator[Any]:
        for element in looks(LOOK_SECONDS, *(value.decode() for value in values)):
            yield (False, nothing) if element is None else (True, element)

    signature = (tf.TensorSpec((), tf.bool), specs(tf, element_spec))
    looked = _made(tf, elements, signature, tuple(texts))
    return looked.filter(lambda there, _: there).map(lambda _, element: element)


def expanded(steps: Any, make: Callable[[Iterator[Any]], Iterator[Any]], element_spec: Any) -> Any:
    """As `dataset`, of what `make` makes of a `tf.data.Dataset` of a graph, which is gone through as one batch."""
    tf = tensorflow("a dataset in a graph", "its steps")
    spec = steps.element_spec

    def elements(*columns: Any) -> Iterator[Any]:
        rows = zip(*columns, strict=True)
        return make(tf.nest.pack_sequence_as(spec, list(row)) for row in rows)

    def of(*parts: Any) -> Any:
        whole = parts if isinstance(spec, tuple) and not hasattr(spec, "_fields") else parts[0]
        columns = tuple(tf.nest.flatten(whole))
        return tf.data.Dataset.from_generator(elements, args=columns, output_signature=specs(tf, element_spec))

    return steps.batch(tf.int64.max).flat_map(of)


def accept(kind: type[Any]) -> None:
    """Lets functions that TensorFlow traces, such as those of `interleave` and `flat_map`, return a `kind`.

    TensorFlow asks a value for `_type_spec`, `_convert_variables_to_tensors` and `_variant_tensor` where it is one of
    its composite tensors. Does nothing where TensorFlow was not imported: then nobody traces.
    """
    tf = sys.modules.get("tensorflow")
    if tf is not None and kind not in _ACCEPTED:
        tf.__internal__.CompositeTensor.register(kind)
        _ACCEPTED.add(kind)


_ACCEPTED: set[type[Any]] = set()


@contextlib.contextmanager
def errors_as_theirs() -> Iterator[None]:
    """What is raised inside becomes an error of the same class and text that is one of `tf.errors`, too.

    For calls that run at once. Those of a graph raise inside of TensorFlow, which makes its own of them.
    """
    tf = tensorflow("errors as TensorFlow's", "reverie.errors")
    try:
        yield
    except (ReplayError, ValueError) as error:
        if isinstance(error, tf.errors.OpError):
            raise
        name = next((name for ours, name in _THEIRS.items() if isinstance(error, ours)), "UnknownError")
        raise _theirs(tf, error, name).with_traceback(error.__traceback__) from None


#: The first that fits. Names of `tf.errors`, as dm-reverb's operations raise them.
_THEIRS: dict[type[Exception], str] = {
    UnknownTableError: "NotFoundError",
    ValueError: "InvalidArgumentError",
    DeadlineExceededError: "DeadlineExceededError",
    ResourceExhaustedError: "ResourceExhaustedError",
    UnavailableError: "UnavailableError",
    ClosedError: "CancelledError",
    UnauthenticatedError: "UnauthenticatedError",
}


def _theirs(tf: Any, error: Exception, name: str) -> Exception:
    ours: Any = type(error)
    made = _both(ours, getattr(tf.errors, name))(None, None, str(error))
    vars(made).update(vars(error), _ours=functools.partial(ours, *error.args, **vars(error)))
    return made


@functools.cache
def _both(ours: Any, theirs: Any) -> Callable[..., Exception]:
    """A class that is both. What is pickled or copied of it is ours: other processes may not have TensorFlow."""

    def reduced(self: Any) -> tuple[Any, ...]:
        return self._ours, ()

    return type(ours.__name__, (ours, theirs), {"__init__": theirs.__init__, "__reduce__": reduced})


def is_tracing() -> bool:
    """True inside a function that TensorFlow makes a graph of: what is called there must be its own operations."""
    tf = sys.modules.get("tensorflow")
    return tf is not None and bool(tf.inside_function())


def spec_of(element_spec: Any) -> Any:
    """The `tf.data.DatasetSpec` of a dataset whose elements have this nest of `TensorSpec`s."""
    tf = tensorflow("a dataset's spec", "its .element_spec")
    return tf.data.DatasetSpec(specs(tf, element_spec))


def _made(tf: Any, elements: Callable[..., Iterator[Any]], signature: Any, args: tuple[Any, ...] = ()) -> Any:
    """A dataset that has the methods of TensorFlow 1, too, as those of dm-reverb have: iterators of sessions."""
    return tf.compat.v1.data.Dataset.from_generator(elements, args=args, output_signature=signature)
