"""Learners of queues: every item is learnt from once, also where it was drawn without the rest of its batch."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.draws import QueueDraws  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.errors import DeadlineExceededError, UnavailableError  # noqa: E402
from reverie.runners.checkpoints import checkpoint_files  # noqa: E402


@pytest.fixture(params=["in-process", "shared-memory", "grpc"])
def queue(request):
    """A client of an empty queue of ten, on each of the ways to it."""
    with reverie.Server([reverie.Table.queue("q", 10)]) as server:
        inside = request.param == "in-process"
        yield server.client() if inside else reverie.Client(server.address, transport=request.param)


def insert(client, *values):
    client.insert_batch("q", {"x": np.array(values, np.float32)})


def test_draws_without_the_rest_of_their_batch_are_in_the_next_one(queue):
    draws = QueueDraws("q", 4)
    insert(queue, 0, 1)
    with pytest.raises(DeadlineExceededError):
        draws.next(queue)
    insert(queue, 2, 3, 4, 5)
    assert draws.next(queue).data["x"].tolist() == [0, 1, 2, 3, 4, 5]
    assert queue.info().tables["q"].current_size == 0, "a whole batch was drawn: actors have the room that they expect"
    insert(queue, 6, 7, 8, 9)
    batch = draws.next(queue)
    assert batch.data["x"].tolist() == [6, 7, 8, 9], "and no draw is given twice"
    assert len(batch.info.key) == 4


def test_a_learner_that_only_gets_parts_has_a_batch_once_they_are_one(queue):
    draws = QueueDraws("q", 4)
    for values in [(0,), (1, 2)]:
        insert(queue, *values)
        with pytest.raises(DeadlineExceededError):
            draws.next(queue)
    insert(queue, 3, 4)
    assert draws.next(queue).data["x"].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(DeadlineExceededError):
        draws.next(queue)


def test_other_errors_leave_what_was_kept(queue):
    draws = QueueDraws("q", 2)
    insert(queue, 0)
    with pytest.raises(DeadlineExceededError):
        draws.next(queue)

    def unreachable(*_, **__):
        raise UnavailableError("the server does not answer")

    with pytest.raises(UnavailableError):
        draws.next(SimpleNamespace(sample_batch=unreachable))
    insert(queue, 1, 2)
    assert draws.next(queue).data["x"].tolist() == [0, 1, 2]


def test_a_whole_batch_that_comes_with_the_deadline_is_the_learners(queue):
    insert(queue, 0, 1, 2, 3)
    whole = queue.sample_batch("q", 4)

    def late(*_, **__):  # as where a journal's disk takes longer than the draws
        raise DeadlineExceededError("the timeout passed", partial=whole)

    assert QueueDraws("q", 4).next(SimpleNamespace(sample_batch=late)) is whole


@pytest.mark.parametrize("name", ["ppo", "impala"])
def test_a_checkpoint_has_the_draws_of_an_incomplete_batch(name, tmp_path):
    agent, spec = agents.find(name), describe("CartPole-v1")
    config = agent.load_preset(spec.env_id).config
    num_inserts = agent.needs(config).inserts_per_act
    two_acts = {"num_actors": 2} if name == "ppo" else {"batch_size": 2 * num_inserts, "queue_capacity": 100}
    config = dataclasses.replace(config, **two_acts)

    def harness():
        server = reverie.Server(agent.make_tables(spec, config, seed=0), listen=False)
        client = server.client()
        options = {"seed": 0, "watch": Stopwatch()}
        learner = agent.make_learner(spec, config, client, **options)
        actor = agent.make_actor(spec, config, client, learner, index=0, **options)
        learnt, update = [], learner._update
        learner._update = lambda data: learnt.append(data) or update(data)
        return learner, actor, learnt, lambda: client.info().tables[agent.needs(config).name]

    learner, actor, learnt, table = harness()
    while not table().current_size:
        actor.act()
    with pytest.raises(DeadlineExceededError):
        learner.learn()
    (kept,) = learner.state_dict()["incomplete"]
    path = checkpoint_files.save(tmp_path, 1, {"learner": learner.state_dict()}, "")
    resumed, actor, learnt, table = harness()
    resumed.load_state_dict(checkpoint_files.load(path)["learner"])
    while table().current_size < config.batch_size:
        actor.act()
    resumed.learn()
    assert table().current_size == 0
    (data,) = learnt
    assert (data["obs"][: len(kept["data"]["obs"])] == kept["data"]["obs"]).all()
    assert len(data["obs"]) == len(kept["data"]["obs"]) + config.batch_size
    assert resumed.state_dict()["incomplete"] == []
