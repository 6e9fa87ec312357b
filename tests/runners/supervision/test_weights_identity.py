"""The weights of a result, of its checkpoint and of its evaluation are the same, whichever roles end when."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("torch")

from simulated_roles import of_kind

from reverie.agents.core import Weights
from reverie.agents.gorila import agent as gorila
from reverie.runners import Evaluated, RoleRestarted, Saved, ShardMoved, checkpoints
from reverie.runners.links.messages import Evaluate, RoleName, SaveState
from reverie.runners.supervision.held_weights import are_same
from reverie.runners.supervision.run_saver import RunSaver

LEARNER = RoleName("learner", alone=True)
SHARD = RoleName("shard")


def assert_saved_as(result, events):
    """The last checkpoint has the weights of the result, and of its evaluation."""
    saved = checkpoints.load(of_kind(events, Saved)[-1].path)
    assert saved["learner"]["parameters"] == result.weights.flat[0]
    assert saved["weights"]["version"] == saved["learner"]["version"] == saved["updates"] == result.weights.version
    assert result.learner["updates"] == result.weights.version
    assert saved["result"]["returns"] == [1000.0 + result.weights.version] == list(result.evaluation.returns)


def assert_continued_paused(backend, result):
    """The learner was restarted with the weights of the result, and has made no update."""
    again = backend.roles[LEARNER]
    assert (again.held, again.state["parameters"]) == (True, result.weights.flat[0])
    assert backend.versions[LEARNER] == result.weights.version


def answer_late(backend):
    """Let the evaluator answer the command that it ignored, six seconds later; a restarted learner drifts."""
    backend.drift = 0.25
    if backend.ignored and backend.now == backend.ignored[0][0] + 6:
        backend.send(*backend.ignored[0][1:])


def test_a_learner_that_ends_while_its_weights_are_evaluated_for_the_result_does_not_change_what_is_saved(perform):
    def ignores(backend, name, command):
        return isinstance(command, Evaluate) and not backend.ignored

    def script(backend):
        if backend.ignored and backend.now == backend.ignored[0][0] + 2:
            backend.die(LEARNER)
        answer_late(backend)

    backend, events, result = perform(
        lambda version: (1.0, 1000.0 + version), script=script, ignores=ignores, evaluate_every=10**6
    )
    assert [event.role for event in of_kind(events, RoleRestarted)] == ["learner"]
    assert backend.judged == [(result.weights.version, True)]
    assert_saved_as(result, events)
    assert_continued_paused(backend, result)


@pytest.mark.parametrize("when", ["they are evaluated", "they were confirmed"])
def test_confirmed_weights_are_those_of_the_checkpoint_although_the_learner_ended_after_it_was_paused(perform, when):
    died = []

    def ignores(backend, name, command):
        return isinstance(command, Evaluate) and len(backend.judged) == 1 and not backend.ignored

    def script(backend):
        if not died and (backend.ignored if when == "they are evaluated" else len(backend.ended) == 2):
            died.append(len(backend.judged))
            backend.die(LEARNER)
        answer_late(backend)

    backend, events, result = perform(
        lambda version: (500.0 + version, 1000.0 + version), script=script, ignores=ignores
    )
    assert died == [1 if when == "they are evaluated" else 2]
    assert [event.role for event in of_kind(events, RoleRestarted)] == ["learner"]
    assert result.confirmed
    # The first point of the curve, and the weights that the learner was paused with.
    assert [version for version, _ in backend.judged][1:] == [result.weights.version]
    assert_saved_as(result, events)
    assert_continued_paused(backend, result)


def test_an_evaluation_of_a_learner_that_ended_is_not_taken_for_that_of_weights_with_the_same_number(perform):
    def script(backend):
        if backend.judged and backend.now == judged_at(backend) + 3:
            backend.die(LEARNER)
        if backend.judged and backend.roles[LEARNER].generation and backend.versions[LEARNER] == backend.judged[0][0]:
            backend.awaiting = {"learner"}

    def judged_at(backend):
        times.append(backend.now)
        return times[0]

    times = []
    backend, events, result = perform(
        lambda version: (1.0, 2.0), script=script, checkpoint_every=40, evaluate_every=50, max_env_steps=80
    )
    assert [event.role for event in of_kind(events, RoleRestarted)] == ["learner"]
    number = result.weights.version
    assert backend.judged == [(number, False), (number, True)]
    assert len(of_kind(events, Evaluated)) == 2


def test_weights_are_the_same_if_number_and_parameters_are():
    """The number of several parameter shards is the smallest of theirs: it may stay as one of them goes on."""
    one = Weights(3, np.array([1.0, 2.0], np.float32))
    assert are_same(one, Weights(3, one.flat.copy()))
    assert not are_same(one, Weights(3, np.array([1.0, 2.5], np.float32)))
    assert not are_same(one, Weights(4, one.flat.copy()))


def test_a_shard_that_moves_while_it_writes_a_checkpoint_leaves_the_learners_answer_to_it(perform):
    def busy(backend, name, command):
        return name == SHARD and isinstance(command, SaveState) and not backend.ignored

    def script(backend):
        if backend.ignored and backend.now == backend.ignored[0][0] + 5:
            backend.address = "b:2"
            backend.die(SHARD)

    _, events, result = perform(lambda version: (1.0, 2.0), script=script, ignores=busy)
    assert of_kind(events, ShardMoved)[0].followed_by[0] == "learner"
    assert result.env_steps >= 200
    assert len(of_kind(events, Saved)) >= 2


def test_a_checkpoint_has_parameter_shards_of_one_epoch_although_one_ended_after_another_had_answered(
    perform, monkeypatch
):
    zero = RoleName("parameter shard", 0)
    written = []

    def busy(backend, name, command):
        return name == zero and isinstance(command, SaveState) and not backend.ignored

    def script(backend):
        if backend.ignored and backend.now == backend.ignored[0][0] + 3:
            backend.die(zero)

    def save(saver, states, actor_states, *, env_steps, began, is_last):
        written.append({str(name): one.epoch for name, one in states.items() if "shard" not in str(name)[:5]})

    monkeypatch.setattr(RunSaver, "save", save)
    config = dataclasses.replace(
        gorila.load_preset("CartPole-v1").config, num_learners=2, num_parameter_shards=2, num_actors=2
    )
    perform(lambda version: (1.0, 2.0), agent=gorila, config=config, script=script, ignores=busy)
    roles = ("learner 0", "learner 1", "parameter shard 0", "parameter shard 1")
    assert len(written) > 1
    assert written == [dict.fromkeys(roles, 1)] * len(written)
