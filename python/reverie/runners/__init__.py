"""Runners: how a run is laid out (`topology`), how it runs (`local`), and who judges it (`evaluator`).

A runner receives an agent's module and knows no algorithm by name.
"""

from __future__ import annotations

from reverie.runners.evaluator import Evaluation, Evaluator
from reverie.runners.local import CurvePoint, Evaluated, Event, Finished, Progress, Result, StalledError, Started, train
from reverie.runners.topology import DoesNotFitError, Topology, plan

__all__ = [
    "CurvePoint",
    "DoesNotFitError",
    "Evaluated",
    "Evaluation",
    "Evaluator",
    "Event",
    "Finished",
    "Progress",
    "Result",
    "StalledError",
    "Started",
    "Topology",
    "plan",
    "train",
]
