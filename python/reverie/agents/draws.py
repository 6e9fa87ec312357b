"""The batches of a learner, drawn on demand or ahead of its updates."""

from __future__ import annotations

import dataclasses
from collections import deque
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from reverie.adapters.torch import to_tensor, weights_as
from reverie.datasets import Batches
from reverie.errors import DeadlineExceededError, UnknownKeyError
from reverie.types import Batch, BatchInfo

SECONDS_TO_READ_AGAIN = 5.0
"""Timeout for reading the items of draws that are in a checkpoint."""


class TableDraws:
    """The draws of one learner from one table: each is learnt from once, even if the learner is restarted meanwhile.

    With `ahead` above 0 `client.batches` makes the batches: their priorities may lack the last `ahead + 1` updates,
    and on a GPU `ahead + 4`.
    Draws that were not learnt from count in the table, so `state_dict` names their items, and a learner that resumes
    from it reads them again.
    """

    def __init__(self, table: str, batch_size: int) -> None:
        self.ahead = 0
        """The largest number of batches to draw ahead; 0 draws each on demand."""
        self.given = 0
        """Draws that were learnt from, by this learner and those that it resumed from."""
        self.lost = 0
        """Draws that could not be read again, since their items were no longer in the table."""
        self._table, self._batch_size = table, batch_size
        self._batches: Batches | None = None
        self._undelivered: deque[Batch] = deque()
        """Batches that were drawn and not delivered when drawing was stopped; NumPy."""
        self._to_read_again: deque[dict[str, Any]] = deque()
        """Draws of the learner before this one, to be read again."""
        self._incomplete: list[Batch] = []
        """Incomplete batches; their draws are added to the next batch."""
        self._fetched: Batch | None = None
        """The next batch, which may still be copied to the device."""
        self._copying: torch.cuda.Stream | None = None

    def next(self, client: Any, device: torch.device) -> Batch:
        """The next batch, its columns as tensors on `device`.

        Raises `DeadlineExceededError` at once if there is none now, else as `client.sample_batch`.
        """
        batch, self._fetched = self._fetched, None
        if batch is None:
            batch = self._next(client, device)
        elif self._copying is not None:
            _wait_for(batch, self._copying, device)
        incomplete, self._incomplete = self._incomplete, []
        batch = joined([*(_on(one, device) for one in incomplete), batch]) if incomplete else batch
        self.given += len(batch.info.key)
        return batch

    def fetch(self, client: Any, device: torch.device) -> bool:
        """Whether a batch is ready. Starts its copy to a GPU, in parallel to the GPU's computation."""
        if self._fetched is None:
            if device.type == "cuda" and self._copying is None:
                self._copying = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            try:
                with nullcontext() if self._copying is None else torch.cuda.stream(self._copying):
                    self._fetched = self._next(client, device)
            except DeadlineExceededError:
                return False
        return True

    def stop(self) -> None:
        """Stop drawing until the next batch is requested. Batches that are drawn already are kept for then."""
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()
            for batch in batches.leftover:
                (self._undelivered if len(batch) == self._batch_size else self._incomplete).append(batch)

    def state_dict(self) -> dict[str, Any]:
        """Counts, and the draws that were not learnt from, without their data. Stops drawing.

        `made` is the number of draws in this state that the table has counted.
        """
        self.stop()
        fetched = [] if self._fetched is None else [self._fetched]
        ahead = [*map(_description, [*fetched, *self._undelivered, *self._incomplete]), *self._to_read_again]
        made = self.given + self.lost + sum(len(one["info"]["key"]) for one in ahead)
        return {"given": self.given, "lost": self.lost, "ahead": ahead, "table": self._table, "made": made}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`; draws made here are discarded."""
        self.stop()
        self._undelivered.clear()
        self._incomplete, self._fetched = [], None
        self.given, self.lost, self._to_read_again = state["given"], state["lost"], deque(state["ahead"])

    def _next(self, client: Any, device: torch.device) -> Batch:
        while self._to_read_again:
            batch = _read_again(client, self._table, self._to_read_again[0])
            draws = self._to_read_again.popleft()
            self.lost += len(draws["info"]["key"]) - (0 if batch is None else len(batch))
            if batch is not None:
                (self._undelivered if len(batch) == self._batch_size else self._incomplete).append(batch)
        if self._undelivered:
            return _on(self._undelivered.popleft(), device)
        if not self.ahead:
            try:
                return _on(client.sample_batch(self._table, self._batch_size, timeout=0), device)
            except DeadlineExceededError as error:
                if isinstance(error.partial, Batch):  # counted by the table
                    self._incomplete.append(error.partial)
                if sum(map(len, self._incomplete)) < self._batch_size:
                    raise
                return _on(self._incomplete.pop(), device)
        if self._batches is None:
            self._batches = client.batches(
                self._table, self._batch_size, prefetch=self.ahead, timeout=0, as_="torch", device=device
            )
        try:
            return next(self._batches)
        except DeadlineExceededError:
            raise
        except Exception:
            self.stop()  # the iterator has ended with the error; the next call makes another
            raise


class QueueDraws:
    """The batches of one learner from a table that deletes what it gives: every item is learnt from once.

    Draws that come without the rest of their batch are added to the next one, and are in a checkpoint.
    """

    def __init__(self, table: str, batch_size: int) -> None:
        self._table, self._batch_size = table, batch_size
        self._incomplete: list[Batch] = []

    def next(self, client: Any) -> Batch:
        """The next batch, of NumPy columns, with less than twice as many draws as were asked for.

        Raises `DeadlineExceededError` at once if the table has no whole one. With a journal a draw waits a moment until
        it is written. If the disk takes longer, the error has the whole batch.
        """
        try:
            batch: Batch = client.sample_batch(self._table, self._batch_size, timeout=0)
        except DeadlineExceededError as error:
            if isinstance(error.partial, Batch):
                self._incomplete.append(error.partial)
            if sum(map(len, self._incomplete)) < self._batch_size:
                raise
        else:
            self._incomplete.append(batch)
        batches, self._incomplete = self._incomplete, []
        return batches[0] if len(batches) == 1 else joined(batches)

    def state_dict(self) -> list[dict[str, Any]]:
        """The draws that were not learnt from, with their data."""
        return [{**_description(batch), "data": dict(batch.data)} for batch in self._incomplete]

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        """Restore a `state_dict`; draws made here are discarded."""
        self._incomplete = [
            Batch(info=BatchInfo(**one["info"]), data=one["data"], smallest_probability=one["smallest_probability"])
            for one in state
        ]


def joined(batches: list[Batch]) -> Batch:
    """Several batches as one; their columns are all of NumPy, or all tensors on one device."""
    infos = [batch.info for batch in batches]
    fields = [field.name for field in dataclasses.fields(BatchInfo)]
    smallest = [batch.smallest_probability for batch in batches if batch.smallest_probability is not None]
    return Batch(
        info=BatchInfo(*(np.concatenate([getattr(info, name) for info in infos]) for name in fields)),
        data={name: _concatenated([batch.data[name] for batch in batches]) for name in batches[0].data},
        smallest_probability=min(smallest, default=None),
        _weights_as=batches[0]._weights_as,
    )


def _concatenated(columns: list[Any]) -> Any:
    return torch.cat(columns) if isinstance(columns[0], torch.Tensor) else np.concatenate(columns)


def _on(batch: Batch, device: torch.device) -> Batch:
    """The batch, whose columns become tensors on `device`; copies to a GPU continue after the return."""
    pinned, where = device.type == "cuda", None if device.type == "cpu" else device
    batch.data = {name: to_tensor(column, where, pinned=pinned) for name, column in batch.data.items()}
    batch._weights_as = weights_as(where, pinned=pinned)
    return batch


def _wait_for(batch: Batch, copying: torch.cuda.Stream, device: torch.device) -> None:
    """Make the current stream wait for the copies, and keep their memory until it has used them."""
    now = torch.cuda.current_stream(device)
    now.wait_stream(copying)
    for column in batch.data.values():
        column.record_stream(now)


def _description(batch: Batch) -> dict[str, Any]:
    info = {field.name: getattr(batch.info, field.name) for field in dataclasses.fields(BatchInfo)}
    return {"info": info, "smallest_probability": batch.smallest_probability}


def _read_again(client: Any, table: str, draws: dict[str, Any]) -> Batch | None:
    """The draws with their items' data, except draws whose items have left the table; None if all have.

    Not counted as samples: the draws were counted when they were made.
    """
    info = draws["info"]
    while len(info["key"]):
        try:
            batch: Batch = client.get(table, info["key"], timeout=SECONDS_TO_READ_AGAIN)
        except UnknownKeyError as error:
            here = info["key"] != error.key
            info = {name: values[here] for name, values in info.items()}
            continue
        batch.info, batch.smallest_probability = BatchInfo(**info), draws["smallest_probability"]
        return batch
    return None
