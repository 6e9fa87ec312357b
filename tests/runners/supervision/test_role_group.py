"""Commands for roles that end, restart and move, in every order in which reports can arrive."""

import dataclasses

import numpy as np
import pytest
from scripted_roles import LEARNER, SHARD, ScriptedRoles, here, make_roles, make_shards, make_started_roles, make_table

from reverie import Journal, Server
from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.agents.core import Weights
from reverie.agents.gorila import agent as gorila
from reverie.runners import Evaluation, RoleError, plan
from reverie.runners.links.messages import (
    Evaluate,
    EvaluationDone,
    FollowParameterShards,
    LearnerReport,
    PauseUpdates,
    ResumeUpdates,
    RoleEnded,
    RoleFailed,
    RoleName,
    SavedState,
    SaveState,
    ShardEndpoint,
    Stop,
    UpdatesPaused,
)
from reverie.runners.links.replay_storage import ReplayStorage
from reverie.runners.roles.learners import learning_client
from reverie.runners.supervision import supervisor
from reverie.runners.supervision.role_group import EVALUATOR, RoleGroup


def test_a_relocated_learner_still_gets_its_unanswered_commands():
    roles, backend, receive, _ = make_roles(apex_dqn)
    receive(SHARD, here("a:1"))
    roles.start_others()
    for name in (LEARNER, EVALUATOR, *roles.actors):
        receive(name, here())
    receive(SHARD, RoleEnded("killed"))
    receive(SHARD, here("b:2"))
    assert (LEARNER, SaveState(-1)) in backend.sent
    # A checkpoint falls due before it has answered.
    roles.ask(LEARNER, SaveState(7))
    receive(LEARNER, SavedState(-1, {"version": 3}))
    again = backend.newest(LEARNER)
    assert (again.generation, again.state, again.endpoints) == (1, {"version": 3}, (ShardEndpoint("b:2"),))
    backend.sent.clear()
    receive(LEARNER, here())
    assert backend.sent == [(LEARNER, SaveState(7))]


def test_a_shard_with_a_journal_must_continue_it_once_it_was_ready(tmp_path):
    storage = ReplayStorage(journal=Journal(tmp_path), samples={"replay": 7})
    roles, backend, receive, restarted = make_roles(apex_dqn, storage)
    receive(SHARD, RoleEnded("killed"))  # before its journal had begun
    assert backend.newest(SHARD).serving.storage == storage
    receive(SHARD, dataclasses.replace(here("a:1"), lost={"replay": 5}))
    assert roles.lost(0) == {"replay": 5}
    receive(SHARD, SavedState(1, tables="there"))
    receive(SHARD, RoleEnded("killed"))
    # Its limits have moved already: draws are not counted as lost again.
    expected = dataclasses.replace(storage, continues=True, samples={}, lost={"replay": 5})
    assert backend.newest(SHARD).serving.storage == expected
    assert [what[2] for what in restarted] == ["nothing", "its journal"]


def test_a_learner_of_several_shards_has_the_lost_draws_of_all_of_them():
    backend = ScriptedRoles()
    roles = RoleGroup(
        backend,
        apex_dqn,
        plan(apex_dqn, "CartPole-v1", runner="process", num_shards=2),
        [ReplayStorage(), ReplayStorage()],
        state=None,
        on_report=lambda *what: None,
        on_restart=lambda *what: None,
        on_move=lambda *what: None,
    )
    roles.start_shards()
    for index, lost in enumerate(({"replay": 5}, {"replay": 8})):
        backend.next.append((RoleName("shard", index), dataclasses.replace(here(f"a:{index}"), lost=lost)))
    roles.listen(0)
    roles.start_others()
    assert backend.newest(LEARNER).lost == {"replay": 13}
    with Server(make_shards(2)[0]) as one, Server(make_shards(2)[1], shard=1) as two:
        setup = dataclasses.replace(
            backend.newest(LEARNER), endpoints=(ShardEndpoint(one.address), ShardEndpoint(two.address)), seed=0
        )
        client = learning_client(setup)
        assert client._limiter.min_diff == make_table().rate_limiter.min_diff - 13
        client.close()


def test_an_answer_to_an_older_command_does_not_answer_a_newer_one():
    roles, backend, receive, restarted = make_roles(apex_dqn)
    receive(SHARD, here("a:1"))
    roles.start_others()
    receive(LEARNER, here())
    roles.ask(LEARNER, SaveState(3))
    roles.ask(LEARNER, SaveState(4))
    receive(LEARNER, SavedState(3, {"version": 1}))
    receive(LEARNER, RoleEnded("killed"))
    backend.sent.clear()
    receive(LEARNER, here())
    assert backend.sent == [(LEARNER, SaveState(4))]
    receive(LEARNER, SavedState(4, {"version": 1}))
    receive(LEARNER, RoleEnded("killed"))
    backend.sent.clear()
    receive(LEARNER, here())
    assert backend.sent == []
    assert restarted == [LEARNER, LEARNER]


def test_roles_that_are_still_starting_restart_with_a_shards_new_address():
    roles, backend, receive, restarted = make_roles(apex_dqn)
    receive(SHARD, here("a:1"))
    roles.start_others()
    receive(SHARD, RoleEnded("killed"))
    receive(SHARD, here("b:2"))
    for name in (LEARNER, *roles.actors):
        assert backend.newest(name).endpoints == (ShardEndpoint("b:2"),)
        assert name in backend.killed
    assert EVALUATOR not in backend.killed
    assert restarted == [SHARD]
    # The event has the new address and the followers: the started ones, in the order of their start.
    assert backend.moves == [(SHARD, "a:1", "b:2", [LEARNER, *roles.actors])]


