"""The tables of a run in one thread: their limiters decide whether the learner or an actor is next."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from reverie.agents.core import TableNeeds
from reverie.tables import Table


def require_turns(agent: str, needs: TableNeeds, tables: Sequence[Table]) -> None:
    """Raise ValueError for a table that never makes the learner wait: the loop learns whenever the table has a batch.

    Only the tables of `needs` decide whose turn it is; an agent may have others.
    A table without items to draw makes it wait, too: one whose items leave it after a number of draws, as a queue.
    """
    for table in (one for one in tables if one.name in needs.tables):
        limiter = table.rate_limiter
        if limiter.min_diff <= -sys.float_info.max and table.max_times_sampled < 1:
            raise ValueError(
                f"table {table.name!r} of {agent} has the rate limiter {type(limiter).__name__}, which does not bound"
                " samples, and in one process the learner would learn from the same items for ever: use"
                " SampleToInsertRatio, or the runner 'process'"
            )
