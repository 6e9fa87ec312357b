"""Import: the rows of a data set become items of a table, through the writers that an environment loop uses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Literal, get_args

import numpy as np

from reverie import _checks, _native
from reverie.client import Client
from reverie.integrations.datasets.reports import Budget, Progress, TransferReport
from reverie.integrations.datasets.sources import DatasetSource, EpisodeRow
from reverie.integrations.datasets.transitions import appends, require_ends

__all__ = ["As", "import_dataset"]

#: The form that rows take; "auto" is the form before their export, and otherwise episodes, or items.
As = Literal["auto", "items", "transitions", "sequences", "episodes"]


def import_dataset(
    client: Client,
    table: str,
    source: DatasetSource,
    *,
    as_: As = "auto",
    n_step: int = 1,
    discount: float = 0.99,
    length: int | None = None,
    period: int | None = None,
    burn_in: int = 0,
    priority: float | Literal["max"] | None = None,
    max_bytes: int | None = None,
    max_steps: int | None = None,
    max_episodes: int | None = None,
    timeout: float | None = None,
    progress: Progress | None = None,
) -> TransferReport:
    """Inserts a data set into a table, in its order, and waits until all items are there.

    Memory stays bounded: a few MiB of rows are read at a time (of a Minari data set, an episode), and writers wait for
    the table. Nothing is downloaded.

    Args:
        client: of the server, or of one in this process.
        table: the table.
        source: the data set; see `open_dataset`.
        as_: what the rows become. "items": each row is an item (`insert_batch`). "episodes": each episode is an item
            (`episode_writer`). "sequences": overlapping parts of each episode (`sequence_writer`). "transitions":
            n-step transitions (`transition_writer`) with `obs`, `action`, `reward`, `discount` and `next_obs`; they
            need the columns `obs`, `action`, `reward` and `terminated`, where `truncated` is read if it is there, and
            further columns become columns of the transitions. With next observations (`next_obs`, `next_observation` or
            `next_observations`) rows may be in any order: one whose next row does not begin with its own ends an
            episode. A step whose next observation is not in the data set makes no transition, unless it terminated: its
            `next_obs` is then its `obs`, and its `discount` 0. "auto": "episodes" where rows are steps, otherwise
            "items"; a table that was exported comes back as it was.
        n_step, discount: of transitions.
        length, period, burn_in: of sequences; `period` defaults to `length`.
        priority: of every item; None takes the data set's, and where it has none the writers' default.
        max_bytes, max_steps, max_episodes: the import stops before the row that would exceed this. Bytes are those of
            the arrays as they are inserted, before any compression. An episode that is cut so ends without an end: it
            is left out of "episodes", and ends as cut off otherwise.
        timeout: seconds that each insert may wait for the table's rate limiter; None takes the client's default.
        progress: called with the report so far, after each block of rows.

    Returns:
        the numbers of rows, episodes, items and bytes.

    Raises:
        DatasetError: for damaged files, columns that `as_` needs and the data set lacks, a column of another name
            that ends episodes, or a flag that is neither 0 nor 1.
        ValueError: for arguments that do not fit `as_`.
        SignatureError: for rows that the table refuses.
        UnknownTableError, DeadlineExceededError, ClosedError. Items that were inserted before an error stay.
    """
    if as_ not in get_args(As):
        raise ValueError(f"as_ must be one of {', '.join(map(repr, get_args(As)))}, got {as_!r}")
    if as_ == "auto":
        as_ = "episodes" if source.has_episodes else "items"
    if as_ != "sequences" and (length is not None or period is not None or burn_in):
        raise ValueError(f'length, period and burn_in are for as_="sequences", got them with as_={as_!r}')
    if as_ != "transitions" and n_step != 1:
        raise ValueError(f'n_step is for as_="transitions", got it with as_={as_!r}')
    if as_ == "items" and max_episodes is not None:
        raise ValueError('max_episodes is for rows that are steps, got it with as_="items"')
    budget = Budget(max_bytes, max_steps, max_episodes)
    report = TransferReport(str(source.path), source.format, table, as_)
    fill = _Import(client, table, source, budget, report, progress, priority, timeout)
    if as_ != "items":
        require_ends(source)
    client.can_insert(table, timeout=timeout)  # Raises UnknownTableError before a file is read.
    if as_ == "items":
        fill.items()
    elif as_ == "transitions":
        fill.transitions(n_step, discount)
    elif as_ == "episodes":
        fill.episodes()
    else:
        if length is None:
            raise ValueError('as_="sequences" needs length=, the number of steps of an item')
        fill.sequences(length, length if period is None else period, burn_in)
    report.stopped_by = budget.reached
    report.seconds = time.monotonic() - fill.started
    if progress is not None:
        progress(report)
    return report


class _Import:
    """One import."""

    def __init__(
        self,
        client: Client,
        table: str,
        source: DatasetSource,
        budget: Budget,
        report: TransferReport,
        progress: Progress | None,
        priority: float | Literal["max"] | None,
        timeout: float | None,
    ) -> None:
        self._client, self._table, self._source = client, table, source
        self._budget, self._report, self._progress = budget, report, progress
        self._priority, self._timeout = priority, timeout
        self._row_bytes = source.row_bytes
        self.started = time.monotonic()

    def items(self) -> None:
        """Inserts each row as an item."""
        unflatten = self._source.structure.unflatten
        for block in self._source.blocks():
            size = sum(column.nbytes for column in block.columns)
            taken = block.head(self._budget.rows(len(block), size))
            if not len(taken):
                break
            priorities = taken.priorities if self._priority is None else self._priority
            data = unflatten([np.ascontiguousarray(column) for column in taken.columns])
            self._client.insert_batch(self._table, data, _filled(priorities, len(taken)), timeout=self._timeout)
            self._count(len(taken), size * len(taken) // len(block), items=len(taken))
            self._show()
            if len(taken) < len(block):
                break

    def steps(self) -> Iterator[EpisodeRow]:
        """The steps within the budget, counted."""
        for number, step in enumerate(self._source.steps()):
            size = self._row_bytes
            if size is None:
                size = sum(np.asarray(leaf).nbytes for leaf in _native.flatten(step.data)[0])
            if not self._budget.row(size, step.is_last):
                return
            self._count(1, size, episodes=int(step.is_last))
            yield step
            if number % 1024 == 1023:
                self._show()

    def episodes(self) -> None:
        """Makes an item of each episode."""
        options = {"priority": self._priority, "timeout": self._timeout}
        with self._client.episode_writer(self._table, **options) as writer:  # type: ignore[call-overload]
            for step in self.steps():
                writer.append(step.data)
                if step.is_last:
                    writer.end_episode(priority=step.priority if self._priority is None else None)
                    self._report.items += 1
            self._report.left_out += writer.episode_steps

    def sequences(self, length: int, period: int, burn_in: int) -> None:
        """Makes overlapping sequences of each episode."""
        options = {"priority": self._priority, "timeout": self._timeout}
        with self._client.sequence_writer(self._table, length, period, burn_in, **options) as writer:  # type: ignore[call-overload]
            for step in self.steps():
                writer.append(step.data)
                if step.is_last:
                    writer.end_episode()
            if writer.episode_steps:
                writer.end_episode()
            self._report.items, self._report.left_out = writer.num_sent, writer.num_dropped

    def transitions(self, n_step: int, discount: float) -> None:
        """Makes n-step transitions of each episode."""
        with self._client.transition_writer(
            self._table,
            n_step=n_step,
            discount=discount,
            # Each step is followed by the one that the data set has, so no environment resets between them.
            autoreset="disabled",
            priority=self._priority,
            timeout=self._timeout,
        ) as writer:
            for row in appends(self._source, self.steps()):
                self._report.items += writer.append(
                    row.obs,
                    row.action,
                    row.reward,
                    row.terminated,
                    row.truncated,
                    final_obs=row.final_obs,
                    extras=row.extras,
                )
                if row.cut:
                    self._report.items += writer.end_episodes()
            self._report.left_out = writer.num_dropped

    def _count(self, rows: int, size: int, *, items: int = 0, episodes: int = 0) -> None:
        self._report.rows += rows
        self._report.size_bytes += size
        self._report.items += items
        self._report.episodes += episodes

    def _show(self) -> None:
        if self._progress is not None:
            self._report.seconds = time.monotonic() - self.started
            self._progress(self._report)


def _filled(priorities: Any, rows: int) -> Any:
    """Priorities of rows as `insert_batch` takes them."""
    if priorities is None or isinstance(priorities, str) or np.ndim(priorities):
        return priorities
    return np.full(rows, _checks.number("priority", priorities))