def test_a_shard_that_returns_to_its_address_restarts_no_other_role():
    roles, backend, receive, restarted = make_roles(apex_dqn)
    receive(SHARD, here("a:1"))
    roles.start_others()
    for name in (LEARNER, EVALUATOR, *roles.actors):
        receive(name, here())
    receive(SHARD, RoleEnded("killed"))
    receive(SHARD, here("a:1"))
    assert (restarted, backend.killed, backend.moves) == ([SHARD], [], [])


def judged(number):
    return EvaluationDone(number, Evaluation((1,), (1.0,)), None, 0.1)


def test_an_evaluator_that_ends_at_every_evaluation_ends_the_run_and_one_that_ends_at_some_does_not(monkeypatch):
    monkeypatch.setattr(
        "reverie.runners.supervision.role_group.SHORT_LIFE_SECONDS", 0.0
    )  # as where an evaluation takes long
    roles, _, receive, restarted = make_roles(apex_dqn)
    receive(SHARD, here("a:1"))
    roles.start_others()
    weights = Weights(0, np.zeros(1, np.float32))
    failed = RoleFailed("EnvironmentCrashedError", "a game that broke", "where it broke", True)
    for number in range(12):
        receive(EVALUATOR, here())
        roles.ask(EVALUATOR, Evaluate(2 * number, weights, False))
        receive(EVALUATOR, judged(2 * number))
        roles.ask(EVALUATOR, Evaluate(2 * number + 1, weights, False))
        receive(EVALUATOR, failed)
        receive(EVALUATOR, RoleEnded("it ended"))
    assert restarted == [EVALUATOR] * 12
    for _ in range(4):
        receive(EVALUATOR, here())
        receive(EVALUATOR, failed)
        receive(EVALUATOR, RoleEnded("it ended"))
    receive(EVALUATOR, here())
    receive(EVALUATOR, failed)
    with pytest.raises(RoleError, match=r"5 times without a finished evaluation, .*: a game that broke") as caught:
        receive(EVALUATOR, RoleEnded("it ended"))
    assert (caught.value.role, caught.value.traceback) == ("evaluator", "where it broke")


def test_learners_follow_restarted_parameter_shards_even_while_starting():
    roles, backend, receive, _ = make_roles(gorila)
    first, second = roles.learners
    zero, one = roles.parameters
    for name in roles.all_shards:
        receive(name, here("a:1"))
    roles.start_others()
    receive(first, here())
    receive(zero, RoleEnded("killed"))
    for name in (zero, one):
        receive(name, here())
    assert (first, FollowParameterShards([1, 1], 1)) in backend.sent
    assert first not in backend.killed
    assert backend.killed == [one, second]
    assert (backend.newest(second).parameters, backend.newest(second).epoch) == ([1, 1], 1)


def test_a_role_that_does_not_end_in_time_is_killed_before_the_run_continues(monkeypatch):
    monkeypatch.setattr(supervisor, "END_SECONDS", 0.0)
    roles, backend, receive, restarted = make_roles(apex_dqn)
    receive(SHARD, here("a:1"))
    roles.start_others()
    first, second = roles.actors
    for name in (first, second):
        receive(name, here())
    roles.ask(first, Stop())
    receive(first, RoleEnded("it ended"))
    course = object.__new__(supervisor.Supervisor)
    course._roles = roles
    course._end(roles.actors)
    assert backend.killed == [second]
    assert roles.all_ended(roles.actors)
    assert restarted == []


def test_late_reports_of_a_replaced_role_are_not_taken_for_those_of_its_replacement():
    roles, backend, receive, restarted = make_started_roles(apex_dqn)
    receive(SHARD, RoleEnded("killed"))
    receive(SHARD, here("b:2"))
    reports = []
    roles._on_report = lambda name, report: reports.append(report)
    # Its answer lets it begin elsewhere; what comes behind it in the same turn is of the one before.
    backend.next = [
        (LEARNER, SavedState(-1, {"version": 3})),
        (LEARNER, LearnerReport(9, {}, {})),
        (LEARNER, RoleEnded("killed")),
    ]
    roles.listen(0)
    assert (backend.newest(LEARNER).generation, restarted) == (1, [SHARD])
    assert [type(report) for report in reports] == [SavedState]
    receive(LEARNER, here())
    receive(LEARNER, LearnerReport(4, {}, {}))
    assert type(reports[-1]) is LearnerReport


def test_a_learner_that_is_restarted_while_it_is_held_starts_held_and_is_resumed_with_the_others():
    roles, backend, receive, _ = make_started_roles(apex_dqn)
    roles.ask(LEARNER, PauseUpdates(1))
    receive(LEARNER, UpdatesPaused(1))
    receive(LEARNER, RoleEnded("killed"))
    assert backend.newest(LEARNER).held
    roles.ask(LEARNER, ResumeUpdates())
    backend.sent.clear()
    receive(LEARNER, here())
    assert backend.sent == [(LEARNER, ResumeUpdates())]
    receive(LEARNER, RoleEnded("killed"))
    assert not backend.newest(LEARNER).held
    backend.sent.clear()
    receive(LEARNER, here())
    assert backend.sent == []
