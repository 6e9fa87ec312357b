"""Requests to several roles, and the responses that belong to them."""

from types import SimpleNamespace

from scripted_roles import LEARNER, SHARD

from reverie.runners.links.messages import (
    Save,
    SavedState,
)
from reverie.runners.supervision.requests import Requests


def test_a_request_takes_only_answers_with_its_number():
    sent, reports = [], []

    def wait(done, what, seconds, meanwhile):
        while not done():
            requests.receive(*reports.pop(0))
        waits.append((what, seconds))

    waits = []
    roles = SimpleNamespace(ask=lambda name, command: sent.append((name, command)), learning=[LEARNER])
    requests = Requests(roles, wait)
    reports += [
        (LEARNER, SavedState(1)),
        (LEARNER, SavedState(-1)),
        (SHARD, SavedState(2)),
        (SHARD, SavedState(1, "tables")),
    ]
    assert requests.ask([LEARNER, SHARD], Save) == {LEARNER: SavedState(1), SHARD: SavedState(1, "tables")}
    assert sent == [(LEARNER, Save(1)), (SHARD, Save(1))]
    assert waits == [("the response of learner and 1 others to Save", 600.0)]
    # One that comes after its request has ended, as by a deadline, is discarded.
    reports += [(LEARNER, SavedState(1)), (LEARNER, SavedState(2, "new"))]
    assert requests.ask([LEARNER], Save) == {LEARNER: SavedState(2, "new")}
