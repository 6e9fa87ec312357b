"""When a learner's weights are published, and by whom."""

import dataclasses
import types

import numpy as np
import pytest

pytest.importorskip("torch")

from reverie.agents.core import RunSettings, Stopwatch, TableNeeds, Weights
from reverie.agents.dqn import agent as dqn
from reverie.agents.impala import agent as impala
from reverie.agents.ppo import agent as ppo
from reverie.errors import UnauthenticatedError, UnavailableError
from reverie.runners.links.messages import RoleName, Setup
from reverie.runners.roles import learners
from reverie.runners.roles.learners import LocalWeights, Student


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

    def make(*, every, index=0, generation=0, prefetch=None):
        agent = dataclasses.replace(
            dqn,
            needs=lambda config: TableNeeds("replay", 1, 1, publish_every_update=every),
            make_learner=lambda *args, **options: Counting(),
        )
        monkeypatch.setattr(learners.time, "monotonic", lambda: clock[0])
        way = Way()
        setup = Setup(
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
        return Student(setup, None, Stopwatch()), way.published, clock

    clock = [100.0]
    return make


def test_an_agent_that_asks_for_it_publishes_the_weights_of_every_update(student):
    one, published, _ = student(every=True, generation=2)
    for _ in range(5):
        one.learn()
    assert published == [(2, version) for version in range(1, 6)]


def test_others_publish_by_time_and_before_they_wait(student):
    one, published, clock = student(every=False)
    for _ in range(5):
        one.learn()
    assert published == [(0, 1)]
    clock[0] += learners.PUBLISH_SECONDS
    one.learn()
    one.learn()
    assert published == [(0, 1), (0, 6)]
    one.wait()
    one.wait()
    assert published == [(0, 1), (0, 6), (0, 7)]


def test_the_first_of_several_learners_publishes_and_no_other_does(student):
    one, published, _ = student(every=True, index=1)
    one.learn()
    one.wait()
    assert one.publish().version == 1
    assert published == []


def test_agents_of_a_queue_ask_for_every_version():
    asks = {
        agent.name: agent.needs(agent.load_preset("CartPole-v1").config).publish_every_update
        for agent in (ppo, impala, dqn)
    }
    assert asks == {"ppo": True, "impala": True, "dqn": False}


def test_the_policy_of_a_bundle_goes_back_with_its_parameters(monkeypatch):
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
    source.begin_again()
    assert source.latest(10).version == 3


class Link:
    """A link without commands, which does not wait."""

    def pause(self, seconds):
        self.paused = seconds


@pytest.fixture
def learner(student):
    """A learner's role as its turn sees it, on a table that can give a batch or not."""

    def make(*, can, **options):
        role = object.__new__(learners.Learner)
        role.student, role.published, _ = student(every=False, **options)
        role.watch, role.held, role._owed, role._idle, role._waits = Stopwatch(), False, [], 0.0, ""
        role._client = types.SimpleNamespace(can_sample=lambda table, count: can, close=lambda: None)
        role._tables, role._batch_size, role._names = ("replay",), 1, "table 'replay'"
        return role

    return make


def test_who_draws_ahead_learns_from_what_is_there_whatever_the_table_can_give(learner):
    role = learner(can=False, prefetch=3)
    one = role.student.learner
    one.made = (True, False, True)
    assert one.ahead == 3
    versions = [role.turn(Link()) or one.version for _ in range(3)]
    assert versions == [1, 1, 2]


def test_who_does_not_draw_ahead_asks_the_table(learner):
    role = learner(can=True, prefetch=0)
    assert role.student.learner.ahead == 0
    role.turn(Link())
    assert role.student.learner.version == 1
    role = learner(can=False)
    role.turn(Link())
    assert role.student.learner.version == 0


@pytest.mark.parametrize(("can", "waits_for"), [(True, "wait for a batch"), (False, "wait for the table")])
def test_a_wait_for_bytes_is_told_from_one_that_the_limiter_makes(learner, can, waits_for):
    role = learner(can=can, prefetch=2)
    role.student.learner.made = (False,)
    role.turn(Link())
    assert set(role.watch.seconds) == {waits_for}
    assert "being made" in role._waits or "cannot give" in role._waits


@pytest.mark.parametrize("error", [UnavailableError("it is gone"), UnauthenticatedError("not with this token")])
def test_a_learner_whose_shard_is_gone_or_another_runs_waits_to_be_told_where_it_is(learner, error):
    """It must live to be asked for its state: what it has learnt since its checkpoint goes with it."""

    def refuse(table, count):
        raise error

    role = learner(can=True)
    role._client.can_sample = refuse
    role.turn(Link())
    assert (role._waits, role.student.learner.version) == (str(error), 0)


def test_a_learner_that_holds_still_or_ends_draws_no_more(learner):
    for end in (lambda role: role.do(learners.Hold(1)), lambda role: role.close()):
        role = learner(can=True, prefetch=2)
        end(role)
        assert role.student.learner.stopped
