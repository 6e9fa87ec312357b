"""The place in which a server of a run keeps its tables, and the draws that a killed learner lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reverie import _native
from reverie._picklable import Picklable
from reverie.checkpointers import CheckpointerBase
from reverie.journal import Journal
from reverie.rate_limiters import RateLimiter
from reverie.tables import Table


class JournalMissingError(Picklable, ValueError):
    """A server of a run must continue a journal, and its folder has none. `.path`"""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"the run's journal in {path} is missing on this machine: keep it in a folder that every node sees, or"
            ' resume from the tables of the checkpoint with replay_journal "off"'
        )


@dataclass(frozen=True)
class ReplayStorage:
    """The place in which one server of a run keeps its tables. Can be pickled."""

    checkpointer: CheckpointerBase | None = None
    journal: Journal | None = None
    """The journal, in the folder of the checkpointer."""
    continues: bool = False
    """The folder has a journal of this run, with which the server must start."""
    samples: Mapping[str, int] = field(default_factory=dict)
    """Draws that each table had counted at the state of the learner's checkpoint; empty if that does not matter."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Draws of each table that its limiter counts, and no living learner has learnt from."""

    def server_options(self) -> dict[str, Any]:
        """The arguments `checkpointer` and `journal` of the server. Raises `JournalMissingError`."""
        if self.journal is not None and self.continues and not has_tables(Path(self.journal.path)):
            raise JournalMissingError(self.journal.path)
        return {"checkpointer": self.checkpointer, "journal": self.journal}

    def lost_draws(self, client: Any) -> dict[str, int]:
        """Draws that were lost, by table, now that the server has started: those that its tables counted since then.

        A learner that was killed had made updates since its checkpoint. Its replacement has to make them again.
        """
        infos = client.info().tables
        since = {name: max(0, infos[name].num_samples - before) for name, before in self.samples.items()}
        lost = {name: self.lost.get(name, 0) + since.get(name, 0) for name in {*self.lost, *since}}
        return {name: number for name, number in lost.items() if number}


def has_tables(folder: Path) -> bool:
    """Whether a server that starts with this folder of a journal finds tables there."""
    return _native.latest_checkpoint(str(folder)) is not None


def samples_of(client: Any) -> dict[str, int]:
    """The draws that each table has counted."""
    return {name: info.num_samples for name, info in client.info().tables.items()}


def samples_at(
    draws: Mapping[str, Any], samples: Sequence[Mapping[str, int]], lost: Sequence[Mapping[str, int]]
) -> list[dict[str, int]]:
    """The `samples` of each server at the state of a learner, which has `draws` (`TableDraws.state_dict`).

    Learner and servers answer one after another, and the learner draws meanwhile: a kill loses these draws, too. The
    draws that the servers counted before or after the learner's state are divided among them in proportion to their
    draws.
    """
    table = draws["table"]
    known = draws["made"] + sum(one.get(table, 0) for one in lost)
    counted = sum(one[table] for one in samples)
    left, result = known, []
    for number, one in enumerate(samples, 1):
        part = left if number == len(samples) else known * one[table] // max(counted, 1)
        left -= part
        result.append({**one, table: part})
    return result


def allow_again(tables: Sequence[Table], lost: Mapping[str, int]) -> None:
    """Change the limits of tables on a server so that lost draws can be made again.

    Tables that delete sampled items stay as they are: what was drawn is gone.
    """
    for table in tables:
        if lost.get(table.name) and table.max_times_sampled < 1:
            table.configure(rate_limiter=without(table.rate_limiter, lost[table.name]))


def without(limiter: RateLimiter, lost: int) -> RateLimiter:
    """The limiter for a table that counts `lost` draws too many."""
    if not lost:
        return limiter
    return RateLimiter(
        limiter.samples_per_insert, limiter.min_size_to_sample, limiter.min_diff - lost, limiter.max_diff - lost
    )
