"""The writer of trajectories: its items are slices of the steps that were appended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from reverie import _checks, _native
from reverie._native import TrajectoryColumn
from reverie.writers.context import EpisodeContext

__all__ = ["TrajectoryColumn", "TrajectoryWriter"]


class TrajectoryWriter(_native.TrajectoryWriter, EpisodeContext):
    """Appends steps, and makes items from slices of its history; `client.trajectory_writer(...)` makes it.

    One thread at a time may use it. Leaving the `with` block waits until all items are in their tables, except after an
    error of Reverie, Ctrl-C or an exit.

    Args:
        num_keep_alive_refs: the number of latest steps of each column that items may refer to.
        fit_to: a function that returns the structure of a table's signature, or None. With it, items leave out the
            columns that the signature does not name.
        chunk_length: the number of steps that are stored together; None chooses it by their size.
        compression: how the steps are stored; `client.trajectory_writer` takes what all tables ask for by default, and
            "auto" where they differ.
        max_in_flight_bytes: `append` waits while items with more bytes than this are not in their tables yet; None
            takes the client's limit.
        timeout: seconds that `append` and `flush` may wait; None takes the client's default.
        variable: columns whose cells may differ in the size of their first axis, with the number of a cell's axes;
            `client.trajectory_writer` takes them from the signatures of all tables.

    Raises:
        ValueError: for `num_keep_alive_refs` or `chunk_length` below 1.
    """

    _fit_to: Callable[[str], _native.Structure | None]

    def __new__(
        cls,
        client: _native.Client,
        num_keep_alive_refs: int,
        *,
        fit_to: Callable[[str], _native.Structure | None] | None = None,
        chunk_length: int | None = None,
        compression: str = "auto",
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
        alike: bool = False,
        variable: Sequence[tuple[str, int]] = (),
    ) -> TrajectoryWriter:
        """Takes a live client; `client.trajectory_writer(...)` calls this."""
        self = super().__new__(
            cls if fit_to is None else _FittingWriter,
            client,
            num_keep_alive_refs,
            chunk_length=chunk_length,
            compression=compression,
            max_in_flight_bytes=max_in_flight_bytes,
            timeout=timeout,
            alike=alike,
            variable=list(variable),
        )
        if fit_to is not None:
            self._fit_to = fit_to
        return self

    def configure(
        self, path: str | Sequence[str | int], *, num_keep_alive_refs: int, max_chunk_length: int | None = None
    ) -> None:
        """Sets how many steps of one column are kept, and how many are stored together, from now on.

        Columns that first appear in the same append share chunks: these are as long as the smallest `max_chunk_length`
        of the columns. Steps that the column has already released do not return.

        Args:
            path: the column: `"obs/pixels"` or `("obs", "pixels")`.
            num_keep_alive_refs: as for the writer.
            max_chunk_length: the number of steps that are stored together, at most `num_keep_alive_refs`; None chooses
                it by their size.

        Raises:
            ValueError: for numbers below 1, a chunk longer than the steps that are kept, or while a step is open.
        """
        num_keep_alive_refs = _checks.count("num_keep_alive_refs", num_keep_alive_refs, 1)
        if max_chunk_length is not None:
            max_chunk_length = _checks.count("max_chunk_length", max_chunk_length, 1)
            if max_chunk_length > num_keep_alive_refs:
                raise ValueError(
                    f"max_chunk_length must be at most num_keep_alive_refs={num_keep_alive_refs}, got"
                    f" {max_chunk_length}"
                )
        path = path if isinstance(path, str) else "/".join(str(part) for part in path)
        self._configure(path, num_keep_alive_refs, max_chunk_length)


class _FittingWriter(TrajectoryWriter):
    """A writer whose items leave out the columns that the table's signature does not name."""

    def create_item(self, table: str, priority: float | Literal["max"], trajectory: Any) -> None:
        signature = self._fit_to(table)
        if signature is not None:
            columns, structure = _native.flatten(trajectory)
            by_path = dict(zip(structure.paths, columns, strict=True))
            if by_path.keys() > set(signature.paths):
                trajectory = signature.unflatten([by_path[path] for path in signature.paths])
        super().create_item(table, priority, trajectory)
