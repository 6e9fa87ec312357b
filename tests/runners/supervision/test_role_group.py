"""What is asked of roles that end, begin again and are elsewhere, in the orders in which reports can come."""

import dataclasses
import os
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.agents.core import Weights
from reverie.agents.gorila import agent as gorila
from reverie.runners import Evaluation, RoleError, StalledError, plan
from reverie.runners.links.messages import (
    Died,
    Endpoint,
    Failed,
    Follow,
    Judge,
    Judged,
    Learnt,
    Ready,
    RoleName,
    Save,
    Served,
    Serving,
    State,
    Stop,
)
from reverie.runners.supervision import role_group, supervisor
from reverie.runners.supervision.absences import Absence
from reverie.runners.supervision.latest_reports import LatestReports
from reverie.runners.supervision.listening_clock import ListeningClock
from reverie.runners.supervision.role_group import EVALUATOR, RoleGroup

LEARNER = RoleName("learner", alone=True)
SHARD = RoleName("shard")


class Scripted:
    """A stage on which nobody lives: what was started, told and killed."""

    weights = None

    def __init__(self):
        self.started, self.told, self.killed, self.next, self.moves = [], [], [], [], []
        self.stops = {}

    def serving(self, name, checkpointer, before):
        return Serving()

    def endpoint(self, name, ready):
        return Endpoint(ready.address)

    def parameter_addresses(self, shards):
        return [shard.generation for shard in shards]

    def start(self, setup):
        self.started.append(setup)

    def tell(self, name, command):
        self.told.append((name, command))

    def listen(self, timeout):
        told, self.next = self.next, []
        return told

    def kill(self, name):
        self.killed.append(name)

    def lacks(self, name):
        return ""

    def stopped(self, name):
        return self.stops.get(name, "")

    def newest(self, name):
        """The setup that a role was started with last."""
        return next(setup for setup in reversed(self.started) if setup.name == name)


def made(agent, **changes):
    """A crew and its stage, whose roles say nothing yet; and a function that lets one speak."""
    config = dataclasses.replace(agent.load_preset("CartPole-v1").config, **changes)
    stage, restarted = Scripted(), []
    crew = RoleGroup(
        stage,
        agent,
        plan(agent, "CartPole-v1", config=config, runner="process"),
        [None],
        state=None,
        on_report=lambda name, report: None,
        on_restart=lambda name, *what: restarted.append(name),
        on_move=lambda *what: stage.moves.append(what),
    )
    crew.start_keepers()

    def hear(name, report):
        stage.next.append((name, report))
        crew.listen(0)

    return crew, stage, hear, restarted


def here(address=None):
    return Ready(os.getpid(), "here", address)


def test_a_learner_that_is_to_be_elsewhere_is_still_asked_for_what_it_was_asked():
    crew, stage, hear, _ = made(apex_dqn)
    hear(SHARD, here("a:1"))
    crew.start_others()
    for name in (LEARNER, EVALUATOR, *crew.actors):
        hear(name, here())
    hear(SHARD, Died("killed"))
    hear(SHARD, here("b:2"))
    assert (LEARNER, Save(-1)) in stage.told
    # A checkpoint falls due before it has answered.
    crew.ask(LEARNER, Save(7))
    hear(LEARNER, State(-1, {"version": 3}))
    again = stage.newest(LEARNER)
    assert (again.generation, again.state, again.endpoints) == (1, {"version": 3}, (Endpoint("b:2"),))
    stage.told.clear()
    hear(LEARNER, here())
    assert stage.told == [(LEARNER, Save(7))]


def test_an_answer_to_an_older_command_settles_no_newer_one():
    crew, stage, hear, restarted = made(apex_dqn)
    hear(SHARD, here("a:1"))
    crew.start_others()
    hear(LEARNER, here())
    crew.ask(LEARNER, Save(3))
    crew.ask(LEARNER, Save(4))
    hear(LEARNER, State(3, {"version": 1}))
    hear(LEARNER, Died("killed"))
    stage.told.clear()
    hear(LEARNER, here())
    assert stage.told == [(LEARNER, Save(4))]
    hear(LEARNER, State(4, {"version": 1}))
    hear(LEARNER, Died("killed"))
    stage.told.clear()
    hear(LEARNER, here())
    assert stage.told == []
    assert restarted == [LEARNER, LEARNER]


