"""`TFClient`: dm-reverb's client for TensorFlow, whose calls take and return tensors, eagerly or in a graph."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from reverie import _native
from reverie._tensorflow import tensorflow
from reverie.client import Client
from reverie.errors import SignatureError
from reverie.types import ReplaySample, SampleInfo

__all__ = ["TFClient"]


@final
class TFClient:
    """A client whose calls take and return tensors, for ported code that uses it.

    It can be made without TensorFlow. Its calls need TensorFlow; where that is missing, the error names the call to use
    instead. In a graph they run Python (`tf.numpy_function`) in the process that made the client: for training, use
    `client.batches(...)` or a `TrajectoryDataset`.

    Args:
        server_address: `host:port` of the server, or a client.
        shared_name: accepted for dm-reverb's interface, and ignored: the clients of a process share a connection.
        name: the prefix of the names of its operations.
    """

    def __init__(self, server_address: str | Client, shared_name: str | None = None, name: str = "reverb") -> None:
        del shared_name
        self._client = server_address if isinstance(server_address, Client) else Client(server_address)
        self._name = name
        #: The structures of the tables' signatures, by table.
        self._structures: dict[str, Any] = {}

    @property
    def server_address(self) -> str | None:
        """The server's address."""
        return self._client.server_address

    def sample(self, table: Any, data_dtypes: Any, name: str | None = None) -> ReplaySample:
        """Draws an item and returns its first step. Waits while the table's rate limiter does not admit the draw.

        Args:
            table: the table, a str or a scalar tensor.
            data_dtypes: a nest of TensorFlow's dtypes; the data has its structure.
            name: the name of the operation.

        Returns:
            a `ReplaySample` of tensors; those of `info` are scalars (uint64, float64, int64, float64, int32).

        Raises:
            ImportError: without TensorFlow.
            what `client.sample` raises, and SignatureError for other dtypes. Outside of a graph these are of
                `tf.errors`, too; a graph makes `tf.errors.OpError`s of them.
        """
        tf = tensorflow("TFClient.sample", "client.sample or client.sample_batch")
        dtypes, structure = _native.flatten(data_dtypes)
        names = [tf.as_dtype(dtype).as_numpy_dtype for dtype in dtypes]

        def draw(named: Any) -> list[Any]:
            [sampled] = self._client.sample(table := _text(named), 1)
            info, data = sampled[0] if isinstance(sampled, list) else sampled
            got = [str(cell.dtype) for cell in data]
            want = [str(np.dtype(dtype)) for dtype in names]
            if got != want:
                raise SignatureError(
                    f"table '{table}': items have columns of {got}, data_dtypes names {want}",
                    got=str(got),
                    want=str(want),
                )
            return [*(np.asarray(value, kind) for value, kind in zip(info, _INFO, strict=True)), *data]

        with self._raising(tf):
            flat = tf.numpy_function(draw, [table], [*_INFO, *names], name=self._named(name, "sample"))
        return ReplaySample(SampleInfo(*flat[: len(_INFO)]), structure.unflatten(flat[len(_INFO) :]))

    def insert(self, data: Sequence[Any], tables: Any, priorities: Any, name: str | None = None) -> Any:
        """Inserts one step into one or more tables, and stores its bytes once. Waits while a rate limiter requires it.

        Args:
            data: a sequence of tensors, the columns of the step in flattening order. A table with a signature stores
                them in the signature's structure.
            tables: the names of the tables, string `[N]`.
            priorities: the priority in each table, float64 `[N]`.
            name: the name of the operation.

        Returns:
            None; inside a graph the operation.

        Raises:
            ImportError: without TensorFlow.
            ValueError: for tables or priorities of another dtype or rank, or of different length.
            what `client.insert` raises. Outside of a graph these are of
                `tf.errors`, too; a graph makes `tf.errors.OpError`s of them.
        """
        tf = tensorflow("TFClient.insert", "client.insert")
        if tables.dtype != tf.string or tables.shape.rank != 1:
            raise ValueError(f"tables must be strings of one axis, got {tables.dtype.name} {tables.shape}")
        if priorities.dtype != tf.float64 or priorities.shape.rank != 1:
            raise ValueError(f"priorities must be float64 of one axis, got {priorities.dtype.name} {priorities.shape}")
        if not tables.shape.is_compatible_with(priorities.shape):
            raise ValueError(f"tables and priorities must have one length, got {tables.shape} and {priorities.shape}")

        def insert(names: Any, values: Any, *columns: Any) -> None:
            for structure, by_table in self._by_structure([name.decode() for name in names], values):
                fits = structure is not None and len(structure.paths) == len(columns)
                self._client.insert(structure.unflatten(list(columns)) if fits else list(columns), by_table)

        return self._run(insert, [tables, priorities, *data], self._named(name, "insert"))

    def update_priorities(self, table: Any, keys: Any, priorities: Any, name: str | None = None) -> Any:
        """Sets priorities. Keys of items that are gone are ignored. Does not wait for a rate limiter.

        Args:
            table: the table, a str or a scalar tensor.
            keys: uint64 `[N]`, the keys of samples.
            priorities: float64 `[N]`.
            name: the name of the operation.

        Returns:
            None; inside a graph the operation.

        Raises:
            ImportError: without TensorFlow.
            what `client.update_priorities` raises. Outside of a graph these are of
                `tf.errors`, too; a graph makes `tf.errors.OpError`s of them.
        """

        def update(table: Any, keys: Any, priorities: Any) -> None:
            self._client.update_priorities(_text(table), keys.astype(np.int64), priorities)

        return self._run(update, [table, keys, priorities], self._named(name, "update_priorities"))

    def _by_structure(self, tables: list[str], priorities: Any) -> list[tuple[Any, dict[str, Any]]]:
        """The tables and their priorities, grouped by the structure of the signature (None without one)."""
        if any(table not in self._structures for table in tables):
            known = {name: info.signature for name, info in self._client.server_info().items()}
            self._structures = {
                name: None if signature is None else _native.flatten(signature)[1] for name, signature in known.items()
            }
        groups: list[tuple[Any, dict[str, Any]]] = []
        for table, priority in zip(tables, priorities, strict=True):
            structure = self._structures.get(table)
            same = next((group for of, group in groups if of == structure), None)
            if same is None:
                same = {}
                groups.append((structure, same))
            same[table] = float(priority)
        return groups

    def _run(self, function: Any, inputs: list[Any], name: str) -> Any:
        tf = tensorflow(f"TFClient.{function.__name__}", "the client's own call")
        with self._raising(tf):
            done = tf.numpy_function(function, inputs, [], name=name)
        return None if tf.executing_eagerly() else done

    @staticmethod
    def _raising(tf: Any) -> contextlib.AbstractContextManager[None]:
        from reverie.adapters.tensorflow import errors_as_tensorflow

        return errors_as_tensorflow() if tf.executing_eagerly() else contextlib.nullcontext()

    def _named(self, name: str | None, call: str) -> str:
        return name or f"{self._name}_{call}"

    def __reduce__(self) -> tuple[Any, ...]:
        return TFClient, (self._client, None, self._name)

    def __repr__(self) -> str:
        return f"TFClient({self._client!r})"


def _text(name: Any) -> str:
    """A scalar of text as a str; TensorFlow's text is bytes."""
    name = np.asarray(name).item()
    return name.decode() if isinstance(name, bytes) else str(name)


#: The dtypes of the fields of `SampleInfo`.
_INFO = (np.uint64, np.float64, np.int64, np.float64, np.int32)
