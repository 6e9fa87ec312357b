"""dm-reverb's datasets of a table: whole trajectories, or their steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Self, final

import numpy as np

from reverie import _checks, _native
from reverie._tensorflow import replaces_dm_reverb
from reverie.client import Client
from reverie.datasets.chain import Dataset
from reverie.errors import DeadlineExceededError, SignatureError
from reverie.specs import TensorSpec, in_order_of
from reverie.types import Batch, ReplaySample, SampleInfo

__all__ = ["TimestepDataset", "TrajectoryDataset"]

_WITHOUT_END = 1 << 62
_INFO_SPEC = SampleInfo(
    TensorSpec((), np.uint64), TensorSpec((), np.float64), TensorSpec((), np.int64), TensorSpec((), np.float64),
    TensorSpec((), np.int32),
)  # fmt: skip


class _TableDataset(Dataset):
    """The base class of both: the arguments, and the structure of the samples."""

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """A dataset; a `tf.data.Dataset` where this package replaces dm-reverb in a program that uses TensorFlow."""
        self = super().__new__(cls)
        if not replaces_dm_reverb():
            return self
        from reverie.adapters import tensorflow

        self.__init__(*arguments, **options)  # type: ignore[misc]
        named = (self._client_or_address, self._table)
        if all(isinstance(value, str | Client) for value in named):
            theirs = self.as_tf()
        else:
            theirs = tensorflow.waiting(self._samples_at, self.element_spec, named)
        return theirs  # type: ignore[no-any-return]

    def __init__(
        self,
        server_address: str | Client,
        table: str,
        dtypes: Any,
        shapes: Any,
        max_in_flight_samples_per_worker: int,
        num_workers_per_iterator: int = -1,
        max_samples_per_stream: int = -1,
        rate_limiter_timeout_ms: int = -1,
        max_samples: int = -1,
    ) -> None:
        specs = _specs(dtypes, shapes)
        count = _checks.count("max_in_flight_samples_per_worker", max_in_flight_samples_per_worker, 1)
        workers = _count_or_auto("num_workers_per_iterator", num_workers_per_iterator)
        per_stream = _count_or_auto("max_samples_per_stream", max_samples_per_stream)
        self._max_samples = _count_or_auto("max_samples", max_samples)
        if rate_limiter_timeout_ms < -1:
            raise ValueError(f"rate_limiter_timeout_ms must be an integer >= -1, got {rate_limiter_timeout_ms}")
        self._timeout = None if rate_limiter_timeout_ms == -1 else rate_limiter_timeout_ms / 1e3
        #: Draws that are requested ahead of the reader, and those of one request.
        self._in_flight = count * (workers or 1)
        self._at_once = min(self._in_flight, per_stream or self._in_flight)
        self._client_or_address = _text(server_address)
        self._table = _text(table)
        self._leaves, self._structure = _native.flatten(specs)
        super().__init__(self._samples, ReplaySample(_INFO_SPEC, specs))

    @classmethod
    def from_table_signature(
        cls,
        server_address: str | Client,
        table: str,
        max_in_flight_samples_per_worker: int,
        num_workers_per_iterator: int = -1,
        max_samples_per_stream: int = -1,
        rate_limiter_timeout_ms: int = -1,
        get_signature_timeout_secs: float | None = None,
        max_samples: int = -1,
    ) -> Self:
        """A dataset with the dtypes and shapes of the table's signature.

        Args:
            get_signature_timeout_secs: seconds to wait for the signature; None waits without a limit.

        Raises:
            ValueError: the server has no such table, or the table no signature.
            DeadlineExceededError: the server did not answer in time.
        """
        server_address, table = _text(server_address), _text(table)
        client = _client(server_address)
        tables = client.server_info(get_signature_timeout_secs)
        if table not in tables:
            raise ValueError(f"the server has no table '{table}'; it has {', '.join(map(repr, sorted(tables)))}")
        signature = tables[table].signature
        if signature is None:
            raise ValueError(f"table '{table}' has no signature; pass dtypes and shapes, or make the table with one")
        leaves, structure = _native.flatten(signature)
        return cls(
            server_address,
            table,
            structure.unflatten([leaf.dtype for leaf in leaves]),
            structure.unflatten([_Shape(leaf.shape) for leaf in leaves]),
            max_in_flight_samples_per_worker,
            num_workers_per_iterator,
            max_samples_per_stream,
            rate_limiter_timeout_ms,
            max_samples,
        )

    def as_tf(self) -> Any:
        """See `Dataset.as_tf`. An iterator that TensorFlow deletes while it waits for items ends."""
        from reverie.adapters import tensorflow

        return tensorflow.waiting(self._samples, self.element_spec)

    def _samples_at(self, look: float, server_address: str, table: str) -> Iterator[ReplaySample | None]:
        """The samples of another table, with the other arguments of this dataset."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other._client_or_address, other._table = server_address, table
        return other._samples(look)

    def _samples(self, look: float | None = None) -> Iterator[ReplaySample | None]:
        """Samples, up to `max_samples` or the timeout of the rate limiter.

        With `look`, also None each time that no sample arrived within that number of seconds.
        """
        raise NotImplementedError

    def _drawn(self, look: float | None, *, timesteps: bool) -> Iterator[Any]:
        """The samples with flat data, from which `_samples` makes its own; see there for `look`."""
        client = _client(self._client_or_address)
        timeout = client.timeout if self._timeout is None else self._timeout
        left, waited = self._max_samples or _WITHOUT_END, 0.0
        while left > 0:
            within = timeout if look is None else min(look, math.inf if timeout is None else timeout - waited)
            try:
                for sample in client._sample(
                    self._table, left, timesteps, False, within, self._at_once, form=self._structure
                ):
                    left, waited = left - 1, 0.0
                    yield sample
            except DeadlineExceededError:
                waited += within or 0.0
                if look is None or (timeout is not None and waited >= timeout):
                    return
                yield None

    def _packed(self, sample: ReplaySample) -> ReplaySample:
        info = sample.info
        typed = SampleInfo(
            np.uint64(info.key),
            np.float64(info.probability),
            np.int64(info.table_size),
            np.float64(info.priority),
            np.int32(info.times_sampled),
        )
        return ReplaySample(typed, self._in_structure(sample.data, 0))

    def _in_structure(self, cells: list[Any], batch_axes: int) -> Any:
        """The flat cells in the dataset's structure; SignatureError where they do not match its specs."""
        if len(cells) != len(self._leaves):
            raise SignatureError(
                f"table '{self._table}': items have {len(cells)} columns, dtypes and shapes name {len(self._leaves)}",
                got=f"{len(cells)} columns",
                want=f"{len(self._leaves)} columns",
            )
        for path, spec, cell in zip(self._structure.paths, self._leaves, cells, strict=True):
            shape = cell.shape[batch_axes:]
            fits = len(shape) == len(spec.shape) and all(
                want in (None, got) for want, got in zip(spec.shape, shape, strict=True)
            )
            if cell.dtype != spec.dtype or not fits:
                got, want = f"{cell.dtype} {list(shape)}", f"{spec.dtype} {list(spec.shape)}"
                raise SignatureError(
                    f"table '{self._table}', column '{path}': got {got}, want {want}", path=path, got=got, want=want
                )
        return self._structure.unflatten(cells)


