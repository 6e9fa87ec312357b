"""The objective of `reverie search`: one number for a learning curve, or for the part of it that there is."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reverie.runners.reports.logs import RunLog


class SearchObjective(enum.Enum):
    """The number that a search makes as high as it can."""

    last = "last"
    best = "best"
    mean = "mean"

    def of(self, returns: Sequence[float]) -> float:
        """The objective for the greedy returns of a curve so far. Raises ValueError for none."""
        if not returns:
            raise ValueError("a curve without evaluations has no objective")
        match self:
            case SearchObjective.last:
                return float(returns[-1])
            case SearchObjective.best:
                return float(max(returns))
            case SearchObjective.mean:
                return float(sum(returns) / len(returns))


def whole_curve(log: RunLog, evaluations: int) -> list[float]:
    """The returns of a curve; a run that ended early because it was confirmed keeps its confirmed return.

    `evaluations` is the number of evaluations of a run that goes on to its last step. So the mean over the curve is
    higher for a run that reaches the target sooner.
    """
    returns = list(log.returns)
    if log.finished is not None and log.finished["confirmed"]:
        returns += [float(log.finished["mean_return"])] * (evaluations - len(returns))
    return returns
