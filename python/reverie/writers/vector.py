"""A writer of sequences or episodes for many environments that step together."""

from __future__ import annotations

import functools
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, final, get_args

import numpy as np
import numpy.typing as npt

from reverie import _checks, _native
from reverie.errors import DeadlineExceededError, SignatureError, _mark_step_written
from reverie.writers.context import WriterContext
from reverie.writers.episode import EpisodeWriter
from reverie.writers.sequence import SequenceWriter
from reverie.writers.transition import Autoreset

__all__ = ["VectorWriter"]

MANY = 4096
"""The number of items whose order is kept at least, also of those that are in the table."""
Each = TypeVar("Each", SequenceWriter, EpisodeWriter)


@final
class VectorWriter(WriterContext, Generic[Each]):
    """Writes the sequences or episodes of environments that step together.

    `client.sequence_writer(..., num_envs=n)` and `client.episode_writer(..., num_envs=n)` make it. Each environment has
    its own writer, episodes and share of `max_in_flight_bytes`. Its items are the same as those of a single writer, and
    neighbours and windows that cross borders stay within one environment. One thread at a time may use it. Leaving the
    `with` block waits until all items are in the table, except after an error of Reverie, Ctrl-C or an exit.

    `autoreset` is the mode of the environments, by Gymnasium's names. With "next_step", Gymnasium's default, the append
    after an environment's end is its reset and not a step: that row is ignored. With "same_step" and "disabled" every
    row is a step. Without a mode, `append` takes `ended` only together with `where`.
    """

    def __init__(
        self, make: Callable[[], Each], num_envs: int, timeout: float | None, autoreset: Autoreset | None = None
    ) -> None:
        if autoreset is not None and autoreset not in get_args(Autoreset):
            raise ValueError(f"autoreset must be one of {', '.join(map(repr, get_args(Autoreset)))}, got {autoreset!r}")
        self._writers: tuple[Each, ...] = tuple(make() for _ in range(num_envs))
        self._given_timeout = timeout
        self._autoreset = autoreset
        self._resets = np.zeros(num_envs, bool)
        """Whether the next row of each environment is its reset."""
        self._order = deque[int]()
        """The environments of the latest items, in the order in which they were sent."""
        self._most = MANY

    @property
    def _timeout(self) -> float | None:
        return self._writers[0]._timeout if self._given_timeout is None else self._given_timeout

    @property
    def num_envs(self) -> int:
        """The number of environments."""
        return len(self._writers)

    @property
    def writers(self) -> tuple[Each, ...]:
        """The writer of each environment."""
        return self._writers

    @property
    def episode_steps(self) -> npt.NDArray[np.int64]:
        """The number of steps in each environment's current episode, `[num_envs]`."""
        return np.array([writer.episode_steps for writer in self._writers], np.int64)

    @property
    def num_in_flight(self) -> int:
        """The number of items that are not in the table yet."""
        return sum(writer.num_in_flight for writer in self._writers)

    @property
    def num_sent(self) -> int:
        """The number of items that were made so far."""
        return sum(writer.num_sent for writer in self._writers)

    @property
    def num_dropped(self) -> int:
        """Steps of ended episodes that are in no item; 0 for whole episodes."""
        return sum(writer.num_dropped for writer in self._writers)

    def append(self, data: Any, *, ended: Any = None, where: Any = None) -> npt.NDArray[np.bool_]:
        """Appends a step of each environment, and ends episodes. Does not wait for the items of ended episodes.

        Args:
            data: a nest of arrays `[num_envs, ...]`; no leaf is None.
            ended: bool `[num_envs]`, true where the environment's episode ends with this step. None: no episode ends.
            where: bool `[num_envs]`, true where the environment has a step. Other rows are ignored, and their episodes
                do not change. None: all have a step. With autoreset "next_step" the row of the next call after an end
                counts as the reset, also where this is False; for environments that do not all step in each call, mask
                resets, too, and give no mode.

        Returns:
            bool `[num_envs]`, true where an item was completed and sent.

        Raises:
            ValueError: for masks of another shape or dtype, `ended` without a mode, an episode that ends where there is
                no step or a reset, and an episode that already has `max_length` steps; nothing was written.
            SignatureError: for a leaf without an axis of `num_envs`, or another dtype or shape than the column had
                before; nothing was written. If only some environments had the column, a note names those whose step
                was refused.
            DeadlineExceededError: too many bytes of an environment were in flight for the writer's timeout; the steps
                of all environments were written.
            ClosedError: the writer was closed.
            Any other error of an item, sent before or with this step; the steps of all environments were written, and
            their items sent, and the episodes ended. Never append a step again after an error: it was written
            (`error.step_written`), or it is refused again. The first error is raised, and notes name the others.
        """
        ends, here = self._mask("ended", ended, False), self._mask("where", where, True)
        if self._autoreset is None and ended is not None and where is None:
            raise ValueError(
                "ended needs the mode of the environments, since the row after an end may be a reset and not a step:"
                ' make the writer with autoreset="next_step" (Gymnasium\'s default), "same_step" or "disabled"'
            )
        resets = self._resets
        here = here & ~resets
        if (ends & ~here).any():
            first = int(np.argmax(ends & ~here))
            reason = 'autoreset is "next_step", and this is its reset' if resets[first] else f"where[{first}] is False"
            raise ValueError(f"ended: environment {first} has no step to end with ({reason})")
        leaves, structure = _native.flatten(data)
        columns = [self._column(path, leaf) for path, leaf in zip(structure.paths, leaves, strict=True)]
        for env in np.flatnonzero(here).tolist():
            self._writers[env]._check_room()
        sent, failures, written, refused = np.zeros(self.num_envs, bool), _Failures(), False, list[int]()
        for env in np.flatnonzero(here).tolist():
            writer, rows = self._writers[env], structure.unflatten([column[env] for column in columns])
            before = writer._num_sent
            try:
                writer._write(rows)
                written = True
            except BaseException as error:
                own = bool(getattr(error, "step_written", False))
                if not (written or own):
                    raise
                if not own:
                    refused.append(env)
                written = True
                failures.add(env, error)
            if ends[env]:
                failures.catch(env, writer._end)
            sent[env] = writer._num_sent > before
            self._order.extend([env] * (writer._num_sent - before))
        if self._autoreset == "next_step":
            self._resets = ends.copy()
        self._forget_inserted(failures)
        for env in np.flatnonzero(here).tolist():
            failures.catch(env, self._writers[env]._writer._make_room)
            if failures.end_waits:
                break
        failures.raise_first(written=True, refused=refused)
        return sent

    def end_episodes(self, where: Any = None, *, timeout: float | None = None) -> None:
        """Ends episodes, and waits until all items are in the table.

        Args:
            where: bool `[num_envs]`, true where the environment's episode ends. None: all end.
            timeout: seconds to wait; None takes the writer's default.

        Raises:
            DeadlineExceededError: the insert continues in the background.
            Any error of `SequenceWriter.end_episode` or `EpisodeWriter.end_episode`. The episodes end in any case.
        """
        failures = _Failures()
        for env in np.flatnonzero(self._mask("where", where, True)).tolist():
            before = self._writers[env]._num_sent
            failures.catch(env, self._writers[env]._end)
            self._order.extend([env] * (self._writers[env]._num_sent - before))
            self._resets[env] = False
        failures.raise_first()
        self.flush(timeout=timeout)

    def flush(self, block_until_num_items: int = 0, *, timeout: float | None = None, durable: bool = False) -> None:
        """Waits until at most `block_until_num_items` items of all environments are not in the table yet.

        Args:
            block_until_num_items: the number of items that may remain; the latest ones remain.
            timeout: seconds to wait; None takes the writer's default.
            durable: True also waits until the items in the table are on the disk, at any `sync` of the server's
                journal.

        Raises:
            DeadlineExceededError: the insert continues in the background.
            ValueError: for `durable=True` if the server has no journal.
            StorageError: for `durable=True` if the journal has stopped.
        """
        remain = _checks.count("block_until_num_items", block_until_num_items, 0)
        timeout = self._timeout if timeout is None else timeout
        until = None if timeout is None else time.monotonic() + timeout
        latest = Counter(list(self._order)[max(0, len(self._order) - remain) :])
        for env, writer in enumerate(self._writers):
            writer.flush(latest[env], timeout=None if until is None else max(0.0, until - time.monotonic()))
        if durable:
            # One wait for the disk: their items are all in the table.
            left = None if until is None else max(0.0, until - time.monotonic())
            self._writers[0].flush(latest[0], timeout=left, durable=True)

    def _forget_inserted(self, failures: _Failures) -> None:
        """Keep the order of items in flight only, from time to time. Errors of items go to `failures`."""
        if len(self._order) <= self._most:
            return
        counts = list[int]()

        def count(writer: SequenceWriter | EpisodeWriter) -> None:
            counts.append(writer.num_in_flight)

        for env, writer in enumerate(self._writers):
            failures.catch(env, functools.partial(count, writer))
        kept = sum(counts)
        self._order = deque(list(self._order)[max(0, len(self._order) - kept) :])
        self._most = max(MANY, 2 * kept)

    def close(self) -> None:
        """Closes the writer without a last item. Items that were sent still go to the table. Idempotent."""
        for writer in self._writers:
            writer.close()

    def _mask(self, name: str, given: Any, otherwise: bool) -> npt.NDArray[np.bool_]:
        if given is None:
            return np.full(self.num_envs, otherwise)
        mask = np.asarray(given)
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise ValueError(f"{name} must be bool [{self.num_envs}], got {mask.dtype} {list(mask.shape)}")
        return mask

    def _column(self, path: str, leaf: Any) -> Any:
        shape = np.shape(leaf)
        if not shape or shape[0] != self.num_envs:
            got, want = ("None" if leaf is None else str(list(shape))), f"[{self.num_envs}, ...]"
            raise SignatureError(
                f"column '{path}': got {got}, want {want}, a row for each environment", path=path, got=got, want=want
            )
        return leaf


