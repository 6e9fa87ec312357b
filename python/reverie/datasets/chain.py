"""Chains of transformations of elements, with the names of `tf.data`. NumPy only."""

from __future__ import annotations

import itertools
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import numpy as np

from reverie import _checks, _native
from reverie._forks import OwnerProcess
from reverie.specs import TensorSpec

__all__ = ["Dataset"]

#: The number of elements for `prefetch(-1)`, which is TensorFlow's AUTOTUNE.
_AUTOTUNED = 2


class Dataset(Iterable[Any]):
    """Elements, made again for every iterator; each method gives another dataset and leaves this one as it is.

    Elements are nests of arrays. As in `tf.data`, functions get the parts of a plain tuple as separate arguments, and
    every other element (a ReplaySample, a dict) as one. Nothing runs before an iterator is used, and only `prefetch`
    starts a thread.

    Args:
        make: returns a new iterator over the elements.
        element_spec: the nest of `TensorSpec`s of the elements, or None where it is not known.
    """

    def __init__(self, make: Callable[[], Iterator[Any]], element_spec: Any = None) -> None:
        self._make = make
        self._element_spec = element_spec
        if "tensorflow" in sys.modules:
            from reverie.adapters.tensorflow import accept

            accept(Dataset)

    def __iter__(self) -> Iterator[Any]:
        return self._make()

    @property
    def element_spec(self) -> Any:
        """The nest of specs of the elements. For a mapped dataset, the first element is made and read.

        Raises:
            ValueError: for a mapped dataset without elements.
        """
        if self._element_spec is None:
            for element in self:
                self._element_spec = _spec_of(element)
                break
            else:
                raise ValueError("a dataset without elements has no element_spec")
        return self._element_spec

    def as_numpy_iterator(self) -> Iterator[Any]:
        """An iterator over the elements, as NumPy arrays; that of `iter(dataset)`."""
        return iter(self)

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Stacks groups of `batch_size` elements along a new first axis; the last may be smaller unless it is dropped.

        `num_parallel_calls`, `deterministic` and `name` are `tf.data`'s, and ignored: one thread keeps the order.
        """
        batch_size = _checks.count("batch_size", batch_size, 1)

        def make() -> Iterator[Any]:
            elements = iter(self)
            while group := list(itertools.islice(elements, batch_size)):
                if len(group) < batch_size and drop_remainder:
                    return
                yield _stack(group)

        return Dataset(make, _batched_spec(self._element_spec, batch_size if drop_remainder else None))

    def unbatch(self) -> Dataset:
        """Splits every element along its first axis."""

        def make() -> Iterator[Any]:
            for element in self:
                leaves, structure = _native.flatten(element)
                for row in range(len(leaves[0])):
                    yield structure.unflatten([leaf[row] for leaf in leaves])

        return Dataset(make)

    def map(
        self,
        function: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """`function(element)` for every element; the other arguments are those of `batch`.

        In a function that TensorFlow traces, such as that of `interleave`, this is `.as_tf().map(function)`.
        """
        if self._is_traced():
            traced: Dataset = self.as_tf().map(function, num_parallel_calls, deterministic, name=name)
            return traced
        return Dataset(lambda: (_call(function, element) for element in self))

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """The elements for which `predicate` is true. TensorFlow's traced functions are handled as in `map`."""
        if self._is_traced():
            traced: Dataset = self.as_tf().filter(predicate)
            return traced
        return Dataset(lambda: (element for element in self if _call(predicate, element)), self._element_spec)

    def take(self, count: int) -> Dataset:
        """The first `count` elements; -1 is all."""
        return Dataset(lambda: itertools.islice(iter(self), None if count == -1 else count), self._element_spec)

    def skip(self, count: int) -> Dataset:
        """All but the first `count` elements."""
        return Dataset(lambda: itertools.islice(iter(self), count, None), self._element_spec)

    def repeat(self, count: int | None = None) -> Dataset:
        """The elements `count` times; None and -1 repeat them without an end."""

        def make() -> Iterator[Any]:
            rounds = itertools.count() if count in (None, -1) else range(count or 0)
            for _ in rounds:
                any_element = False
                for element in self:
                    any_element = True
                    yield element
                if not any_element:
                    return

        return Dataset(make, self._element_spec)

    def enumerate(self, start: int = 0) -> Dataset:
        """Pairs of a number and an element."""
        return Dataset(lambda: iter(enumerate(self, start)))

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Returns elements in random order from a buffer of `buffer_size` elements that is kept full.

        Args:
            buffer_size: the number of elements in the buffer.
            seed: of the order; None takes a random one.
            reshuffle_each_iteration: True gives each iterator of this dataset another order, False the same one. None
                is True without a seed, and False with one.
            name: `tf.data`'s, and ignored.
        """
        buffer_size = _checks.count("buffer_size", buffer_size, 1)
        reshuffles = seed is None if reshuffle_each_iteration is None else reshuffle_each_iteration
        entropy = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        iterators = itertools.count()

        def make() -> Iterator[Any]:
            rng = np.random.default_rng((entropy, next(iterators) if reshuffles else 0))
            elements = iter(self)
            buffer = list(itertools.islice(elements, buffer_size))
            for element in elements:
                index = int(rng.integers(len(buffer)))
                buffer[index], element = element, buffer[index]
                yield element
            rng.shuffle(buffer)
            yield from buffer

        return Dataset(make, self._element_spec)

    def prefetch(self, buffer_size: int) -> Dataset:
        """Makes up to `buffer_size` elements ahead, on a thread of its own that ends with the iterator. -1: a few.

        Elements that were made ahead and not read are dropped; of a table that is consumed they are in it no more. In
        a forked child, an iterator that the parent process made raises ForkedError.
        """
        size = _AUTOTUNED if buffer_size == -1 else _checks.count("buffer_size", buffer_size, 0)
        if size == 0:
            return self
        return Dataset(lambda: _ElementsAhead(self, size), self._element_spec)

    def with_options(self, options: object) -> Dataset:
        """Returns this dataset; options of `tf.data` have no effect."""
        return self

    def torch(self) -> Any:
        """The elements as a `torch.utils.data.IterableDataset`, arrays as tensors."""
        from reverie.adapters.torch import iterable_dataset

        return iterable_dataset(self)

    def as_tf(self) -> Any:
        """The elements as a `tf.data.Dataset`, arrays as tensors, for pipelines that need one (`interleave`).

        It runs Python for every element (`tf.data.Dataset.from_generator`): `.batch(n)` before `.as_tf()` is faster
        than after it. Each of its iterators draws again.

        Raises:
            ImportError: TensorFlow is not installed.
            ValueError: the dataset has no elements, and its spec is not known.
        """
        from reverie.adapters.tensorflow import dataset

        return dataset(self, self.element_spec)

    @staticmethod
    def _is_traced() -> bool:
        if "tensorflow" not in sys.modules:
            return False
        from reverie.adapters.tensorflow import is_tracing

        return is_tracing()

    # TensorFlow reads these of a dataset that a function returned to it: see `adapters.tensorflow.accept`.
    @property
    def _type_spec(self) -> Any:
        from reverie.adapters.tensorflow import spec_of

        return spec_of(self.element_spec)

    def _convert_variables_to_tensors(self) -> Self:
        return self

    @property
    def _variant_tensor(self) -> Any:
        return self.as_tf()._variant_tensor


class _ElementsAhead(Iterator[Any]):
    """Elements that a thread makes ahead; the size of the queue limits their number."""

    def __init__(self, dataset: Dataset, size: int) -> None:
        self._ready: queue.Queue[tuple[bool, Any]] = queue.Queue(size)
        self._stop = threading.Event()
        self._process = OwnerProcess("iterator of a prefetched dataset")
        self._ended: tuple[bool, Any] | None = None
        thread = threading.Thread(
            target=_make_ahead, args=(dataset, self._ready, self._stop), name="reverie-dataset", daemon=True
        )
        thread.start()

    def __next__(self) -> Any:
        self._process.check()
        if self._ended is None:
            is_element, value = self._ready.get()
            if is_element:
                return value
            self._ended = (is_element, value)
        error, self._ended = self._ended[1], (False, None)
        if error is not None:
            raise error
        raise StopIteration

    def __del__(self) -> None:
        self._stop.set()


def _make_ahead(dataset: Dataset, ready: queue.Queue[tuple[bool, Any]], stop: threading.Event) -> None:
    """Fills the queue until the end, an error or a stop. It has no reference to the reader, whose deletion stops it."""

    def put(entry: tuple[bool, Any]) -> None:
        while not stop.is_set():
            try:
                return ready.put(entry, timeout=0.1)
            except queue.Full:
                continue

    try:
        for element in dataset:
            put((True, element))
            if stop.is_set():
                return
    except BaseException as error:
        put((False, error))
    else:
        put((False, None))


def _call(function: Callable[..., Any], element: Any) -> Any:
    return function(*element) if type(element) is tuple else function(element)


def _stack(elements: list[Any]) -> Any:
    """Elements of one structure, stacked leaf by leaf."""
    flat = [_native.flatten(element) for element in elements]
    structure = flat[0][1]
    columns = zip(*(leaves for leaves, _ in flat), strict=True)
    return structure.unflatten([np.stack([np.asarray(leaf) for leaf in column]) for column in columns])


def _spec_of(element: Any) -> Any:
    leaves, structure = _native.flatten(element)
    return structure.unflatten([TensorSpec(np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves])


def _batched_spec(spec: Any, batch_size: int | None) -> Any:
    if spec is None:
        return None
    leaves, structure = _native.flatten(spec)
    return structure.unflatten([TensorSpec((batch_size, *leaf.shape), leaf.dtype, leaf.name) for leaf in leaves])
