"""TensorFlow: datasets as `tf.data.Dataset`s, and errors as those of `tf.errors`."""

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

__all__ = ["accept", "dataset", "errors_as_tensorflow", "expanded", "is_tracing", "spec_of", "waiting"]


#: Seconds that a dataset waits for an element at a time: TensorFlow can only cancel it between two waits.
POLL_SECONDS = 0.1


def dataset(elements: Iterable[Any], element_spec: Any) -> Any:
    """A `tf.data.Dataset` of these elements; each of its iterators makes a new iterator over them.

    Args:
        elements: an iterable of nests of arrays, with tuples in place of lists.
        element_spec: the nest of `TensorSpec`s of an element.
    """
    tf = tensorflow("Dataset.as_tf", "the dataset itself, whose elements are NumPy arrays, or its .torch()")
    return _made(tf, lambda: iter(elements), specs(tf, element_spec))


def waiting(poll: Callable[..., Iterator[Any]], element_spec: Any, texts: Iterable[Any] = ()) -> Any:
    """Like `dataset`, for elements that have to be waited for: a deleted iterator ends within `POLL_SECONDS`.

    Args:
        poll: a function of a number of seconds and of `texts`; it returns an iterator of the elements, and of None
            each time that no element arrived within these seconds.
        texts: further arguments of `poll`, as str or as tensors, which may be those of a graph.
    """
    tf = tensorflow("Dataset.as_tf", "the dataset itself, whose elements are NumPy arrays, or its .torch()")
    leaves, structure = _native.flatten(element_spec)
    nothing = structure.unflatten([np.zeros([size or 0 for size in leaf.shape], leaf.dtype) for leaf in leaves])

    def elements(*values: bytes) -> Iterator[Any]:
        for element in poll(POLL_SECONDS, *(value.decode() for value in values)):
            yield (False, nothing) if element is None else (True, element)

    signature = (tf.TensorSpec((), tf.bool), specs(tf, element_spec))
    polled = _made(tf, elements, signature, tuple(texts))
    return polled.filter(lambda there, _: there).map(lambda _, element: element)


def expanded(steps: Any, make: Callable[[Iterator[Any]], Iterator[Any]], element_spec: Any) -> Any:
    """Like `dataset`, for the elements that `make` makes from a dataset in a graph, read as one batch."""
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
    """Allows functions that TensorFlow traces, such as those of `interleave` and `flat_map`, to return a `kind`.

    TensorFlow reads `_type_spec`, `_convert_variables_to_tensors` and `_variant_tensor` of its composite tensors. Does
    nothing where TensorFlow was not imported: then no function is traced.
    """
    tf = sys.modules.get("tensorflow")
    if tf is not None and kind not in _ACCEPTED:
        tf.__internal__.CompositeTensor.register(kind)
        _ACCEPTED.add(kind)


_ACCEPTED: set[type[Any]] = set()


@contextlib.contextmanager
def errors_as_tensorflow() -> Iterator[None]:
    """Errors raised in this block get a class that is both their own and one of `tf.errors`, with the same text.

    For calls that run eagerly. In a graph TensorFlow catches the error, and raises one of its own.
    """
    tf = tensorflow("errors as TensorFlow's", "reverie.errors")
    try:
        yield
    except (ReplayError, ValueError) as error:
        if isinstance(error, tf.errors.OpError):
            raise
        name = next((name for ours, name in _ERROR_NAMES.items() if isinstance(error, ours)), "UnknownError")
        raise _as_tensorflow_error(tf, error, name).with_traceback(error.__traceback__) from None


#: The names in `tf.errors` that dm-reverb raises; the first class that matches counts.
_ERROR_NAMES: dict[type[Exception], str] = {
    UnknownTableError: "NotFoundError",
    ValueError: "InvalidArgumentError",
    DeadlineExceededError: "DeadlineExceededError",
    ResourceExhaustedError: "ResourceExhaustedError",
    UnavailableError: "UnavailableError",
    ClosedError: "CancelledError",
    UnauthenticatedError: "UnauthenticatedError",
}


def _as_tensorflow_error(tf: Any, error: Exception, name: str) -> Exception:
    ours: Any = type(error)
    made = _both(ours, getattr(tf.errors, name))(None, None, str(error))
    vars(made).update(vars(error), _ours=error.__reduce__())
    return made


@functools.cache
def _both(ours: Any, theirs: Any) -> Callable[..., Exception]:
    """A class that inherits from both. It pickles and copies as ours: other processes may not have TensorFlow."""

    def reduced(self: Any) -> tuple[Any, ...]:
        ours: tuple[Any, ...] = self._ours
        return ours

    return type(ours.__name__, (ours, theirs), {"__init__": theirs.__init__, "__reduce__": reduced})


def is_tracing() -> bool:
    """True inside a function that TensorFlow traces into a graph: only its own operations work there."""
    tf = sys.modules.get("tensorflow")
    return tf is not None and bool(tf.inside_function())


def spec_of(element_spec: Any) -> Any:
    """The `tf.data.DatasetSpec` of a dataset whose elements have this nest of `TensorSpec`s."""
    tf = tensorflow("a dataset's spec", "its .element_spec")
    return tf.data.DatasetSpec(specs(tf, element_spec))


def _made(tf: Any, elements: Callable[..., Iterator[Any]], signature: Any, args: tuple[Any, ...] = ()) -> Any:
    """A dataset that also has the methods of TensorFlow 1, for iterators in sessions, as dm-reverb's datasets do."""
    return tf.compat.v1.data.Dataset.from_generator(elements, args=args, output_signature=signature)
