"""Draws from one table of all shards."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from reverie import _native, rate_limiters
from reverie.errors import ClosedError, DeadlineExceededError
from reverie.sharding.members import LOST, Members
from reverie.types import Batch, Waiting

__all__ = ["Sampler"]

_LOG = logging.getLogger("reverie")

#: Seconds between two looks at shards that have too few items: at first, and at most.
_FIRST_LOOK, _LAST_LOOK = 0.001, 0.02
#: Seconds for which a caller whose time is over waits for another thread's turn: it takes as long as an answer.
_TURN = 1.0
#: Seconds after which an endless wait says for the first time what it waits for.
_PATIENCE = 10.0

Ragged = Literal["pad", "values"]


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


class Sampler:
    """Draws from one table of all shards, and hands out rations where it has the limiter of all."""

    def __init__(
        self, members: Members, table: str, limiter: rate_limiters.RateLimiter | None, seed: int, ends: threading.Event
    ) -> None:
        self.table = table
        self.limiter = limiter
        self.stale = 0
        self._members = members
        self._ends = ends
        self._shards = _native.Shards(list(members.clients), table, rate_limiter=limiter, seed=seed)
        #: Held while draws are made or rations handed out, one after the other.
        self._turn = threading.Lock()
        #: Draws that wait, by the moment they began: wanted, done.
        self._waiting: dict[float, tuple[int, int]] = {}

    def join(self, shard: int) -> None:
        """Hears of a shard that came, or came back. Raises what it fails by."""
        for _, error in self._shards.ask([shard], None):
            raise error

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

    def batch(self, count: int, timeout: float | None, columns: list[str] | None, ragged: Ragged | None) -> Batch:
        """One batch; DeadlineExceededError keeps the draws that were made."""
        drawn, why = self.draw(count, Until(timeout), columns, ragged, lambda: False)
        if why is None:
            return self.gather(drawn, columns, ragged)
        partial = self.gather(drawn, columns, ragged) if drawn else None
        raise DeadlineExceededError(f"sample: the timeout passed; {why}", why=why, partial=partial)

    def gather(self, drawn: list[_native.ShardDraws], columns: list[str] | None, ragged: Ragged | None) -> Batch:
        """The batch of draws."""
        return self._shards.gather(drawn, columns=columns, ragged=ragged)

    def draw(
        self,
        count: int,
        until: Until,
        columns: list[str] | None,
        ragged: Ragged | None,
        stops: Callable[[], bool],
    ) -> tuple[list[_native.ShardDraws], str | None]:
        """Draws, and None; or at the deadline, and where `stops()`, those made by then, and why not more."""
        drawn: list[_native.ShardDraws] = []
        began, told, pause = time.monotonic(), _PATIENCE, 0.0
        try:
            while count:
                before = sum(map(len, drawn))
                try:
                    with self._taking_turn(until):
                        self._some(count, until, columns, ragged, drawn)
                except DeadlineExceededError as late:
                    # A shard is silent, and not lost: the others' draws are made all the same.
                    return drawn, late.why
                made = sum(map(len, drawn)) - before
                count -= made
                if made:
                    pause = 0.0
                    continue
                if stops() or until.left == 0.0:
                    return drawn, self.why()
                done = sum(map(len, drawn))
                self._waiting[began] = (count + done, done)
                if until.left is None and time.monotonic() - began > told:
                    _LOG.warning("still waiting after %.0f s: %s", time.monotonic() - began, self.why())
                    told *= 3
                # A shard tells of its inserts when it is asked.
                pause = min(_LAST_LOOK, max(_FIRST_LOOK, 2 * pause))
                if self._ends.wait(pause if until.left is None else min(pause, until.left)):
                    raise ClosedError("this client is closed", name=self.table)
            return drawn, None
        finally:
            self._waiting.pop(began, None)

    def _some(
        self,
        count: int,
        until: Until,
        columns: list[str] | None,
        ragged: Ragged | None,
        drawn: list[_native.ShardDraws],
    ) -> None:
        """Makes the draws that the limiter allows now, and puts them to the others."""
        # The masses of this moment, and not of the last batch: a shard that was empty then would be left out.
        self._exchange(until)
        allowed = self._shards.allowed(count)
        if not allowed:
            return
        more, failures = self._shards.draw(allowed, timeout=until.left, columns=columns, ragged=ragged)
        drawn += more
        self._failed(failures)
        self._hand_out()

    def _exchange(self, until: Until, wants: list[int] | None = None) -> None:
        if self.limiter is None:
            failures = self._shards.ask(self._members.present, until.left)
        else:
            wants = [0] * len(self._members.clients) if wants is None else wants
            failures = self._shards.exchange(wants, until.left)
        self._failed(failures)

    def _hand_out(self) -> None:
        if self.limiter is not None:
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

    def begin(self, timeout: float | None) -> None:
        """Hears of all shards for the first time, or after all tables were reset."""
        until = Until(timeout)
        with self._taking_turn(until):
            self._shards.reset()
            self._failed(self._shards.ask(self._members.present, until.left))
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
