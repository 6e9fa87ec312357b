"""The weights of a result, of its checkpoint and of its evaluation are the same, whichever roles end when."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("torch")

from theatre import of_kind

from reverie.agents.core import Weights
from reverie.agents.gorila import agent as gorila
from reverie.runners import Evaluated, RoleRestarted, Saved, ShardMoved, checkpoints
from reverie.runners.links.messages import Evaluate, RoleName, Save
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


def assert_continued_paused(stage, result):
    """The learner was restarted with the weights of the result, and has made no update."""
    again = stage.roles[LEARNER]
    assert (again.held, again.state["parameters"]) == (True, result.weights.flat[0])
    assert stage.versions[LEARNER] == result.weights.version


def answer_late(stage):
    """Let the evaluator answer the command that it ignored, six seconds later; a restarted learner drifts."""
    stage.drift = 0.25
    if stage.ignored and stage.now == stage.ignored[0][0] + 6:
        stage.send(*stage.ignored[0][1:])


def test_a_learner_that_ends_while_its_weights_are_evaluated_for_the_result_does_not_change_what_is_saved(perform):
    def ignores(stage, name, command):
        return isinstance(command, Evaluate) and not stage.ignored

    def script(stage):
        if stage.ignored and stage.now == stage.ignored[0][0] + 2:
            stage.die(LEARNER)
        answer_late(stage)

    stage, events, result = perform(
        lambda version: (1.0, 1000.0 + version), script=script, ignores=ignores, evaluate_every=10**6
    )
    assert [event.role for event in of_kind(events, RoleRestarted)] == ["learner"]
    assert stage.judged == [(result.weights.version, True)]
    assert_saved_as(result, events)
    assert_continued_paused(stage, result)


@pytest.mark.parametrize("when", ["they are evaluated", "they were confirmed"])
def test_confirmed_weights_are_those_of_the_checkpoint_although_the_learner_ended_after_it_was_paused(perform, when):
    died = []

    def ignores(stage, name, command):
        return isinstance(command, Evaluate) and len(stage.judged) == 1 and not stage.ignored

    def script(stage):
        if not died and (stage.ignored if when == "they are evaluated" else len(stage.ended) == 2):
            died.append(len(stage.judged))
            stage.die(LEARNER)
        answer_late(stage)

    stage, events, result = perform(lambda version: (500.0 + version, 1000.0 + version), script=script, ignores=ignores)
    assert died == [1 if when == "they are evaluated" else 2]
    assert [event.role for event in of_kind(events, RoleRestarted)] == ["learner"]
    assert result.confirmed
    # The first point of the curve, and the weights that the learner was paused with.
    assert [version for version, _ in stage.judged][1:] == [result.weights.version]
    assert_saved_as(result, events)
    assert_continued_paused(stage, result)


def test_an_evaluation_of_a_learner_that_ended_is_not_taken_for_that_of_weights_with_the_same_number(perform):
    def script(stage):
        if stage.judged and stage.now == judged_at(stage) + 3:
            stage.die(LEARNER)
        if stage.judged and stage.roles[LEARNER].generation and stage.versions[LEARNER] == stage.judged[0][0]:
            stage.awaiting = {"learner"}

    def judged_at(stage):
        times.append(stage.now)
        return times[0]

    times = []
    stage, events, result = perform(
        lambda version: (1.0, 2.0), script=script, checkpoint_every=40, evaluate_every=50, max_env_steps=80
    )
    assert [event.role for event in of_kind(events, RoleRestarted)] == ["learner"]
    number = result.weights.version
    assert stage.judged == [(number, False), (number, True)]
    assert len(of_kind(events, Evaluated)) == 2


def test_weights_are_the_same_if_number_and_parameters_are():
    """The number of several parameter shards is the smallest of theirs: it may stay as one of them goes on."""
    one = Weights(3, np.array([1.0, 2.0], np.float32))
    assert are_same(one, Weights(3, one.flat.copy()))
    assert not are_same(one, Weights(3, np.array([1.0, 2.5], np.float32)))
    assert not are_same(one, Weights(4, one.flat.copy()))


def test_a_shard_that_moves_while_it_writes_a_checkpoint_leaves_the_learners_answer_to_it(perform):
    def busy(stage, name, command):
        return name == SHARD and isinstance(command, Save) and not stage.ignored

    def script(stage):
        if stage.ignored and stage.now == stage.ignored[0][0] + 5:
            stage.address = "b:2"
            stage.die(SHARD)

    _, events, result = perform(lambda version: (1.0, 2.0), script=script, ignores=busy)
    assert of_kind(events, ShardMoved)[0].followed_by[0] == "learner"
    assert result.env_steps >= 200
    assert len(of_kind(events, Saved)) >= 2


def test_a_checkpoint_has_parameter_shards_of_one_epoch_although_one_ended_after_another_had_answered(
    perform, monkeypatch
):
    zero = RoleName("parameter shard", 0)
    written = []

    def busy(stage, name, command):
        return name == zero and isinstance(command, Save) and not stage.ignored

    def script(stage):
        if stage.ignored and stage.now == stage.ignored[0][0] + 3:
            stage.die(zero)

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
