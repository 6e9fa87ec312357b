"""The batches that a learner learns from: drawn when it asks for one, or ahead, while it learns from those before."""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from reverie.adapters.torch import to_tensor
from reverie.datasets import Batches
from reverie.errors import DeadlineExceededError, UnknownKeyError
from reverie.types import Batch, BatchInfo

SECONDS_TO_READ_AGAIN = 5.0
"""That a table has to give the items of draws which a checkpoint knows."""


class Draws:
    """One table's, for one learner: each draw is learnt from once, also where the learner is another one by then.

    Ahead (`ahead` above 0) `client.batches` makes them: drawn by priorities that the last `ahead + 1` updates have not
    changed yet. What was drawn and not learnt from counts in the table, so `state_dict` names the items, and whoever
    goes on from that reads them again.
    """

    def __init__(self, table: str, batch_size: int) -> None:
        self.ahead = 0
        """Batches made ahead at most; 0: each is drawn when it is asked for."""
        self.given = 0
        """Draws that were learnt from, by all who had this state."""
        self.lost = 0
        """Draws that could not be read again, since their items had left the table."""
        self._table, self._batch_size = table, batch_size
        self._batches: Batches | None = None
        self._left: deque[Batch] = deque()
        """Made and not delivered when drawing was stopped; NumPy."""
        self._owed: deque[dict[str, Any]] = deque()
        """Drawn by who was there before: to be read again."""
        self._short: list[Batch] = []
        """Draws of batches that were never whole: they come with the next."""
        self._fetched: Batch | None = None
        """The next one: there, or on its way to the device."""
        self._copying: torch.cuda.Stream | None = None

    def next(self, client: Any, device: torch.device) -> Batch:
        """The next batch, its columns tensors on `device`.

        Raises `DeadlineExceededError` at once where there is none now, else as `client.sample_batch`.
        """
        batch, self._fetched = self._fetched, None
        if batch is None:
            batch = self._next(client, device)
        elif self._copying is not None:
            _wait_for(batch, self._copying, device)
        short, self._short = self._short, []
        batch = joined([*(_on(one, device) for one in short), batch]) if short else batch
        self.given += len(batch.info.key)
        return batch

    def fetch(self, client: Any, device: torch.device) -> bool:
        """Whether a batch is there that was drawn ahead. Copies to a GPU begin here, beside what that computes."""
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
        """Draw no more until the next batch is asked for. What was drawn is kept for then."""
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()
            for batch in batches.leftover:
                (self._left if len(batch) == self._batch_size else self._short).append(batch)

    def state_dict(self) -> dict[str, Any]:
        """Counts, and what was drawn and not learnt from, draw by draw, without its data. Stops drawing."""
        self.stop()
        fetched = [] if self._fetched is None else [self._fetched]
        ahead = [*map(_description, [*fetched, *self._left, *self._short]), *self._owed]
        return {"given": self.given, "lost": self.lost, "ahead": ahead}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave; what was drawn here is forgotten."""
        self.stop()
        self._left.clear()
        self._short, self._fetched = [], None
        self.given, self.lost, self._owed = state["given"], state["lost"], deque(state["ahead"])

    def _next(self, client: Any, device: torch.device) -> Batch:
        while self._owed:
            batch = _read_again(client, self._table, self._owed[0])
            draws = self._owed.popleft()
            self.lost += len(draws["info"]["key"]) - (0 if batch is None else len(batch))
            if batch is not None:
                (self._left if len(batch) == self._batch_size else self._short).append(batch)
        if self._left:
            return _on(self._left.popleft(), device)
        if not self.ahead:
            return _on(client.sample_batch(self._table, self._batch_size, timeout=0), device)
        if self._batches is None:
            self._batches = client.batches(
                self._table, self._batch_size, prefetch=self.ahead, timeout=0, as_="torch", device=device
            )
        try:
            return next(self._batches)
        except DeadlineExceededError:
            raise
        except Exception:
            self.stop()  # behind an error there is nothing more; the next call begins anew
            raise


def joined(batches: list[Batch]) -> Batch:
    """One batch of the draws of several, whose columns are tensors of one device."""
    infos = [batch.info for batch in batches]
    fields = [field.name for field in dataclasses.fields(BatchInfo)]
    smallest = [batch.smallest_probability for batch in batches if batch.smallest_probability is not None]
    return Batch(
        info=BatchInfo(*(np.concatenate([getattr(info, name) for info in infos]) for name in fields)),
        data={name: torch.cat([batch.data[name] for batch in batches]) for name in batches[0].data},
        smallest_probability=min(smallest, default=None),
    )


def _on(batch: Batch, device: torch.device) -> Batch:
    """The batch with tensors on `device` for columns; copies to a GPU go on while this returns."""
    pinned, where = device.type == "cuda", None if device.type == "cpu" else device
    sent = copy.copy(batch)
    sent.data = {name: to_tensor(column, where, pinned=pinned) for name, column in batch.data.items()}
    return sent


def _wait_for(batch: Batch, copying: torch.cuda.Stream, device: torch.device) -> None:
    """What computes from now on waits for the copies, and their memory is kept until it is done with them."""
    now = torch.cuda.current_stream(device)
    now.wait_stream(copying)
    for column in batch.data.values():
        column.record_stream(now)


def _description(batch: Batch) -> dict[str, Any]:
    info = {field.name: getattr(batch.info, field.name) for field in dataclasses.fields(BatchInfo)}
    return {"info": info, "smallest_probability": batch.smallest_probability}


def _read_again(client: Any, table: str, draws: dict[str, Any]) -> Batch | None:
    """The draws with their items' data; without those whose items have left the table since, None where all have.

    It counts as no sample: the draws were counted when they were made.
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
