"""The shares of a mixture of tables that change from batch to batch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from reverie import _checks

__all__ = ["Annealed", "annealed_shares"]


@dataclasses.dataclass(frozen=True, slots=True)
class Annealed:
    """A table's share of each batch that goes from `first` to `last` along a line: `client.batches({...: Annealed()})`.

    Shares of several tables count in relation to their sum, batch by batch: with `{"offline": Annealed(1, 0, 1000),
    "online": Annealed(0, 1, 1000)}` the offline table has all draws of the first batch, half of those of batch 500, and
    none from batch 1000 on.

    Args:
        first: the share up to the batch `start`; at least 0.
        last: the share from the batch `start + batches` on; at least 0.
        batches: the number of batches in which it changes, at least 1.
        start: the batch at which the change begins; batches count from 0 in each iterator. A loop that was resumed
            after n batches passes `start=-n`.

    Raises:
        ValueError: for shares below 0 or not finite, or fewer than one batch.
    """

    first: float
    last: float
    batches: int
    start: int = 0

    def __post_init__(self) -> None:
        for name in ("first", "last"):
            share = _checks.number(name, getattr(self, name))
            if not (share >= 0 and math.isfinite(share)):
                raise ValueError(f"{name} must be a share of at least 0, got {share}")
            object.__setattr__(self, name, share)
        object.__setattr__(self, "batches", _checks.count("batches", self.batches, 1, _checks.MANY))
        object.__setattr__(self, "start", _checks.count("start", self.start, -_checks.MANY, _checks.MANY))

    def at(self, batch: int) -> float:
        """The share of a batch, counted from 0."""
        passed = min(max(batch - self.start, 0), self.batches) / self.batches
        return self.first + (self.last - self.first) * passed


def annealed_shares(shares: Mapping[str, float | Annealed]) -> dict[str, Annealed]:
    """The shares of tables as lines; numbers are lines without a slope.

    Raises:
        ValueError: for a batch in which no table has a share.
    """
    lines = {
        table: share if isinstance(share, Annealed) else Annealed(share, share, 1) for table, share in shares.items()
    }
    # The sum can only be 0 between two of these batches where it is 0 at both.
    ends = {batch for line in lines.values() for batch in (0, line.start, line.start + line.batches)}
    for batch in sorted(end for end in ends if end >= 0):
        if not any(line.at(batch) > 0 for line in lines.values()):
            raise ValueError(f"no table has a share of batch {batch}: {dict(shares)}")
    return lines
