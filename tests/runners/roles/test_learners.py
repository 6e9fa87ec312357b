"""Publications of weights: when, and by which learner."""

import dataclasses
import types

import numpy as np
import pytest

pytest.importorskip("torch")

from reverie import Server, Table
from reverie.agents.core import RunSettings, Stopwatch, TableNeeds, Weights
from reverie.agents.dqn import agent as dqn
from reverie.agents.impala import agent as impala
from reverie.agents.ppo import agent as ppo
from reverie.errors import UnauthenticatedError, UnavailableError
from reverie.runners.links.messages import RoleName, RoleSetup
from reverie.runners.roles import learners
from reverie.runners.roles.bundle import LocalWeights
from reverie.runners.roles.learners import PublishingLearner


class Way:
    """A way for weights to travel, which notes what was published."""

    def __init__(self):
        self.published = []

    def publisher(self, generation):
        note = lambda weights: self.published.append((generation, weights.version))  # noqa: E731
        return types.SimpleNamespace(publish=note)


class Counting:
    """A learner that makes versions and nothing else."""

    version = 0
    ahead = 0
    made: tuple[bool, ...] = ()
    """Whether a batch is there when it is asked."""

    def draw_ahead(self, ahead):
        self.ahead = ahead

    def fetch(self):
        there, *self.made = self.made
        return there

    def stop_drawing(self):
        self.stopped = True

    def learn(self):
        self.version += 1

    def latest(self, newer_than):
        return Weights(self.version, np.zeros(1, np.float32)) if self.version > newer_than else None


@pytest.fixture
def student(monkeypatch):
    """A function that makes a student of an agent that asks for every version or does not, at a clock that stands."""

    def make(*, every, index=0, generation=0, prefetch=None, on_policy=False, client=None):
        agent = dataclasses.replace(
            dqn,
            needs=lambda config: TableNeeds("replay", 1, 1, publish_every_update=every, on_policy=on_policy),
            make_learner=lambda *args, **options: Counting(),
        )
        monkeypatch.setattr(learners.time, "monotonic", lambda: clock[0])
        way = Way()
        setup = RoleSetup(
            name=RoleName("learner", index),
            agent=agent,
            env=None,
            config=None,
            run=RunSettings(1.0, 1, 1, prefetch=prefetch),
            num_shards=1,
            seed=0,
            generation=generation,
            weights=way,
        )
        return PublishingLearner(setup, client, Stopwatch()), way.published, clock

    clock = [100.0]
    return make


def test_agents_with_publish_every_update_publish_every_version(student):
    one, published, _ = student(every=True, generation=2)
    for _ in range(5):
        one.learn()
    assert published == [(2, version) for version in range(1, 6)]


@pytest.mark.parametrize(("on_policy", "left"), [(True, 0), (False, 2)])
def test_publishing_weights_discards_the_queue_only_of_an_on_policy_agent(student, on_policy, left):
    with Server([Table.queue("replay", max_size=2)], listen=False) as server:
        client = server.client()
        one, published, _ = student(every=True, on_policy=on_policy, client=client)
        size = lambda: client.info().tables["replay"].current_size  # noqa: E731
        client.insert_batch("replay", {"n": np.arange(2)})
        one.publish()
        assert (size(), published) == (left, [(0, 0)])
        if left:
            client.sample_batch("replay", left, timeout=0)
        client.insert_batch("replay", {"n": np.arange(2)})
        one.publish()
        assert size() == 2, "no newer weights: these are for them"
        one.learn()
        assert (size(), published) == (left, [(0, 0), (0, 1)])


@pytest.mark.parametrize("error", [UnavailableError, UnauthenticatedError])
def test_weights_are_published_although_the_queue_cannot_be_reached(student, error):
    def gone(*args, **kwargs):
        raise error("the shard is gone, or another run has its port")

    one, published, _ = student(every=True, on_policy=True, client=types.SimpleNamespace(can_sample=gone))
    one.learn()
    assert published == [(0, 1)]


def test_weights_without_room_are_reported_now_and_then_and_published_once_there_is_room(student):
    one, published, clock = student(every=True)
    one.learner.metrics = dict
    note, full = one._publisher.publish, True
    one._publisher.publish = lambda weights: "No space left on device" if full else note(weights)
    for _ in range(3):
        one.learn()
    text = "No space left on device"
    reports = [one.report({}, waits) for waits in ("", "the table")]
    assert [report.unpublished for report in reports] == [text, ""]
    assert [report.waits for report in reports] == [
        f"its weights are not published: {text}",
        f"the table; its weights are not published: {text}",
    ]
    clock[0] += learners.PROBLEM_SECONDS
    assert one.report({}, "").unpublished == text
    assert (one.learner.version, published) == (3, []), "it learns on"
    full = False
    one.publish_before_wait()
    assert published == [(0, 3)], "without another update"
    clock[0] += learners.PROBLEM_SECONDS
    report = one.report({}, "")
    assert (report.unpublished, report.waits) == ("", "")
    one.publish_before_wait()
    assert published == [(0, 3)]


def test_other_agents_publish_by_time_and_while_they_wait(student):
    one, published, clock = student(every=False)
    for _ in range(5):
        one.learn()
    assert published == [(0, 1)]
    clock[0] += learners.PUBLISH_SECONDS
    one.learn()
    one.learn()
    assert published == [(0, 1), (0, 6)]
    one.publish_before_wait()
    assert published == [(0, 1), (0, 6)], "a wait of a moment, such as for a batch, is no reason"
    clock[0] += learners.PUBLISH_SECONDS
    one.publish_before_wait()
    clock[0] += learners.PUBLISH_SECONDS
    one.publish_before_wait()
    assert published == [(0, 1), (0, 6), (0, 7)]


