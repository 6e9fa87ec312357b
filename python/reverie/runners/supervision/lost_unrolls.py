"""Unrolls that were lost on their way: the actors of an on-policy agent and its learner then wait for each other."""

from __future__ import annotations

from collections.abc import Collection

from reverie.runners.links.messages import Acted, Learnt

LOST_SECONDS = 2.0
"""Actors and learner wait for each other only shortly while weights or the last unroll are on their way."""


class LostUnrolls:
    """Notices that all actors have awaited weights, and all learners a batch, for `LOST_SECONDS`.

    Then a shard was restarted without the unrolls that it had, or a batch or weights did not arrive.
    """

    def __init__(self, num_actors: int) -> None:
        self._num_actors = num_actors
        self._since: float | None = None

    def found(self, now: float, acted: Collection[Acted], learnt: Collection[Learnt]) -> bool:
        """Whether that is so at `now`, in seconds, by the last reports of actors and learners.

        It is not while some actors have not started yet. The time begins again after it has returned True.
        """
        all_wait = all(one.awaits_weights for one in acted) and all(one.awaits_batch for one in learnt)
        if len(acted) < self._num_actors or not all_wait:
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        if now - self._since < LOST_SECONDS:
            return False
        self._since = None
        return True