class _Failures:
    """The errors of some environments, raised once the others have gone on."""

    def __init__(self) -> None:
        self._first: BaseException | None = None
        self._env = 0
        self.end_waits = False
        """True after a deadline, Ctrl-C or an exit: the caller is to wait no more."""

    def add(self, env: int, error: BaseException) -> None:
        self.end_waits |= isinstance(error, DeadlineExceededError) or not isinstance(error, Exception)
        if self._first is None:
            self._first, self._env = error, env
            return
        # Ctrl-C and an exit are not hidden by an error.
        hides = isinstance(self._first, Exception) and not isinstance(error, Exception)
        noted, of = (self._first, self._env) if hides else (error, env)
        if hides:
            for note in getattr(self._first, "__notes__", []):
                error.add_note(note)
            self._first, self._env = error, env
        self._first.add_note(f"environment {of} has an error, too: {type(noted).__name__}: {noted}")

    def catch(self, env: int, call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            self.add(env, error)

    def raise_first(self, *, written: bool = False, refused: Sequence[int] = ()) -> None:
        """Raises the first error, if there is one.

        `written`: it is of an `append` that wrote the steps of all environments but those whose step was `refused`.
        """
        if self._first is None:
            return
        if refused:
            which = ", ".join(map(str, refused))
            self._first.add_note(f"the step of environment {which} was refused, and those of the others were written")
        if written:
            _mark_step_written(self._first)
        raise self._first