def test_a_learner_whose_weights_take_long_to_publish_spends_a_twentieth_of_its_time_on_it(student):
    one, published, clock = student(every=False)
    latest = one.learner.latest

    def slow(newer_than):
        clock[0] += 0.01
        return latest(newer_than)

    one.learner.latest = slow
    for _ in range(1_000):
        clock[0] += 0.001
        one.learn()
    assert clock[0] == pytest.approx(101.05, abs=0.01)
    assert len(published) == 5


def test_after_one_publication_that_took_very_long_the_next_comes_within_a_second(student):
    one, published, clock = student(every=False)
    latest = one.learner.latest

    def stopped_for_a_minute(newer_than):
        clock[0] += 60.0
        return latest(newer_than)

    one.learner.latest = stopped_for_a_minute
    one.learn()
    one.learner.latest = latest
    for _ in range(8):
        clock[0] += 0.125
        one.learn()
    assert [version for _, version in published] == [1, 9]


def test_the_first_of_several_learners_publishes_and_no_other_does(student):
    one, published, _ = student(every=True, index=1)
    one.learn()
    one.publish_before_wait()
    assert one.publish().version == 1
    assert published == []


def test_agents_of_a_queue_publish_every_version():
    asks = {
        agent.name: agent.needs(agent.load_preset("CartPole-v1").config).publish_every_update
        for agent in (ppo, impala, dqn)
    }
    assert asks == {"ppo": True, "impala": True, "dqn": False}


def test_the_policy_of_a_bundle_follows_its_parameters_back(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(learners.time, "monotonic", lambda: clock[0])
    learner = Counting()
    source = LocalWeights(learner, Weights(0, np.zeros(1, np.float32)))
    assert source.latest(-1).version == 0
    learner.version = 9
    assert source.latest(0).version == 9
    learner.version = 10
    assert source.latest(9) is None  # too early to look again
    clock[0] += learners.PUBLISH_SECONDS
    assert source.latest(9).version == source.version == 10
    learner.version = 3
    clock[0] += learners.PUBLISH_SECONDS
    assert source.latest(10) is None
    source.accept_any_version()
    assert source.latest(10).version == 3


class Link:
    """A link without commands, which does not wait."""

    def pause(self, seconds):
        self.paused = seconds


@pytest.fixture
def learner(student):
    """A learner's role as its turn sees it, on a table that can give a batch or not."""

    def make(*, can, device="cpu", **options):
        role = object.__new__(learners.LearnerRole)
        role.setup = types.SimpleNamespace(run=types.SimpleNamespace(device=device))
        role.inner, role.published, _ = student(every=False, **options)
        role.watch, role.held, role._unanswered, role._idle, role._waits = Stopwatch(), False, [], 0.0, ""
        role._client = types.SimpleNamespace(can_sample=lambda table, count: can, close=lambda: None)
        role._tables, role._batch_size, role._names = ("replay",), 1, "table 'replay'"
        return role

    return make


def test_a_learner_with_prefetch_uses_drawn_batches_even_if_the_table_blocks(learner):
    role = learner(can=False, prefetch=3)
    one = role.inner.learner
    one.made = (True, False, True)
    assert one.ahead == 3
    versions = [role.turn(Link()) or one.version for _ in range(3)]
    assert versions == [1, 1, 2]


def test_a_learner_without_prefetch_asks_the_table(learner):
    role = learner(can=True, prefetch=0)
    assert role.inner.learner.ahead == 0
    role.turn(Link())
    assert role.inner.learner.version == 1
    role = learner(can=False)
    role.turn(Link())
    assert role.inner.learner.version == 0


@pytest.mark.parametrize(("can", "waits_for"), [(True, "wait for a batch"), (False, "wait for the table")])
def test_waits_for_a_batch_and_for_the_limiter_are_reported_separately(learner, can, waits_for):
    role = learner(can=can, prefetch=2)
    role.inner.learner.made = (False,)
    role.turn(Link())
    assert set(role.watch.seconds) == {waits_for}
    assert "being made" in role._waits or "cannot give" in role._waits


@pytest.mark.parametrize(
    ("can", "device", "longest"), [(True, "cuda", learners.BATCH_SECONDS), (True, "cpu", 0.02), (False, "cuda", 0.02)]
)
def test_a_batch_that_is_being_made_for_a_gpu_is_looked_for_oftener(learner, can, device, longest):
    role, link, paused = learner(can=can, device=device, prefetch=2), Link(), []
    role.inner.learner.made = (False,) * 10
    for _ in range(10):
        role.turn(link)
        paused.append(link.paused)
    assert paused == sorted(paused)
    assert paused[-1] == longest


@pytest.mark.parametrize("error", [UnavailableError("it is gone"), UnauthenticatedError("not with this token")])
def test_a_learner_that_lost_its_shard_waits_for_the_new_address(learner, error):
    """It must stay alive to return its state: its updates since the checkpoint would be lost otherwise."""

    def refuse(table, count):
        raise error

    role = learner(can=True)
    role._client.can_sample = refuse
    role.turn(Link())
    assert (role._waits, role.inner.learner.version) == (str(error), 0)


def test_a_held_or_ended_learner_stops_drawing(learner):
    for end in (lambda role: role.handle(learners.PauseUpdates(1)), lambda role: role.close()):
        role = learner(can=True, prefetch=2)
        end(role)
        assert role.inner.learner.stopped
