"""The page of a run on a backend: the figures that are sent, and the address that is reported."""

import dataclasses

import pytest

pytest.importorskip("torch")

from reverie.agents.dqn import agent as dqn
from reverie.pages import Page
from reverie.runners import PageOpened, Progress, Started, plan
from reverie.runners.links.messages import (
    ActorReport,
    BundleReport,
    LearnerReport,
    RoleName,
    RoleSetup,
    ShardReport,
    ShardSettings,
    ShowFigures,
)
from reverie.runners.supervision.page_backend import PageBackend

SHARD, SECOND, ACTOR = RoleName("shard", 0), RoleName("shard", 1), RoleName("actor", 0)
LEARNER = RoleName("learner", 0)
URL = "http://127.0.0.1:1234/"


class RecordingBackend:
    """A backend that returns prepared reports, and keeps what is started and sent."""

    def __init__(self):
        self.started, self.sent, self.reports = [], [], []

    def start(self, setup):
        self.started.append(setup)

    def send(self, name, command):
        self.sent.append((name, command))

    def listen(self, timeout):
        reports, self.reports = self.reports, []
        return reports


@pytest.fixture
def run():
    """The page of a run, its backend, the events that it passed on, and a function that lets a role report."""
    backend, events = RecordingBackend(), []
    page = PageBackend(backend, Page("127.0.0.1:0", "sesame"), events.append)
    page.on_event(Started(plan(dqn, "CartPole-v1", runner="process")))

    def report(name, report):
        backend.reports.append((name, report))
        assert page.listen(0.0) == [(name, report)]

    return page, backend, events, report


def progress(step):
    return Progress(step, 0, float(step), None, {}, 1.0)


def steps_sent(backend):
    return [command.figures["env_steps"] for _, command in backend.sent]


def setup_of(name):
    preset = dqn.load_preset("CartPole-v1")
    topology = plan(dqn, "CartPole-v1", runner="process")
    return RoleSetup(name, dqn, topology.env, preset.config, preset.run, 2, seed=0, serving=ShardSettings(port=7))


def test_only_the_first_shard_or_bundle_is_started_with_the_port(run):
    page, backend, _, _ = run
    for name in (SHARD, SECOND, RoleName("bundle", 0), RoleName("bundle", 1)):
        page.start(setup_of(name))
    opened = Page("127.0.0.1:0", "sesame")
    assert [setup.serving.page for setup in backend.started] == [opened, None, opened, None]
    assert {setup.serving.port for setup in backend.started} == {7}


def test_figures_are_sent_in_answer_to_reports_and_only_the_newest(run):
    page, backend, _, report = run
    for step in range(1, 50):
        page.on_event(progress(step))
    assert backend.sent == [], "a shard that does not report gets nothing"
    report(SECOND, ShardReport({}, "", ""))
    report(ACTOR, ActorReport(1, 1, {}))
    assert backend.sent == []
    report(SHARD, ShardReport({}, "", URL))
    assert [name for name, _ in backend.sent] == [SHARD]
    assert type(backend.sent[0][1]) is ShowFigures
    report(SHARD, ShardReport({}, "", URL))
    assert steps_sent(backend) == [49], "nothing is new"
    page.on_event(progress(50))
    report(SHARD, ShardReport({}, "", URL))
    assert steps_sent(backend) == [49, 50]


def test_a_bundle_reports_for_its_table(run):
    _, backend, events, report = run
    bundle = RoleName("bundle", 0)
    report(bundle, BundleReport(ActorReport(1, 1, {}), LearnerReport(1, {}, {}), ShardReport({}, "", URL)))
    assert [name for name, _ in backend.sent] == [bundle]
    assert events[-1] == PageOpened(0, URL)


def test_an_address_is_reported_once_and_again_after_a_restart_elsewhere_which_asks_for_the_last_one(run):
    page, backend, events, report = run
    for url in (URL, URL, "http://127.0.0.1:99/", "http://127.0.0.1:99/"):
        page.on_event(dataclasses.replace(progress(10), seconds=float(len(events))))
        report(SHARD, ShardReport({}, "", url))
        page.start(setup_of(SHARD))
    assert [event for event in events if isinstance(event, PageOpened)] == [
        PageOpened(10, URL),
        PageOpened(10, "http://127.0.0.1:99/"),
    ]
    asked = [setup.serving.page for setup in backend.started]
    assert [page.address for page in asked] == ["127.0.0.1:1234", "127.0.0.1:1234", "127.0.0.1:99", "127.0.0.1:99"]
    assert {page.token for page in asked} == {"sesame"}


def test_the_first_learner_of_several_shards_reports_them_and_the_page_shows_its_newest_report(run):
    page, backend, _, report = run
    for name in (LEARNER, RoleName("learner", 1), ACTOR):
        page.start(setup_of(name))
    page.start(dataclasses.replace(setup_of(LEARNER), num_shards=1))
    assert [setup.reports_shards for setup in backend.started] == [True, False, False, False]
    shards = [{"address": "here", "present": True}]
    report(LEARNER, LearnerReport(1, {}, {}, shards=shards))
    report(LEARNER, LearnerReport(2, {}, {}))
    page.on_event(progress(1))
    report(SHARD, ShardReport({}, "", URL))
    assert backend.sent[-1][1].figures["shards"] == shards