def test_who_is_not_there_yet_when_a_shard_is_elsewhere_begins_again_at_its_new_address():
    crew, stage, hear, restarted = made(apex_dqn)
    hear(SHARD, here("a:1"))
    crew.start_others()
    hear(SHARD, Died("killed"))
    hear(SHARD, here("b:2"))
    for name in (LEARNER, *crew.actors):
        assert stage.newest(name).endpoints == (Endpoint("b:2"),)
        assert name in stage.killed
    assert EVALUATOR not in stage.killed
    assert restarted == [SHARD]
    # It is told where it is now, and who follows: those there are, in the order in which they began.
    assert stage.moves == [(SHARD, "a:1", "b:2", [LEARNER, *crew.actors])]


def test_a_shard_that_comes_back_where_it_was_moves_nobody():
    crew, stage, hear, restarted = made(apex_dqn)
    hear(SHARD, here("a:1"))
    crew.start_others()
    for name in (LEARNER, EVALUATOR, *crew.actors):
        hear(name, here())
    hear(SHARD, Died("killed"))
    hear(SHARD, here("a:1"))
    assert (restarted, stage.killed, stage.moves) == ([SHARD], [], [])


def judged(number):
    return Judged(number, Evaluation((1,), (1.0,)), None, 0.1)


def test_an_evaluator_that_ends_at_every_evaluation_ends_the_run_and_one_that_ends_at_some_does_not(monkeypatch):
    monkeypatch.setattr(
        "reverie.runners.supervision.role_group.SHORT_LIFE_SECONDS", 0.0
    )  # as where an evaluation takes long
    crew, _, hear, restarted = made(apex_dqn)
    hear(SHARD, here("a:1"))
    crew.start_others()
    weights = Weights(0, np.zeros(1, np.float32))
    failed = Failed("EnvironmentCrashedError", "a game that broke", "where it broke", True)
    for number in range(12):
        hear(EVALUATOR, here())
        crew.ask(EVALUATOR, Judge(2 * number, weights, False))
        hear(EVALUATOR, judged(2 * number))
        crew.ask(EVALUATOR, Judge(2 * number + 1, weights, False))
        hear(EVALUATOR, failed)
        hear(EVALUATOR, Died("it ended"))
    assert restarted == [EVALUATOR] * 12
    for _ in range(4):
        hear(EVALUATOR, here())
        hear(EVALUATOR, failed)
        hear(EVALUATOR, Died("it ended"))
    hear(EVALUATOR, here())
    hear(EVALUATOR, failed)
    with pytest.raises(RoleError, match=r"5 times without a finished evaluation, .*: a game that broke") as caught:
        hear(EVALUATOR, Died("it ended"))
    assert (caught.value.role, caught.value.traceback) == ("evaluator", "where it broke")


def test_learners_follow_parameter_shards_that_began_again_and_one_that_is_not_there_yet_begins_with_them():
    crew, stage, hear, _ = made(gorila)
    first, second = crew.learners
    zero, one = crew.parameters
    for name in crew.keepers:
        hear(name, here("a:1"))
    crew.start_others()
    hear(first, here())
    hear(zero, Died("killed"))
    for name in (zero, one):
        hear(name, here())
    assert (first, Follow([1, 1], 1)) in stage.told
    assert first not in stage.killed
    assert stage.killed == [one, second]
    assert (stage.newest(second).parameters, stage.newest(second).epoch) == ([1, 1], 1)


def test_a_role_that_does_not_end_in_time_is_killed_before_the_run_goes_on(monkeypatch):
    monkeypatch.setattr(supervisor, "END_SECONDS", 0.0)
    crew, stage, hear, restarted = made(apex_dqn)
    hear(SHARD, here("a:1"))
    crew.start_others()
    first, second = crew.actors
    for name in (first, second):
        hear(name, here())
    crew.ask(first, Stop())
    hear(first, Died("it ended"))
    course = object.__new__(supervisor.Supervisor)
    course._roles = crew
    course._end(crew.actors)
    assert stage.killed == [second]
    assert crew.all_ended(crew.actors)
    assert restarted == []


@pytest.fixture
def clock(monkeypatch):
    """A function that lets a crew listen for so many seconds, in turns of one."""
    now = [100.0]
    monkeypatch.setattr(role_group, "ListeningClock", lambda: ListeningClock(lambda: now[0]))

    def listen(crew, seconds, *, turns=None):
        for _ in range(turns or seconds):
            now[0] += seconds / (turns or seconds)
            crew.listen(0)

    return listen


