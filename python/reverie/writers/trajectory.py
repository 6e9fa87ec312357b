"""The writer of trajectories: items over any steps that were appended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from reverie import _checks, _native
from reverie._native import TrajectoryColumn
from reverie.writers.context import EpisodeContext

__all__ = ["TrajectoryColumn", "TrajectoryWriter"]


class TrajectoryWriter(_native.TrajectoryWriter, EpisodeContext):
    """Appends steps once, and makes items of slices of its history; `client.trajectory_writer(...)` makes it.

    One thread at a time may use it. Leaving the `with` block waits until all items are in their tables, unless an
    error of the replay itself passes through.

    Args:
        num_keep_alive_refs: how many of the latest steps of a column items may refer to.
        fit_to: the structure of the signature of the table of that name, or None. Where it is given, items leave out
            the columns that the signature does not name.
        chunk_length: steps that are stored together; None chooses by their size.
        compression: how the steps are stored; None takes what the server's tables ask for where they agree, and "auto"
            where not.
        max_in_flight_bytes: `append` waits while more bytes of items are not in their tables yet; None takes the
            client\'s.
        timeout: seconds that `append` and `flush` may wait; None takes the client's.

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
        )
        if fit_to is not None:
            self._fit_to = fit_to
        return self

    def configure(
        self, path: str | Sequence[str | int], *, num_keep_alive_refs: int, max_chunk_length: int | None = None
    ) -> None:
        """Sets how one column is kept from here on.

        Columns that appear together are stored together, so that chunks of all of them are as long as the shortest that
        one of them asks for. Steps that the column kept no more do not come back.

        Args:
            path: the column: `"obs/pixels"` or `("obs", "pixels")`.
            num_keep_alive_refs: as for the writer.
            max_chunk_length: steps that are stored together, at most `num_keep_alive_refs`; None chooses by their size.

        Raises:
            ValueError: for numbers below 1, a chunk longer than what is kept, or a step that is open for more fields.
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
