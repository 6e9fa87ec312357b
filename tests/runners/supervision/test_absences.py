"""A missing role is reported at once, with what it lacks, and times out."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from reverie.runners import RoleMissingError
from reverie.runners.links.messages import RoleName
from reverie.runners.planning.devices import missing_resource
from reverie.runners.reports.logs import as_line
from reverie.runners.supervision.absences import Absence, AbsenceReporter

LEARNER, ACTOR = RoleName("learner", alone=True), RoleName("actor", 1)
LACKS = "asks for 1 GPU, and the Ray cluster has 0, 0 of them free"


def test_a_role_that_lacks_something_is_reported_early_and_repeatedly_and_a_slow_one_later():
    awaiting = AbsenceReporter(300.0)
    seen = []
    for second in range(100):
        awaited = {LEARNER: Absence(float(second), LACKS), ACTOR: Absence(float(second))}
        seen += [(second, event.role, event.reason) for event in awaiting.check(awaited, 7, None)]
    assert seen == [
        (2, "learner", LACKS),
        (30, "actor 1", ""),
        (32, "learner", LACKS),
        (60, "actor 1", ""),
        (62, "learner", LACKS),
        (90, "actor 1", ""),
        (92, "learner", LACKS),
    ]
    assert awaiting.text == f"learner has not started for 99 s: it {LACKS}; actor 1 has not started for 99 s"
    assert awaiting.check({}, 7, None) == []
    assert awaiting.text == ""
    # Once more, after it was there.
    (event,) = awaiting.check({LEARNER: Absence(2.5, LACKS)}, 9, None)
    assert as_line(event) == {
        "event": "role awaited",
        "env_steps": 9,
        "role": "learner",
        "seconds": 2.5,
        "reason": LACKS,
        "begun": False,
    }


def test_a_restarted_role_is_reported_again():
    awaiting = AbsenceReporter(300.0)
    assert len(awaiting.check({LEARNER: Absence(20.0, LACKS)}, 0, None)) == 1
    assert awaiting.check({LEARNER: Absence(21.0, LACKS)}, 0, None) == []
    assert len(awaiting.check({LEARNER: Absence(3.0, LACKS)}, 0, None)) == 1


def test_a_role_that_lacks_something_times_out_with_advice_and_a_slow_one_does_not():
    awaiting = AbsenceReporter(300.0)
    awaiting.check({ACTOR: Absence(1_000.0)}, 0, None)
    awaiting.check({LEARNER: Absence(300.0, LACKS)}, 0, None)
    with pytest.raises(
        RoleMissingError, match=r"learner did not start within 301 s: it asks for 1 GPU.*start again"
    ) as e:
        awaiting.check({LEARNER: Absence(301.0, LACKS)}, 0, None)
    assert (e.value.role, e.value.reason) == ("learner", LACKS)
    with pytest.raises(RoleMissingError, match=r"continue from runs/a/checkpoints/7 \(--resume\), or ask for less"):
        awaiting.check({LEARNER: Absence(301.0, LACKS)}, 0, Path("runs/a/checkpoints/7"))


def test_a_stopped_or_silent_role_is_reported_and_does_not_time_out():
    awaiting, stopped = AbsenceReporter(300.0), "is stopped (kill -CONT 7 resumes it)"
    seen = []
    for second in (1, 2, 29, 30, 1_000):
        awaited = {LEARNER: Absence(float(second), stopped, begun=True), ACTOR: Absence(float(second), begun=True)}
        seen += [(second, event.role, event.reason, event.begun) for event in awaiting.check(awaited, 7, None)]
    assert seen == [
        (2, "learner", stopped, True),
        (30, "actor 1", "", True),
        (1_000, "learner", stopped, True),
        (1_000, "actor 1", "", True),
    ]
    assert awaiting.text == f"learner has not reported for 1000 s: it {stopped}; actor 1 has not reported for 1000 s"


def test_checks_are_a_second_apart():
    awaiting = AbsenceReporter(300.0)
    assert [awaiting.is_due(now) for now in (5.0, 5.5, 6.0, 6.1, 9.0)] == [True, False, True, False, True]


def test_missing_resources_are_reported_with_their_numbers():
    assert missing_resource({"GPU": 1.0}, {}, {}) == LACKS
    assert missing_resource({"GPU": 0.25, "CPU": 2}, {"GPU": 1, "CPU": 8}, {"GPU": 0.25, "CPU": 1}) == (
        "asks for 2 CPU, and the Ray cluster has 8, 1 of them free"
    )
    assert missing_resource({"GPU": 0.0, "CPU": 0.5}, {"CPU": 1}, {"CPU": 0.5}) == ""
