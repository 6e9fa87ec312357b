"""dm-reverb's older writer: its items are the latest steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, final

import numpy as np

from reverie import _checks, _native
from reverie.errors import ClosedError, SignatureError
from reverie.specs import in_order_of
from reverie.writers.context import WriterContext

__all__ = ["Writer"]

#: The limit of items in flight where it is None.
_MANY = 1_000_000


@final
class Writer(WriterContext):
    """Appends whole steps, and makes items from the latest ones; `client.writer(...)` makes it.

    One thread at a time may use it. New code should use a `TrajectoryWriter`, which also has columns of different
    lengths, steps in parts, and any slice of the history.

    Args:
        max_sequence_length: the largest number of steps in an item.
        delta_encoded: True compresses the steps with Zstandard whatever the tables ask for, as differences to the step
            before where that is smaller. False stores them by `compression`.
        chunk_length: the number of steps that are stored together; None means at most 10.
        max_in_flight_items: `create_item` waits while this number of items are not in their tables yet; None means a
            million.
        compression: how steps are stored without `delta_encoded`.
        timeout: seconds that `create_item` and `flush` may wait; None takes the client's default.
        variable: columns whose cells may differ in the size of their first axis, with the number of a cell's axes; the
            client takes them from the signatures of its tables.

    Raises:
        ValueError: for counts below 1, or a `chunk_length` above `max_sequence_length`.
    """

    __slots__ = ("_closed", "_columns", "_flight", "_length", "_sending", "_steps", "_structure")

    def __init__(
        self,
        client: _native.Client,
        max_sequence_length: int,
        delta_encoded: bool = False,
        chunk_length: int | None = None,
        max_in_flight_items: int | None = 25,
        *,
        compression: str = "auto",
        timeout: float | None = None,
        variable: Sequence[tuple[str, int]] = (),
    ) -> None:
        self._closed = True
        self._length = _checks.count("max_sequence_length", max_sequence_length, 1)
        chunk_length = min(10, self._length) if chunk_length is None else _checks.count("chunk_length", chunk_length, 1)
        if chunk_length > self._length:
            raise ValueError(f"chunk_length must be at most max_sequence_length={self._length}, got {chunk_length}")
        many = _MANY if max_in_flight_items is None else max_in_flight_items
        self._flight = _checks.count("max_in_flight_items", many, 1)
        self._steps = _native.TrajectoryWriter(
            client,
            self._length,
            chunk_length=chunk_length,
            compression="zstd" if delta_encoded else compression,
            # This writer limits the number of items in flight, not their bytes.
            max_in_flight_bytes=1 << 62,
            timeout=timeout,
            timesteps=True,
            variable=list(variable),
        )
        self._structure: _native.Structure | None = None
        self._columns: list[_native.HistoryColumn] = []
        self._closed = False

    def append(self, data: Any) -> None:
        """Appends one step. It is stored once for all items that refer to it, and not at all where no item does.

        Args:
            data: a nest of arrays and numbers; the first step sets the structure, dtypes and shapes.

        Raises:
            SignatureError: for a step unlike the first; the error names the path.
            ClosedError: the writer was closed.
            Any other error of an item that was sent before; the step was written. Never append a step again after an
            error: it was written (`error.step_written`), or it is refused again.
        """
        self._open()
        leaves, structure = _native.flatten(data)
        self._append(data, leaves, structure)
        self._steps._make_room()

    def append_sequence(self, sequence: Any) -> None:
        """Appends T steps, given as one nest of arrays `[T, ...]`.

        Raises:
            ValueError: for arrays of different lengths, or without a time axis.
            SignatureError, ClosedError: as for `append`; the steps before the refused one were appended.
            Any other error of an item that was sent before; all steps were written.
        """
        self._open()
        leaves, structure = _native.flatten(sequence)
        arrays = [np.asarray(leaf) for leaf in leaves]
        lengths = {array.shape[:1] for array in arrays}
        if len(lengths) != 1 or () in lengths:
            shapes = ", ".join(f"'{path}' {array.shape}" for path, array in zip(structure.paths, arrays, strict=True))
            raise ValueError(f"the arrays of a sequence must share a first axis, got {shapes or 'no array'}")
        for cells in zip(*arrays, strict=True):
            self._append(structure.unflatten(list(cells)), cells, structure)
        self._steps._make_room()

    def _append(self, data: Any, leaves: Any, structure: _native.Structure) -> None:
        if self._structure is None:
            if not leaves:
                raise SignatureError("a step needs at least one array")
        elif structure != self._structure:
            # As in dm-reverb: later steps only have to match the leaves, and items have the first step's structure.
            if len(leaves) != len(self._structure.paths):
                got, want = ", ".join(structure.paths), ", ".join(self._structure.paths)
                raise SignatureError(
                    f"every step must have as many columns as the first: got {got or 'none'}, want {want}",
                    got=got,
                    want=want,
                )
            leaves, structure = in_order_of(self._structure, leaves, structure), self._structure
            data = structure.unflatten(leaves)
        for path, leaf in zip(structure.paths, leaves, strict=True):
            if leaf is None:
                raise SignatureError(
                    f"column '{path}': got None, want a value in every step; `client.trajectory_writer(...)` takes "
                    "steps with missing fields",
                    path=path,
                    got="None",
                    want="a value",
                )
        self._steps._store(data)
        if self._structure is None:
            self._structure = structure
            self._columns = _native.flatten(self._steps.history)[0]

    def create_item(self, table: str, num_timesteps: int, priority: float) -> None:
        """Makes an item from the latest `num_timesteps` steps. Waits while `max_in_flight_items` are in flight.

        Args:
            table: the table that the item goes into.
            num_timesteps: the number of steps.
            priority: the priority of the item.

        Raises:
            ValueError: for fewer than one step, more steps than the writer keeps, or a priority that the table's
                selectors refuse.
            SignatureError: for steps that do not match the table's signature, which may be of a step or of the item.
            UnknownTableError, ClosedError.
            DeadlineExceededError: too many items were in flight for the timeout; this item was not made.
            Any other error of an item that was sent before; this item was not made, and the call can be repeated.
        """
        self._open()
        count = _checks.count("num_timesteps", num_timesteps, 1)
        there = min(self._length, len(self._columns[0])) if self._columns else 0
        if count > there:
            raise ValueError(
                f"num_timesteps must be at most the {there} steps that are kept (max_sequence_length={self._length}), "
                f"got {count}"
            )
        self._steps._flush(self._flight - 1, None)
        assert self._structure is not None
        latest = [column[-count:] for column in self._columns]
        self._steps.create_item(table, priority, self._structure.unflatten(latest))

    def flush(self, *, timeout: float | None = None, durable: bool = False) -> None:
        """Waits until all items are in their tables.

        Args:
            timeout: seconds to wait.
            durable: True also waits until they are on the disk, at any `sync` of the server's journal.

        Raises:
            DeadlineExceededError: the insert continues in the background.
            ClosedError: the writer was closed.
            ValueError: for `durable=True` if the server has no journal.
            StorageError: for `durable=True` if the journal has stopped.
        """
        self._open()
        self._steps._flush(0, timeout, durable)

    def close(self, retry_on_unavailable: bool = True) -> None:
        """Closes the writer, and waits until all items are in their tables.

        Args:
            retry_on_unavailable: False raises at once if some are not inserted yet; they continue in the background.

        Raises:
            ValueError: the writer is already closed.
            DeadlineExceededError: the insert continues in the background.
        """
        if self._closed:
            raise ValueError("the writer is already closed; make another")
        self._closed = True
        try:
            self._steps._flush(0, None if retry_on_unavailable else 0.0)
        finally:
            self._steps._close()

    @property
    def num_in_flight(self) -> int:
        """Items that are not in their tables yet."""
        return self._steps.num_in_flight

    def _open(self) -> None:
        if self._closed:
            raise ClosedError("this writer is closed; make another", name="writer")

    def __enter__(self) -> Self:
        if self._closed:
            raise ValueError("a closed writer cannot be entered again; make another")
        return self

    @property
    def _timeout(self) -> float | None:
        return self._steps._timeout

    def _finish(self, timeout: float | None = None) -> None:
        if not self._closed:
            super()._finish(timeout)

    def _abandon(self) -> None:
        self._closed = True
        self._steps._close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.num_in_flight} items in flight"
        return f"Writer(max_sequence_length={self._length}, max_in_flight_items={self._flight}, {state})"
