"""Requests to several roles, and the responses that belong to them."""

from types import SimpleNamespace

from scripted_roles import LEARNER, SHARD

from reverie.runners.links.messages import (
    SavedState,
    SaveState,
)
from reverie.runners.supervision.requests import RoleRequests


def test_a_request_takes_only_answers_with_its_number():
    sent, reports = [], []

    def wait(done, what, seconds, meanwhile):
        while not done():
            requests.receive(*reports.pop(0))
        waits.append((what, seconds))

    waits = []
    roles = SimpleNamespace(ask=lambda name, command: sent.append((name, command)), learning=[LEARNER])
    requests = RoleRequests(roles, wait)
    reports += [
        (LEARNER, SavedState(1)),
        (LEARNER, SavedState(-1)),
        (SHARD, SavedState(2)),
        (SHARD, SavedState(1, "tables")),
    ]
    assert requests.ask([LEARNER, SHARD], SaveState) == {LEARNER: SavedState(1), SHARD: SavedState(1, "tables")}
    assert sent == [(LEARNER, SaveState(1)), (SHARD, SaveState(1))]
    assert waits == [("the response of learner and 1 others to SaveState", 600.0)]
    # One that comes after its request has ended, as by a deadline, is discarded.
    reports += [(LEARNER, SavedState(1)), (LEARNER, SavedState(2, "new"))]
    assert requests.ask([LEARNER], SaveState) == {LEARNER: SavedState(2, "new")}
