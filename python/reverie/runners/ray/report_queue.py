"""Reports that wait in a role's Ray actor for the supervisor, which may be suspended for hours."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from reverie.runners.links.messages import ActorReport, BundleReport, LearnerReport, Report, ShardReport

MAX_JOINED = 1000
"""The most returns, crashes and notes of a compiler in one report: the newest."""
REGULAR = (ActorReport, LearnerReport, ShardReport, BundleReport)
"""Reports that a role sends ten times a second."""


class ReportQueue:
    """Reports in order; of the regular ones only the last, which has what all since the last `drain` had. Thread-safe.

    All other reports are answers to commands of the supervisor, and those of the role's start and failure. A joined
    report comes after the answers in between: it has newer counts than an answer before it, never older ones.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards the reports. Held while two are joined."""
        self._reports: list[Report] = []

    def put(self, report: Report) -> None:
        """Add a report."""
        with self._lock:
            if isinstance(report, REGULAR):
                waiting = [i for i, one in enumerate(self._reports) if isinstance(one, REGULAR)]
                for i in waiting:  # one at most
                    report = joined(self._reports.pop(i), report)
            self._reports.append(report)

    def drain(self) -> list[Report]:
        """Remove and return all reports."""
        with self._lock:
            drained, self._reports = self._reports, []
        return drained


def joined(older: Report, newer: Report) -> Report:
    """The newer of two regular reports of one role, with what the older one had of the time before it."""
    match older, newer:
        case ActorReport(), ActorReport():
            return replace(
                newer,
                returns=(*older.returns, *newer.returns)[-MAX_JOINED:],
                crashes=(*older.crashes, *newer.crashes)[-MAX_JOINED:],
                seconds=_sums(older.seconds, newer.seconds),
            )
        case LearnerReport(), LearnerReport():
            return replace(
                newer,
                seconds=_sums(older.seconds, newer.seconds),
                compiled=(*older.compiled, *newer.compiled)[-MAX_JOINED:],
                shards=older.shards if newer.shards is None else newer.shards,
                unpublished=newer.unpublished or older.unpublished,
            )
        case BundleReport(), BundleReport():
            acted, learnt = joined(older.acted, newer.acted), joined(older.learnt, newer.learnt)
            assert isinstance(acted, ActorReport)
            assert isinstance(learnt, LearnerReport)
            return BundleReport(acted, learnt, newer.served)
    return newer


def _sums(older: Mapping[str, float], newer: Mapping[str, float]) -> dict[str, float]:
    return {name: older.get(name, 0.0) + newer.get(name, 0.0) for name in {**older, **newer}}
