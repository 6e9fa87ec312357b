"""Draws from one table of all shards."""

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

#: Seconds for which a caller whose time is over waits for another thread's turn: it takes as long as an answer.
_TURN = 1.0
#: Seconds after which an endless wait says for the first time what it waits for.
_PATIENCE = 10.0

#: Draws in a row without a window, before a request is refused.
_MOST_SHORT = 1000

Ragged = Literal["pad", "values"]


class How(NamedTuple):
    """How draws are made and read: the arguments of that name of a client's calls."""

    columns: list[str] | None = None
    ragged: Ragged | None = None
    without_replacement: bool = False
    windows: tuple[int, int, Borders] | None = None


class Until:
    """The end of a wait: a number of seconds from now, or None."""

    def __init__(self, timeout: float | None) -> None:
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout must be None or at least 0 seconds, got {timeout}")
        self._end = None if timeout is None else time.monotonic() + timeout

    @property
    def left(self) -> float | None:
        """Seconds that are left."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    @property
    def answered(self) -> float | None:
        """Seconds that a shard has to answer what it can answer at once: one that is slow is not lost for it."""
        left = self.left
        return None if left is None else max(left, _TURN)


class Sampler:
    """Draws from one table of all shards, and hands out rations where it has the limiter of all."""

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
        #: Whether inserts are this one's business: it tells the shards how many they may let in.
        self.hands_out = limiter is not None and among[0] == 0
        self.stale = 0
        self._members = members
        self._ends = ends
        #: Draws of one shard do not depend on each other, so that some of them can be left out; and nobody else counts
        #: the draws, who would not know which were.
        self._leaves_out = independent and among[1] == 1
        #: Draws in a row that met items too short for a window, and whether the last ones were such.
        self._short, self._passed = 0, False
        #: What the last answers said may be built upon.
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
        """Hears of a shard that came, or came back. Raises what it fails by."""
        for _, error in self._shards.ask([shard], None):
            raise error
        self.ring()

    def refresh(self, timeout: float | None = None, wants: list[int] | None = None) -> dict[str, Any]:
        """Hears of all shards, and hands out rations; the figures."""
        with self._taking_turn(Until(timeout)):
            self._exchange(Until(timeout), wants)
        return self._shards.figures()

    def allowed(self, num_samples: int) -> bool:
        """True where so many draws could go on now, as the shards were last heard of."""
        return self._shards.allowed(num_samples) == num_samples

    @property
    def inserts_left(self) -> int | None:
        """Inserts that the limiter would let in now; None: no end."""
        return self._shards.inserts_left()

    def batch(self, count: int, timeout: float | None, how: How) -> Batch:
        """One batch; DeadlineExceededError keeps the draws that were made."""
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
        """Draws, and None; or at the deadline, and where `stops()`, those made by then, and why not more.

        Draws without replacement are made all at once or not at all. RaggedError where items are too short for windows.
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
        """RaggedError where no draw met an item that a window fits into for too long."""
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
        """Draws that can be made now, at least one: those of a shard as batches of items that look alike, and whether
        they are steps that were inserted alone. DeadlineExceededError."""
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
        """The numbers below `count` in an order of chance."""
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
        """Makes draws, `least` to `most`: as often as it takes `some`, which is told how many are allowed, and tells
        how many it made. `guess` does the same by what is known already. None; or why not more."""
        began, told, done = time.monotonic(), _PATIENCE, 0
        try:
            while done < least:
                rung = self._shards.rung()
                try:
                    with self._taking_turn(until):
                        made = self._some(most - done, until, some, guess)
                except DeadlineExceededError as late:
                    # A shard is silent, and not lost: the others' draws are made all the same.
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
                # A shard tells when there is something new.
                self._look(rung, told if until.left is None else until.left)
            return None
        finally:
            self._waiting.pop(began, None)

    def _some(self, count: int, until: Until, some: Callable[[int], int], guess: Callable[[int], int] | None) -> int:
        """Makes the draws that the limiter allows now."""
        self._passed = False
        made = guess(count) if guess is not None and self._fresh else 0
        if not made:
            # The masses of this moment, and not of the last batch: a shard that was empty then would be left out.
            self._exchange(until)
            allowed = self._shards.allowed(count)
            made = some(allowed) if allowed else 0
            self._fresh = True
        # Also where nothing can be drawn: who waits for inserts may have to admit some.
        self._hand_out()
        return made

    def _look(self, rung: int, seconds: float) -> None:
        """Waits until there is news of a shard, `ring` was called since it was `rung`, or for so long."""
        self._failed(self._shards.look(rung, seconds))

    def ring(self) -> None:
        """Lets draws that wait look again: a shard came or went, or they are to end."""
        self._shards.ring()

    def forget(self) -> None:
        """Items left otherwise than by inserts, or limits changed: the next draws ask the shards first."""
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
        """Hears of all shards for the first time, or after all tables were reset."""
        until = Until(timeout)
        with self._taking_turn(until):
            self._shards.reset()
            self.forget()
            self._failed(self._shards.ask(self._members.present, until.answered))
            self._exchange(until)

    @contextmanager
    def _taking_turn(self, until: Until) -> Iterator[None]:
        left = until.left
        # Whoever has the turn waits for answers at most, never for a limiter.
        if not self._turn.acquire(timeout=-1 if left is None else max(left, _TURN)):
            why = f"another thread waits for an answer of the shards of table '{self.table}'"
            raise DeadlineExceededError(f"sample: the timeout passed; {why}", why=why)
        try:
            yield
        finally:
            self._turn.release()

    def limit(self, limiter: rate_limiters.RateLimiter) -> None:
        """Another limiter of all shards; the counts go on."""
        self._shards.limit(limiter)
        self.limiter = limiter
        self.forget()
        self.ring()

    def figures(self) -> dict[str, Any]:
        """What is known of the shards."""
        return self._shards.figures()

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        """Requests for draws that wait here."""
        now = time.monotonic()
        return tuple(Waiting(now - began, *counts) for began, counts in sorted(self._waiting.items()))

    def why(self, figures: dict[str, Any] | None = None) -> str:
        """What holds draws and inserts back, over all shards, as they were last heard of."""
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
