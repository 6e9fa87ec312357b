"""A role that is not there is told of at once, and what it lacks; and it is not waited for for ever."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from reverie.runners import RoleMissingError
from reverie.runners.links.messages import RoleName
from reverie.runners.planning.topology import lacking
from reverie.runners.reports.logs import as_line
from reverie.runners.supervision.absences import Absence, AbsenceReporter

LEARNER, ACTOR = RoleName("learner", alone=True), RoleName("actor", 1)
LACKS = "asks for 1 GPU, and the Ray cluster has 0, 0 of them free"


def test_what_lacks_something_is_told_at_once_and_again_and_what_only_takes_long_later():
    awaiting = AbsenceReporter(300.0)
    told = []
    for second in range(100):
        awaited = {LEARNER: Absence(float(second), LACKS), ACTOR: Absence(float(second))}
        told += [(second, event.role, event.reason) for event in awaiting.look(awaited, 7, None)]
    assert told == [
        (2, "learner", LACKS),
        (30, "actor 1", ""),
        (32, "learner", LACKS),
        (60, "actor 1", ""),
        (62, "learner", LACKS),
        (90, "actor 1", ""),
        (92, "learner", LACKS),
    ]
    assert awaiting.text == f"learner has not started for 99 s: it {LACKS}; actor 1 has not started for 99 s"
    assert awaiting.look({}, 7, None) == []
    assert awaiting.text == ""
    # Once more, after it was there.
    (event,) = awaiting.look({LEARNER: Absence(2.5, LACKS)}, 9, None)
    assert as_line(event) == {
        "event": "role awaited",
        "env_steps": 9,
        "role": "learner",
        "seconds": 2.5,
        "reason": LACKS,
        "begun": False,
    }


def test_a_role_that_is_started_once_more_is_told_of_anew():
    awaiting = AbsenceReporter(300.0)
    assert len(awaiting.look({LEARNER: Absence(20.0, LACKS)}, 0, None)) == 1
    assert awaiting.look({LEARNER: Absence(21.0, LACKS)}, 0, None) == []
    assert len(awaiting.look({LEARNER: Absence(3.0, LACKS)}, 0, None)) == 1


def test_what_nobody_gives_ends_the_run_with_what_to_do_and_slowness_does_not():
    awaiting = AbsenceReporter(300.0)
    awaiting.look({ACTOR: Absence(1_000.0)}, 0, None)
    awaiting.look({LEARNER: Absence(300.0, LACKS)}, 0, None)
    with pytest.raises(
        RoleMissingError, match=r"learner did not start within 301 s: it asks for 1 GPU.*start again"
    ) as e:
        awaiting.look({LEARNER: Absence(301.0, LACKS)}, 0, None)
    assert (e.value.role, e.value.reason) == ("learner", LACKS)
    with pytest.raises(RoleMissingError, match=r"continue from runs/a/checkpoints/7 \(--resume\), or ask for less"):
        awaiting.look({LEARNER: Absence(301.0, LACKS)}, 0, Path("runs/a/checkpoints/7"))


def test_a_role_that_is_stopped_or_silent_is_told_of_and_not_given_up():
    awaiting, stopped = AbsenceReporter(300.0), "is stopped (kill -CONT 7 resumes it)"
    told = []
    for second in (1, 2, 29, 30, 1_000):
        awaited = {LEARNER: Absence(float(second), stopped, begun=True), ACTOR: Absence(float(second), begun=True)}
        told += [(second, event.role, event.reason, event.begun) for event in awaiting.look(awaited, 7, None)]
    assert told == [
        (2, "learner", stopped, True),
        (30, "actor 1", "", True),
        (1_000, "learner", stopped, True),
        (1_000, "actor 1", "", True),
    ]
    assert awaiting.text == f"learner has not reported for 1000 s: it {stopped}; actor 1 has not reported for 1000 s"


def test_looks_are_a_second_apart():
    awaiting = AbsenceReporter(300.0)
    assert [awaiting.is_due(now) for now in (5.0, 5.5, 6.0, 6.1, 9.0)] == [True, False, True, False, True]


def test_what_a_cluster_lacks_is_told_by_its_numbers():
    assert lacking({"GPU": 1.0}, {}, {}) == LACKS
    assert lacking({"GPU": 0.25, "CPU": 2}, {"GPU": 1, "CPU": 8}, {"GPU": 0.25, "CPU": 1}) == (
        "asks for 2 CPU, and the Ray cluster has 8, 1 of them free"
    )
    assert lacking({"GPU": 0.0, "CPU": 0.5}, {"CPU": 1}, {"CPU": 0.5}) == ""
