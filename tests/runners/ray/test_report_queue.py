"""Reports that wait while the supervisor does not ask for them."""

import dataclasses

import pytest

pytest.importorskip("torch")

from reverie.agents.core import CompileNote, EnvironmentCrash
from reverie.runners.links.messages import ActorReport, BundleReport, LearnerReport, RoleReady, SavedState, ShardReport
from reverie.runners.ray import report_queue
from reverie.runners.ray.report_queue import ReportQueue

READY = RoleReady(7, "here")


def drained(*reports):
    queue = ReportQueue()
    for report in reports:
        queue.put(report)
    return queue.drain()


def acted(env_steps, **of_the_time_before):
    return ActorReport(env_steps, version=env_steps, state={"env_steps": env_steps}, **of_the_time_before)


CRASH = EnvironmentCrash("CartPole-v1", 3, 4, "it broke")


def test_the_last_report_of_an_actor_waits_with_the_returns_crashes_and_seconds_of_all():
    queue = ReportQueue()
    queue.put(READY)
    queue.put(acted(1, returns=(5.0,), seconds={"act": 1.0, "insert": 2.0}))
    queue.put(acted(2, crashes=(CRASH,), seconds={"act": 0.5}))
    queue.put(acted(3, returns=(6.0, 7.0), waits="the table is full"))
    last = acted(
        3, returns=(5.0, 6.0, 7.0), crashes=(CRASH,), seconds={"act": 1.5, "insert": 2.0}, waits="the table is full"
    )
    assert queue.drain() == [READY, last]
    assert queue.drain() == []
    queue.put(acted(4))
    assert queue.drain() == [acted(4)]


def test_the_reports_of_an_hour_are_as_many_as_those_of_a_second(monkeypatch):
    monkeypatch.setattr(report_queue, "MAX_JOINED", 3)
    (only,) = drained(*(acted(i, returns=(float(i),), crashes=(CRASH,)) for i in range(50)))
    assert (only.env_steps, only.returns, only.crashes) == (49, (47.0, 48.0, 49.0), (CRASH,) * 3)
    notes = [CompileNote(i, 1.0, found=False) for i in range(9)]
    (learnt,) = drained(*(LearnerReport(note.update, {}, {"learn": 0.25}, compiled=(note,)) for note in notes))
    assert learnt == LearnerReport(8, {}, {"learn": 2.25}, compiled=tuple(notes[-3:]))


def test_answers_keep_their_order_and_are_all_there():
    one, other = SavedState(1), SavedState(2)
    assert drained(ShardReport({"size": 1.0}, ""), one, ShardReport({"size": 2.0}, ""), other) == [
        one,
        ShardReport({"size": 2.0}, ""),
        other,
    ]


def test_the_shards_of_a_learners_report_wait_until_there_are_newer_ones():
    first, second = [{"size": 1}], [{"size": 2}]
    reports = [LearnerReport(i, {}, {}, shards=shards) for i, shards in enumerate((first, second, None))]
    assert drained(*reports) == [dataclasses.replace(reports[2], shards=second)]


def test_a_bundles_reports_are_joined_part_by_part():
    def bundled(number, **parts):
        learnt = LearnerReport(number, {}, {"learn": 1.0})
        return BundleReport(acted(number, **parts), learnt, ShardReport({"size": float(number)}, ""))

    (one,) = drained(bundled(1, returns=(4.0,)), bundled(2, returns=(5.0,)))
    assert one == BundleReport(
        acted(2, returns=(4.0, 5.0)), LearnerReport(2, {}, {"learn": 2.0}), ShardReport({"size": 2.0}, "")
    )


def test_a_problem_of_publishing_weights_is_not_lost_behind_a_report_without_one():
    older, newer = LearnerReport(1, {}, {}, unpublished="the object store is full"), LearnerReport(2, {}, {})
    assert drained(older, newer) == [dataclasses.replace(newer, unpublished="the object store is full")]
    again = dataclasses.replace(newer, unpublished="it is full still")
    assert drained(older, again) == [again]