def begun(agent):
    """A crew whose roles are all there."""
    crew, stage, hear, restarted = made(agent)
    hear(SHARD, here("a:1"))
    crew.start_others()
    for name in (LEARNER, EVALUATOR, *crew.actors):
        hear(name, here())
    return crew, stage, hear, restarted


def test_a_role_that_tells_nothing_is_awaited_and_an_evaluator_may_play_for_hours(clock):
    crew, _, hear, _ = begun(apex_dqn)
    served = Served({}, "")
    for _ in range(29):
        clock(crew, 1)
        hear(SHARD, served)
    assert crew.awaited() == {}
    clock(crew, 1)
    hear(SHARD, served)
    assert crew.awaited() == {name: Absence(30.0, begun=True) for name in (LEARNER, *crew.actors)}
    hear(LEARNER, Learnt(1, {}, {}))
    clock(crew, 1)
    assert set(crew.awaited()) == set(crew.actors)
    clock(crew, 1_000)
    assert EVALUATOR not in crew.awaited()


def test_a_role_whose_process_is_stopped_is_awaited_from_then_on_with_what_lets_it_go_on(clock):
    crew, stage, *_ = begun(apex_dqn)
    stage.stops = {EVALUATOR: "is stopped"}
    assert crew.awaited() == {EVALUATOR: Absence(0.0, "is stopped", begun=True)}
    clock(crew, 7)
    assert crew.awaited()[EVALUATOR] == Absence(7.0, "is stopped", begun=True)
    stage.stops = {}
    assert crew.awaited() == {}
    stage.stops = {EVALUATOR: "is stopped"}
    assert crew.awaited() == {EVALUATOR: Absence(0.0, "is stopped", begun=True)}


def test_while_the_supervisor_stood_still_itself_nobody_was_silent(clock):
    """As after Ctrl-Z and fg, which reach the whole group."""
    crew, *_ = begun(apex_dqn)
    clock(crew, 3_600, turns=1)
    assert crew.awaited() == {}
    clock(crew, 29)
    assert set(crew.awaited()) == {SHARD, LEARNER, *crew.actors}


def test_a_run_stalls_by_the_time_in_which_it_listened_and_not_by_that_in_which_it_stood_still(clock):
    crew, *_ = begun(apex_dqn)
    course = object.__new__(supervisor.Supervisor)
    course._roles, course._topology, course._should_stop = crew, crew.topology, lambda: False
    course._account, course._moved = SimpleNamespace(env_steps=5, updates=3), (0.0, 5, 3)
    course._latest = LatestReports()
    course._latest.served[0] = Served({}, "its table is full")
    clock(crew, 3_600, turns=1)
    course._refuse_to_stall(waiting_for_training=True)
    clock(crew, 300)
    with pytest.raises(StalledError, match=r"learner has not reported for 30\d s.*; shard 0: its table is full"):
        course._refuse_to_stall(waiting_for_training=True)


def test_the_last_words_of_a_role_that_was_replaced_while_they_came_are_not_those_of_the_one_after_it():
    crew, stage, hear, restarted = begun(apex_dqn)
    hear(SHARD, Died("killed"))
    hear(SHARD, here("b:2"))
    heard = []
    crew._on_report = lambda name, report: heard.append(report)
    # Its answer lets it begin elsewhere; what comes behind it in the same turn is of the one before.
    stage.next = [(LEARNER, State(-1, {"version": 3})), (LEARNER, Learnt(9, {}, {})), (LEARNER, Died("killed"))]
    crew.listen(0)
    assert (stage.newest(LEARNER).generation, restarted) == (1, [SHARD])
    assert [type(report) for report in heard] == [State]
    hear(LEARNER, here())
    hear(LEARNER, Learnt(4, {}, {}))
    assert type(heard[-1]) is Learnt


def test_tables_of_a_run_that_goes_on_draw_by_other_seeds_than_at_its_start_and_actors_by_the_same():
    topology = plan(apex_dqn, "CartPole-v1", runner="process")

    def seeds(state):
        crew = RoleGroup(
            Scripted(),
            apex_dqn,
            topology,
            [None],
            state=state,
            on_report=lambda *what: None,
            on_restart=lambda *what: None,
            on_move=lambda *what: None,
        )
        return crew._seed(SHARD, 0), crew._seed(crew.actors[0], 0)

    (start, actor), (once, one), (later, two) = (
        seeds(state) for state in (None, {"env_steps": 500}, {"env_steps": 900})
    )
    assert len({start, once, later}) == 3
    assert actor == one == two
