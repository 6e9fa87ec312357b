"""The figures of a run for the page of its server: what `Server.publish` takes, made from the run's events."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from reverie.runners.reports.events import CurvePoint, Evaluated, Event, Finished, Progress, Started
from reverie.runners.reports.sparse_events import SparseEvents

MOST_POINTS = 500
"""The most points of the curve that are published; a longer curve has every second, fourth, ... and the last."""
MOST_ACTIVITIES = 60
"""Activities that are published: those that took longest."""
MOST_BYTES = 1000
"""Bytes of a text that are published, which is what the server permits."""


class RunFigures:
    """Makes the figures to publish from a run's events: about once a second, and for every point of the curve.

    They are within the bounds of `Server.publish`.
    """

    def __init__(self) -> None:
        self._sparse = SparseEvents()
        self._started: Started | None = None
        self._progress: Progress | None = None
        self._curve: list[CurvePoint] = []
        self._confirmed = False

    def __call__(self, event: Event) -> dict[str, Any] | None:
        """The figures after this event; None where they are not to be published again."""
        due = bool(self._sparse(event))
        match event:
            case Started():
                self._started, self._progress, self._confirmed = event, None, False
                self._curve = list(event.curve)
            case Progress():
                self._progress = event
            case Evaluated(point, confirmation):
                self._curve.append(point)
                self._confirmed = confirmation is not None and self._is_reached_by(confirmation.mean_return)
            case Finished(result):
                self._confirmed = result.confirmed
            case _:
                return None
        return _figures(self._started, self._progress, self._curve, self._confirmed) if due and self._started else None

    def _is_reached_by(self, mean_return: float) -> bool:
        return self._started is not None and self._started.topology.run.reached_by(mean_return)


def _figures(started: Started, progress: Progress | None, curve: list[CurvePoint], confirmed: bool) -> dict[str, Any]:
    topology = started.topology
    figures: dict[str, Any] = {
        "agent": _text(topology.agent),
        "env": _text(topology.env.env_id),
        "seed": topology.seed,
        "runner": topology.runner,
        "env_steps": started.env_steps,
        "updates": 0,
        "max_env_steps": topology.run.max_env_steps,
        "target_return": topology.run.target_return,
        "confirmed": confirmed,
        "curve": [
            [point.env_steps, round(point.seconds, 3), point.mean_return]
            for point in thinned(curve)
            if math.isfinite(point.mean_return)
        ],
    }
    if progress is not None:
        figures |= {
            "env_steps": progress.env_steps,
            "updates": progress.updates,
            "seconds": progress.seconds,
            "training_return": _finite(progress.training_return),
            "samples_per_insert": progress.samples_per_insert,
            "policy_age_updates": progress.policy_lag,
            "waits_for": _text(progress.waits_for),
            "activities": _longest(progress.activities),
        }
    return figures


def thinned(curve: list[CurvePoint], most: int = MOST_POINTS) -> list[CurvePoint]:
    """The curve with at most `most` (2 or more) points at equal distances, and the last one."""
    step = 1
    while len(curve) > step * (most - 1):
        step *= 2
    kept = curve[::step]
    return kept if not curve or kept[-1] is curve[-1] else [*kept, curve[-1]]


def _longest(activities: Mapping[str, float]) -> dict[str, float]:
    rows = sorted(activities.items(), key=lambda row: -row[1])[:MOST_ACTIVITIES]
    return {_text(name)[:100]: round(seconds, 3) for name, seconds in rows}


def _text(text: str) -> str:
    return text.encode(errors="ignore")[:MOST_BYTES].decode(errors="ignore")


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
