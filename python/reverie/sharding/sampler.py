"""Draws from one table over all shards, and rations of inserts."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from reverie import _native, rate_limiters
from reverie.errors import ClosedError, DeadlineExceededError, RaggedError
from reverie.sharding.members import LOST, Members
from reverie.types import Batch, Borders, Waiting

__all__ = ["Sampler"]

_LOG = logging.getLogger("reverie")

#: The shortest wait for another thread's turn, also past a caller's deadline: a turn takes one response.
_TURN = 1.0
#: Seconds after which a wait without a deadline first logs what it waits for.
_PATIENCE = 10.0

#: Draws in a row without a window, after which a request raises.
_MOST_SHORT = 1000

Ragged = Literal["pad", "values"]


class How(NamedTuple):
    """Options of draws, named as the arguments of a client's calls."""

    columns: list[str] | None = None
    ragged: Ragged | None = None
    without_replacement: bool = False
    windows: tuple[int, int, Borders] | None = None


class Until:
    """A deadline: a number of seconds from now, or None."""

    def __init__(self, timeout: float | None) -> None:
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout must be None or at least 0 seconds, got {timeout}")
        self._end = None if timeout is None else time.monotonic() + timeout

    @property
    def left(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    @property
    def answered(self) -> float | None:
        """Timeout for a response that needs no waiting: at least `_TURN`, so that a slow shard does not fail."""
        left = self.left
        return None if left is None else max(left, _TURN)


class Sampler:
    """Draws from one table over all shards, and hands out rations if it has the limiter over all shards."""

    def __init__(
        self,
        members: Members,
        table: str,
        limiter: rate_limiters.RateLimiter | None,
        seed: int,
        ends: threading.Event,
        independent: bool,
        among: tuple[int, int] = (0, 1),
    ) -> None:
        self.table = table
        self.limiter = limiter
        #: Whether this sampler limits inserts: it tells the shards how many they may admit.
        self.hands_out = limiter is not None and among[0] == 0
        self.stale = 0
        self._members = members
        self._ends = ends
        #: Whether surplus draws of a shard may be discarded: its draws are independent, and no other client counts
        #: them.
        self._leaves_out = independent and among[1] == 1
        #: Draws in a row whose items were too short for a window, and whether the last ones were.
        self._short, self._passed = 0, False
        #: Whether the figures of the last responses are still valid.
        self._fresh = False
        self._random = random.Random(seed)
        self._shards = _native.Shards(
            list(members.clients), table, rate_limiter=limiter, seed=seed, among_others=among[1] > 1
        )
        #: Held while draws are made or rations handed out, one after the other.
        self._turn = threading.Lock()
        #: Draws that wait, by the moment they began: wanted, done.
        self._waiting: dict[float, tuple[int, int]] = {}

    def join(self, shard: int) -> None:
        """Adds a shard that is reachable again. Raises the shard's error."""
        for _, error in self._shards.ask([shard], None):
            raise error
        self.ring()

    def refresh(self, timeout: float | None = None, wants: list[int] | None = None) -> dict[str, Any]:
        """Asks all shards, and hands out rations; returns the figures."""
        with self._taking_turn(Until(timeout)):
            self._exchange(Until(timeout), wants)
        return self._shards.figures()

    def allowed(self, num_samples: int) -> bool:
        """True if this number of draws is allowed, by the last responses of the shards."""
        return self._shards.allowed(num_samples) == num_samples

    @property
    def inserts_left(self) -> int | None:
        """Inserts that the limiter allows now; None if unlimited."""
        return self._shards.inserts_left()

    def batch(self, count: int, timeout: float | None, how: How) -> Batch:
        """Draws one batch. `DeadlineExceededError.partial` has the draws made by the deadline."""
        drawn, why = self.draw(count, Until(timeout), how, lambda: False)
        if why is None:
            return self.gather(drawn, how)
        partial = self.gather(drawn, how) if drawn else None
        raise DeadlineExceededError(f"sample: the timeout passed; {why}", why=why, partial=partial)

    def gather(self, drawn: list[_native.ShardDraws], how: How) -> Batch:
        """The batch of draws."""
        return self._shards.gather(drawn, columns=how.columns, ragged=how.ragged)

    def draw(
        self, count: int, until: Until, how: How, stops: Callable[[], bool]
    ) -> tuple[list[_native.ShardDraws], str | None]:
        """All draws and None; at the deadline, or when `stops()`, the draws made by then and the reason.

        Draws without replacement are made all at once or not at all. Raises RaggedError if items are too short for
        windows.
        """
        drawn: list[_native.ShardDraws] = []
        options: dict[str, Any] = {"columns": how.columns, "ragged": how.ragged}

        def some(allowed: int) -> int:
            if how.without_replacement:
                made = (
                    self._shards.draw_distinct(allowed, timeout=until.answered, **options) if allowed == count else None
                )
            else:
                made = self._shards.draw(allowed, timeout=until.answered, windows=how.windows, **options)
            return 0 if made is None else take(made, allowed)

        def take(made: tuple[list[_native.ShardDraws], list[tuple[int, Exception]]], asked: int) -> int:
            more, failures = made
            drawn.extend(more)
            self._failed(failures)
            if how.windows is not None and not failures:
                self._count_short(asked, sum(map(len, more)), how.windows)
            return sum(map(len, more))

        def guess(wanted: int) -> int:
            made = self._shards.guess(wanted, timeout=until.answered, columns=how.columns)
            return 0 if made is None else take(made, wanted)

        plain = how.ragged is None and not how.without_replacement and how.windows is None
        self._short = 0
        why = self._make(count, count, until, some, stops, guess if plain and self._leaves_out else None)
        if why is not None and how.without_replacement and (size := self._shards.figures()["size"]) < count:
            why += f" There are {size} items, and {count} were asked for without replacement."
        return drawn, why

    def _count_short(self, asked: int, made: int, windows: tuple[int, int, Borders]) -> None:
        """Raises RaggedError after too many draws in a row without an item that a window fits into."""
        self._passed = not made
        self._short = 0 if made else self._short + asked
        if self._short >= _MOST_SHORT:
            length, burn_in, _ = windows
            raise RaggedError(
                f"table '{self.table}' over {len(self._members.present)} shards: none of the last {self._short} draws"
                f" holds a window of {length + burn_in} steps; ask for shorter windows, write longer items, or pass"
                ' borders="pad"',
                path="",
            )

    def runs(self, at_most: int, until: Until) -> list[tuple[Batch, bool]]:
        """Makes the draws that are allowed now, at least one.

        Returns batches of items with the same shapes, each from one shard, and whether its items are single steps that
        were inserted without a time axis. Raises DeadlineExceededError.
        """
        made: list[tuple[Batch, bool]] = []

        def some(allowed: int) -> int:
            split = self._shards.split(allowed)
            if split is None:
                return 0
            counts, chances, size = split
            for shard, count in enumerate(counts):
                if not count:
                    continue
                try:
                    runs = self._members.clients[shard]._sample_some(self.table, count, timeout=until.answered)
                except LOST as error:
                    self._failed([(shard, error)])
                    continue
                for batch, _ in runs:
                    batch.info.probability *= chances[shard]
                    batch.info.table_size[:] = size
                made.extend(runs)
            return sum(len(batch) for batch, _ in made)

        why = self._make(1, at_most, until, some, lambda: False)
        if why is not None:
            raise DeadlineExceededError(f"sample: the timeout passed; {why}", why=why)
        return made

    def order(self, count: int) -> list[int]:
        """The numbers below `count` in random order."""
        return self._random.sample(range(count), count)

    def _make(
        self,
        least: int,
        most: int,
        until: Until,
        some: Callable[[int], int],
        stops: Callable[[], bool],
        guess: Callable[[int], int] | None = None,
    ) -> str | None:
        """Makes `least` to `most` draws with repeated calls of `some`; returns None, or the reason for too few.

        `some` gets the allowed number of draws and returns the number that it made. `guess` does the same from figures
        that are known already.
        """
        began, told, done = time.monotonic(), _PATIENCE, 0
        try:
            while done < least:
                rung = self._shards.rung()
                try:
                    with self._taking_turn(until):
                        made = self._some(most - done, until, some, guess)
                except DeadlineExceededError as late:
                    # A shard does not answer, and is not lost: the draws of the others are kept.
                    return late.why
                done += made
                # Items that were too short for a window are no reason to wait.
                if made or (self._passed and not stops() and until.left != 0.0):
                    continue
                if stops() or until.left == 0.0:
                    return self.why()
                if self._ends.is_set():
                    raise ClosedError("this client is closed", name=self.table)
                self._waiting[began] = (most, done)
                waited = time.monotonic() - began
                if until.left is None and waited > told:
                    _LOG.warning("still waiting after %.0f s: %s", waited, self.why())
                    told *= 3
                # A shard notifies this client of changes.
                self._look(rung, told if until.left is None else until.left)
            return None
        finally:
            self._waiting.pop(began, None)

    def _some(self, count: int, until: Until, some: Callable[[int], int], guess: Callable[[int], int] | None) -> int:
        """Makes the draws that the limiter allows now."""
        self._passed = False
        made = guess(count) if guess is not None and self._fresh else 0
        if not made:
            # Uses present masses, not those of the last batch: a shard that was empty then would be left out.
            self._exchange(until)
            allowed = self._shards.allowed(count)
            made = some(allowed) if allowed else 0
            self._fresh = True
        # Also if nothing can be drawn: a draw that waits for inserts may have to admit some.
        self._hand_out()
        return made

    def _look(self, rung: int, seconds: float) -> None:
        """Waits until a shard changes, or `ring` was called since `rung`, at most `seconds`."""
        self._failed(self._shards.look(rung, seconds))

    def ring(self) -> None:
        """Wakes waiting draws: a shard was lost or came back, or they must end."""
        self._shards.ring()

    def forget(self) -> None:
        """Makes the next draws ask the shards first, after deletes or changed limits."""
        self._fresh = False

    def _exchange(self, until: Until, wants: list[int] | None = None) -> None:
        if not self.hands_out:
            failures = self._shards.ask(self._members.present, until.answered)
        else:
            wants = [0] * len(self._members.clients) if wants is None else wants
            failures = self._shards.exchange(wants, until.answered)
        self._failed(failures)

    def _hand_out(self) -> None:
        if self.hands_out:
            self._failed(self._shards.hand_out())

    def _failed(self, failures: list[tuple[int, Exception]]) -> None:
        for shard, error in failures:
            if not isinstance(error, LOST):
                raise error
            self.lose(shard, error)
        self._members.refuse_nobody()

    def lose(self, shard: int, error: BaseException) -> None:
        """Leaves a shard out, until `join`."""
        self._shards.lost(shard)
        self._members.lose(shard, error)
        self.ring()

    def begin(self, timeout: float | None) -> None:
        """Asks all shards for the first time, or after all tables were reset."""
        until = Until(timeout)
        with self._taking_turn(until):
            self._shards.reset()
            self.forget()
            self._failed(self._shards.ask(self._members.present, until.answered))
            self._exchange(until)

    @contextmanager
    def _taking_turn(self, until: Until) -> Iterator[None]:
        left = until.left
        # The thread that has the turn waits only for responses, never for a limiter.
        if not self._turn.acquire(timeout=-1 if left is None else max(left, _TURN)):
            why = f"another thread waits for an answer of the shards of table '{self.table}'"
            raise DeadlineExceededError(f"sample: the timeout passed; {why}", why=why)
        try:
            yield
        finally:
            self._turn.release()

    def limit(self, limiter: rate_limiters.RateLimiter) -> None:
        """Replaces the limiter over all shards; the counts go on."""
        self._shards.limit(limiter)
        self.limiter = limiter
        self.forget()
        self.ring()

    def figures(self) -> dict[str, Any]:
        """The figures of the shards, by their last responses."""
        return self._shards.figures()

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        """Requests for draws that wait here."""
        now = time.monotonic()
        return tuple(Waiting(now - began, *counts) for began, counts in sorted(self._waiting.items()))

    def why(self, figures: dict[str, Any] | None = None) -> str:
        """Why draws and inserts wait, over all shards, by their last responses."""
        figures = self._shards.figures() if figures is None else figures
        shards = figures["shards"]
        present = [shard for shard in shards if shard["present"]]
        text = (
            f"table '{self.table}' over {len(present)} of {len(shards)} shards: {figures['size']} items,"
            f" {figures['num_inserts']} inserts, {figures['num_samples']} samples."
        )
        waits = f" {len(self._waiting)} samples waiting" if self._waiting else " no samples waiting"
        reason = figures["sample_reason"]
        text += f"{waits}; one would: {reason}." if reason else " samples can go on."
        inserts = sum(shard["waiting_inserts"] for shard in present)
        if self.limiter is not None:
            left = self.inserts_left
            open_to = "any number of inserts" if left is None else f"{left} more inserts"
            text += f" {inserts} inserts waiting; the limiter of all shards allows {open_to}"
            text += f": {figures['insert_reason']}." if figures["insert_reason"] else "."
        lost = self._members.lost_names()
        return text + (f" Lost: {', '.join(lost)}." if lost else "")