@final
class TrajectoryDataset(_TableDataset):
    """Items of a table, one `ReplaySample` each; see `Dataset` for the chain of transformations.

    Fields of `info` are scalars; behind `.batch(n)` they have the shape `[n]`. `.batch(n)` as the first transformation
    draws and gathers whole batches in the engine, several ahead: it is the fast way. Draws of tables that are consumed
    (queues) are made when they are read, in exact order, and none is lost when a loop ends early, unless `prefetch` or
    `shuffle` of the chain reads ahead. Lists in `dtypes` come back as tuples.

    Args:
        server_address: `"host:port"`, or a client.
        table: the table.
        dtypes: the nest of dtypes of the data.
        shapes: the same nest with shapes (tuples; None accepts any size), which include the time axis.
        max_in_flight_samples_per_worker: draws that are requested ahead of the reader.
        num_workers_per_iterator: multiplies that number; -1 is one.
        max_samples_per_stream: the largest number of draws in one request; -1 means no limit.
        rate_limiter_timeout_ms: the iterator ends when the rate limiter makes a draw wait for longer; -1: never.
        max_samples: the iterator ends after this number of samples; -1: never.

    Raises:
        ValueError: for counts below 1 that are not -1, or `dtypes` and `shapes` of different structure.
    """

    def _samples(self, look: float | None = None) -> Iterator[ReplaySample | None]:
        for sample in self._drawn(look, timesteps=False):
            yield None if sample is None else self._packed(sample)

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Batches of `batch_size` items, drawn and gathered by the engine."""
        batch_size = _checks.count("batch_size", batch_size, 1)
        spec = super().batch(batch_size, drop_remainder).element_spec
        return Dataset(lambda: self._batches(batch_size, drop_remainder), spec)

    def _batches(self, batch_size: int, drop_remainder: bool) -> Iterator[ReplaySample]:
        client = _client(self._client_or_address)
        ahead = None if self._in_flight <= batch_size else -(-self._in_flight // batch_size)
        prefetch = ahead if ahead is None or not client._consume([self._table]) else 0
        batches = client.batches(
            self._table, batch_size, prefetch=prefetch, max_samples=self._max_samples, timeout=self._timeout
        )
        with batches:
            while True:
                try:
                    batch = next(batches, None)
                except DeadlineExceededError as error:
                    if error.partial is not None and not drop_remainder:
                        yield self._batched(error.partial)
                    return
                if batch is None or (len(batch) < batch_size and drop_remainder):
                    return
                yield self._batched(batch)

    def _batched(self, batch: Batch) -> ReplaySample:
        info = batch.info
        typed = SampleInfo(
            info.key.astype(np.uint64),
            info.probability,
            info.table_size,
            info.priority,
            info.times_sampled.astype(np.int32),
        )
        cells, structure = _native.flatten(batch.data)
        if structure != self._structure and len(cells) == len(self._leaves):
            cells = in_order_of(self._structure, cells, structure)
        if any(cell.ndim == len(spec.shape) for cell, spec in zip(cells, self._leaves, strict=False)):
            # Single steps that were inserted have no time axis; trajectories of one step have one.
            cells = [
                cell[:, np.newaxis] if cell.ndim == len(spec.shape) else cell
                for cell, spec in zip(cells, self._leaves, strict=True)
            ]
        return ReplaySample(typed, self._in_structure(cells, 1))


@final
class TimestepDataset(_TableDataset):
    """Single steps of items, one `ReplaySample` each: all steps of one item, then those of the next.

    Arguments, transformations and errors are those of `TrajectoryDataset`; the shapes are those of a step.
    """

    def _samples(self, look: float | None = None) -> Iterator[ReplaySample | None]:
        for steps in self._drawn(look, timesteps=True):
            for sample in steps or [None]:
                yield None if sample is None else self._packed(sample)


class _Shape:
    """A shape as a leaf of a nest, where a tuple would be a node."""

    def __init__(self, sizes: Any) -> None:
        self.sizes = tuple(sizes)


def _text(value: Any) -> Any:
    """The str of an eager tensor of text; other values unchanged."""
    if isinstance(value, str) or not hasattr(value, "numpy"):
        return value
    text = value.numpy()
    return text.decode() if isinstance(text, bytes) else value


def _client(server_address: str | Client) -> Client:
    return server_address if isinstance(server_address, Client) else Client(server_address)


def _count_or_auto(name: str, value: int) -> int | None:
    """A count of at least 1, or None for -1."""
    if value == -1:
        return None
    if value < 1:
        raise ValueError(f"{name} must be at least 1, or -1, got {value}")
    return _checks.count(name, value, 1)


def _specs(dtypes: Any, shapes: Any) -> Any:
    """The nest of `TensorSpec`s of both; lists become tuples."""
    leaves, structure = _native.flatten(_tuples(dtypes))
    sizes = _shapes_below(_tuples(dtypes), shapes, "")
    specs = [
        TensorSpec(shape, getattr(dtype, "as_numpy_dtype", dtype)) for dtype, shape in zip(leaves, sizes, strict=True)
    ]
    return structure.unflatten(specs)


def _tuples(nest: Any) -> Any:
    if isinstance(nest, dict):
        return {key: _tuples(child) for key, child in nest.items()}
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):
        return type(nest)(*(_tuples(child) for child in nest))
    if isinstance(nest, list | tuple):
        return tuple(_tuples(child) for child in nest)
    return nest


def _shapes_below(dtypes: Any, shapes: Any, path: str) -> list[tuple[int | None, ...]]:
    """The shapes in flattening order. `dtypes` decides whether a tuple in `shapes` is a node or a shape."""

    def refuse(reason: str) -> ValueError:
        return ValueError(f"dtypes and shapes differ at {path or 'the top'!r}: {reason}")

    if isinstance(dtypes, dict):
        if not isinstance(shapes, dict) or set(shapes) != set(dtypes):
            raise refuse(f"keys {sorted(map(str, dtypes))}, got {shapes!r}")
        return [size for key in sorted(dtypes) for size in _shapes_below(dtypes[key], shapes[key], f"{path}/{key}")]
    if isinstance(dtypes, tuple):
        if not isinstance(shapes, list | tuple) or len(shapes) != len(dtypes):
            raise refuse(f"{len(dtypes)} parts, got {shapes!r}")
        pairs = enumerate(zip(dtypes, shapes, strict=True))
        return [size for index, (dtype, shape) in pairs for size in _shapes_below(dtype, shape, f"{path}/{index}")]
    if isinstance(shapes, _Shape):
        return [shapes.sizes]
    as_list = getattr(shapes, "as_list", None)  # TensorFlow's TensorShape
    try:
        sizes = tuple(as_list() if as_list is not None else shapes)
        return [tuple(None if size is None else int(size) for size in sizes)]
    except (TypeError, ValueError):
        raise refuse(f"a shape is a tuple of sizes, got {shapes!r}") from None
