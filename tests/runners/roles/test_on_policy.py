"""An actor of an on-policy agent makes one unroll with each version of the weights, and then awaits the next."""

import dataclasses
import types

import pytest

torch = pytest.importorskip("torch")

from reverie import Server  # noqa: E402
from reverie.agents import core  # noqa: E402
from reverie.agents.core import Weights  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.ppo import agent as ppo  # noqa: E402
from reverie.parameters import Version  # noqa: E402
from reverie.runners.links.messages import ActAgain, RoleName, RoleSetup, ShardEndpoint  # noqa: E402
from reverie.runners.roles import role  # noqa: E402

SPEC = describe("CartPole-v1")
PRESET = ppo.load_preset("CartPole-v1")
CONFIG = dataclasses.replace(PRESET.config, num_actors=2, envs_per_actor=2, unroll_length=8)


class Source:
    """Weights as a test publishes them."""

    ready = True

    def __init__(self):
        self.given = Version(0, -1)
        self.version = 0

    def latest(self, newer_than):
        if self.version <= newer_than:
            return None
        self.given = Version(0, self.version)
        flat = ppo.make_learner(SPEC, CONFIG, None, seed=0, watch=None).latest(-1).flat
        return Weights(self.version, flat)


@pytest.fixture
def harness():
    """An actor's role, its table and the source of its weights."""
    source, paused = Source(), []
    weights = types.SimpleNamespace(source=lambda: source)
    with Server(ppo.make_tables(SPEC, CONFIG, seed=0)) as server:
        setup = RoleSetup(RoleName("actor"), ppo, SPEC, CONFIG, PRESET.run, num_shards=1, seed=0)
        actor = role.ActorRole(dataclasses.replace(setup, endpoints=(ShardEndpoint(server.address),), weights=weights))
        link = types.SimpleNamespace(pause=paused.append)
        yield types.SimpleNamespace(actor=actor, source=source, client=server.client(), link=link, paused=paused)
        actor.close()


def turns(harness, count):
    for _ in range(count):
        harness.actor.turn(harness.link)
    harness.actor._actor.settle(timeout=60)
    return harness.client.info().tables["unrolls"].num_inserts


def test_after_its_unroll_it_awaits_weights_although_the_queue_has_room(harness, monkeypatch):
    monkeypatch.setattr(core, "time", types.SimpleNamespace(perf_counter=lambda: sum(harness.paused)))
    assert turns(harness, 30) == 2, "one unroll of each of its environments, of four in a batch"
    report = harness.actor.report()
    assert report.awaits_weights
    assert report.waits == "no weights newer than version 0, of its last unroll, were published"
    assert len(harness.paused) == 30 - 8
    assert max(harness.paused) == role.WEIGHTS_SECONDS
    assert report.seconds["wait for weights"] == pytest.approx(sum(harness.paused)), "by a clock of these pauses"


def test_newer_weights_let_it_make_the_next(harness):
    turns(harness, 30)
    harness.source.version = 1
    assert turns(harness, 4) == 2
    assert not harness.actor.report().awaits_weights
    assert turns(harness, 30) == 4
    drawn = harness.client.sample_batch("unrolls", 4)
    assert drawn.data["weights_version"].tolist() == [[0] * 8] * 2 + [[1] * 8] * 2


def test_it_makes_another_with_the_same_weights_when_it_is_asked_to(harness):
    turns(harness, 30)
    assert harness.actor.handle(ActAgain()) is None
    assert turns(harness, 30) == 4
    assert harness.actor.report().awaits_weights


def test_an_unroll_that_the_queue_has_no_room_for_is_discarded_when_newer_weights_come(harness):
    for expected in (2, 4):
        assert turns(harness, 30) == expected
        harness.actor.handle(ActAgain())
    for _ in range(8):
        harness.actor.turn(harness.link)  # the queue is full
    harness.source.version = 1
    harness.actor.turn(harness.link)
    drawn = harness.client.sample_batch("unrolls", 4)
    assert drawn.data["weights_version"].max() == 0
    assert turns(harness, 7) == 6
    assert harness.client.sample_batch("unrolls", 2).data["weights_version"].min() == 1
