"""Roles that send no reports and runs that stand still: awaited, reported, and timed by a clock of listening."""

from types import SimpleNamespace

import pytest
from scripted_roles import LEARNER, SHARD, make_started_roles

from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.runners import StalledError, TrainingWaits
from reverie.runners.links.messages import (
    LearnerReport,
    ShardReport,
)
from reverie.runners.supervision import absences, role_group, supervisor
from reverie.runners.supervision.absences import Absence
from reverie.runners.supervision.latest_reports import LatestReports
from reverie.runners.supervision.listening_clock import ListeningClock
from reverie.runners.supervision.role_group import EVALUATOR
from reverie.runners.supervision.stalls import StallWatch


@pytest.fixture
def clock(monkeypatch):
    """A function that lets a group of roles listen for so many seconds, one second at a time."""
    now = [100.0]
    monkeypatch.setattr(role_group, "ListeningClock", lambda: ListeningClock(lambda: now[0]))

    def listen(roles, seconds, *, turns=None):
        for _ in range(turns or seconds):
            now[0] += seconds / (turns or seconds)
            roles.listen(0)

    return listen


def test_a_role_that_does_not_report_is_awaited_and_an_evaluator_may_play_for_hours(clock):
    roles, _, receive, _ = make_started_roles(apex_dqn)
    served = ShardReport({}, "")
    for _ in range(29):
        clock(roles, 1)
        receive(SHARD, served)
    assert roles.awaited() == {}
    clock(roles, 1)
    receive(SHARD, served)
    assert roles.awaited() == {name: Absence(30.0, begun=True) for name in (LEARNER, *roles.actors)}
    receive(LEARNER, LearnerReport(1, {}, {}))
    clock(roles, 1)
    assert set(roles.awaited()) == set(roles.actors)
    clock(roles, 1_000)
    assert EVALUATOR not in roles.awaited()


def test_a_role_whose_process_is_stopped_is_awaited_with_the_command_that_resumes_it(clock):
    roles, backend, *_ = make_started_roles(apex_dqn)
    backend.stops = {EVALUATOR: "is stopped"}
    assert roles.awaited() == {EVALUATOR: Absence(0.0, "is stopped", begun=True)}
    clock(roles, 7)
    assert roles.awaited()[EVALUATOR] == Absence(7.0, "is stopped", begun=True)
    backend.stops = {}
    assert roles.awaited() == {}
    backend.stops = {EVALUATOR: "is stopped"}
    assert roles.awaited() == {EVALUATOR: Absence(0.0, "is stopped", begun=True)}


def test_time_in_which_the_supervisor_was_suspended_does_not_count_as_silence(clock):
    """Ctrl-Z and fg affect the whole group."""
    roles, *_ = make_started_roles(apex_dqn)
    clock(roles, 3_600, turns=1)
    assert roles.awaited() == {}
    clock(roles, 29)
    assert set(roles.awaited()) == {SHARD, LEARNER, *roles.actors}


@pytest.fixture
def standing(clock):
    """A run whose roles neither step nor learn, its roles, and its events."""
    roles, *_ = make_started_roles(apex_dqn)
    course = object.__new__(supervisor.Supervisor)
    course._roles, course._topology, course._should_stop = roles, roles.topology, lambda: False
    course._account, course._stalls = SimpleNamespace(env_steps=5, updates=3), StallWatch()
    course._awaiting = absences.AbsenceReporter(300.0)
    course._latest, events = LatestReports(), []
    course._emit = events.append
    course._latest.served[0] = ShardReport({}, "its table is full")
    course._check_stalled(waiting_for_training=True)
    return course, roles, events


def test_a_run_that_neither_steps_nor_learns_reports_each_half_minute_why(standing, clock):
    course, roles, events = standing

    def reported_after(seconds):
        clock(roles, seconds)
        course._check_stalled(waiting_for_training=True)
        return len(events)

    assert [reported_after(seconds) for seconds in (34, 2, 20, 10)] == [0, 1, 1, 2]
    assert isinstance(events[0], TrainingWaits)
    assert "shard 0: its table is full" in events[0].reason
    # It is not reported while other reports name the role that the run waits for, nor once the run goes on.
    course._awaiting.text = "learner has not reported for 30 s"
    assert reported_after(30) == 2
    course._awaiting.text, course._account.updates = "", 4
    assert [reported_after(seconds) for seconds in (1, 25, 10)] == [2, 2, 3]


def test_time_in_which_the_supervisor_was_suspended_does_not_count_as_a_stall(standing, clock):
    course, roles, _ = standing
    clock(roles, 3_600, turns=1)
    course._check_stalled(waiting_for_training=True)
    clock(roles, 300)
    with pytest.raises(StalledError, match=r"learner has not reported for 30\d s.*; shard 0: its table is full"):
        course._check_stalled(waiting_for_training=True)
