"""Unrolls that were lost on their way: the actors of an on-policy agent and its learner then wait for each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

LOST_SECONDS = 2.0
"""Actors and learner wait for each other only shortly while weights or the last unroll are on their way."""


class RoleWait(NamedTuple):
    """The state of an actor or a learner in its last report."""

    waits: bool
    """Whether it waits for weights or a batch."""
    reported_at: float
    """The time of the report, in seconds."""


class LostUnrolls:
    """Notices that all actors await weights, and all learners a batch, for `LOST_SECONDS`.

    Then a shard was restarted without the unrolls that it had, or a batch or weights did not arrive.
    """

    def __init__(self) -> None:
        self._since: float | None = None

    def found(self, waits: Iterable[RoleWait]) -> bool:
        """Whether that is so by the last report of every actor and learner.

        Each must have reported again after that time: a role at work reports after its work. The time begins again
        after it has returned True.
        """
        waits = list(waits)
        if not all(one.waits for one in waits):
            self._since = None
            return False
        times = [one.reported_at for one in waits]
        self._since = max(times) if self._since is None else self._since
        if min(times) - self._since < LOST_SECONDS:
            return False
        self._since = None
        return True
