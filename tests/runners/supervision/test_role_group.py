"""Commands for roles that end, restart and move, in every order in which reports can arrive."""

import dataclasses
import os
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

from reverie import Journal, Server
from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.agents.core import Weights, seed_of
from reverie.agents.gorila import agent as gorila
from reverie.runners import Evaluation, RoleError, StalledError, TrainingWaits, plan
from reverie.runners.links.messages import (
    Died,
    Endpoint,
    Evaluate,
    EvaluationDone,
    Failed,
    Follow,
    Hold,
    Holding,
    Learnt,
    Ready,
    Resume,
    RoleName,
    Save,
    SavedState,
    Served,
    Serving,
    Stop,
)
from reverie.runners.links.replay_storage import ReplayStorage
from reverie.runners.roles.learners import learning_client
from reverie.runners.supervision import absences, role_group, supervisor
from reverie.runners.supervision.absences import Absence
from reverie.runners.supervision.latest_reports import LatestReports
from reverie.runners.supervision.listening_clock import ListeningClock
from reverie.runners.supervision.requests import Requests
from reverie.runners.supervision.role_group import EVALUATOR, RoleGroup
from reverie.runners.supervision.role_setups import RoleSetups
from reverie.runners.supervision.stalls import StallWatch
from reverie.sharding import shard_table

LEARNER = RoleName("learner", alone=True)
SHARD = RoleName("shard")


class Scripted:
    """A stage without processes: it records starts, commands and kills."""

    weights = None

    def __init__(self):
        self.started, self.sent, self.killed, self.next, self.moves = [], [], [], [], []
        self.stops = {}

    def serving(self, name, storage, before):
        return Serving(storage=storage)

    def endpoint(self, name, ready):
        return Endpoint(ready.address)

    def parameter_addresses(self, shards):
        return [shard.generation for shard in shards]

    def start(self, setup):
        self.started.append(setup)

    def send(self, name, command):
        self.sent.append((name, command))

    def listen(self, timeout):
        reported, self.next = self.next, []
        return reported

    def kill(self, name):
        self.killed.append(name)

    def why_not_started(self, name):
        return ""

    def why_stopped(self, name):
        return self.stops.get(name, "")

    def newest(self, name):
        """The setup that a role was started with last."""
        return next(setup for setup in reversed(self.started) if setup.name == name)


def made(agent, storage=ReplayStorage(), **changes):  # noqa: B008 - it is frozen
    """A crew and its stage, whose roles have sent no report; and a function that lets one report."""
    config = dataclasses.replace(agent.load_preset("CartPole-v1").config, **changes)
    stage, restarted = Scripted(), []
    crew = RoleGroup(
        stage,
        agent,
        plan(agent, "CartPole-v1", config=config, runner="process"),
        [storage],
        state=None,
        on_report=lambda name, report: None,
        on_restart=lambda name, *what: restarted.append((name, *what) if storage.journal else name),
        on_move=lambda *what: stage.moves.append(what),
    )
    crew.start_shards()

    def receive(name, report):
        stage.next.append((name, report))
        crew.listen(0)

    return crew, stage, receive, restarted


def make_table():
    topology = plan(apex_dqn, "CartPole-v1")
    (table,) = apex_dqn.make_tables(topology.env, topology.config, seed=0)
    return table


def make_shards(count):
    return [[table] for table in shard_table(make_table(), count)[0]]


def here(address=None):
    return Ready(os.getpid(), "here", address)


def test_a_relocated_learner_still_gets_its_unanswered_commands():
    crew, stage, receive, _ = made(apex_dqn)
    receive(SHARD, here("a:1"))
    crew.start_others()
    for name in (LEARNER, EVALUATOR, *crew.actors):
        receive(name, here())
    receive(SHARD, Died("killed"))
    receive(SHARD, here("b:2"))
    assert (LEARNER, Save(-1)) in stage.sent
    # A checkpoint falls due before it has answered.
    crew.ask(LEARNER, Save(7))
    receive(LEARNER, SavedState(-1, {"version": 3}))
    again = stage.newest(LEARNER)
    assert (again.generation, again.state, again.endpoints) == (1, {"version": 3}, (Endpoint("b:2"),))
    stage.sent.clear()
    receive(LEARNER, here())
    assert stage.sent == [(LEARNER, Save(7))]


def test_a_shard_with_a_journal_must_continue_it_once_it_was_ready(tmp_path):
    storage = ReplayStorage(journal=Journal(tmp_path), samples={"replay": 7})
    crew, stage, receive, restarted = made(apex_dqn, storage)
    receive(SHARD, Died("killed"))  # before its journal had begun
    assert stage.newest(SHARD).serving.storage == storage
    receive(SHARD, dataclasses.replace(here("a:1"), lost={"replay": 5}))
    assert crew.lost(0) == {"replay": 5}
    receive(SHARD, SavedState(1, tables="there"))
    receive(SHARD, Died("killed"))
    # Its limits have moved already: draws are not counted as lost again.
    expected = dataclasses.replace(storage, continues=True, samples={}, lost={"replay": 5})
    assert stage.newest(SHARD).serving.storage == expected
    assert [what[2] for what in restarted] == ["nothing", "its journal"]


def test_a_learner_of_several_shards_has_the_lost_draws_of_all_of_them():
    stage = Scripted()
    crew = RoleGroup(
        stage,
        apex_dqn,
        plan(apex_dqn, "CartPole-v1", runner="process", num_shards=2),
        [ReplayStorage(), ReplayStorage()],
        state=None,
        on_report=lambda *what: None,
        on_restart=lambda *what: None,
        on_move=lambda *what: None,
    )
    crew.start_shards()
    for index, lost in enumerate(({"replay": 5}, {"replay": 8})):
        stage.next.append((RoleName("shard", index), dataclasses.replace(here(f"a:{index}"), lost=lost)))
    crew.listen(0)
    crew.start_others()
    assert stage.newest(LEARNER).lost == {"replay": 13}
    with Server(make_shards(2)[0]) as one, Server(make_shards(2)[1], shard=1) as two:
        setup = dataclasses.replace(
            stage.newest(LEARNER), endpoints=(Endpoint(one.address), Endpoint(two.address)), seed=0
        )
        client = learning_client(setup)
        assert client._limiter.min_diff == make_table().rate_limiter.min_diff - 13
        client.close()


def test_an_answer_to_an_older_command_does_not_answer_a_newer_one():
    crew, stage, receive, restarted = made(apex_dqn)
    receive(SHARD, here("a:1"))
    crew.start_others()
    receive(LEARNER, here())
    crew.ask(LEARNER, Save(3))
    crew.ask(LEARNER, Save(4))
    receive(LEARNER, SavedState(3, {"version": 1}))
    receive(LEARNER, Died("killed"))
    stage.sent.clear()
    receive(LEARNER, here())
    assert stage.sent == [(LEARNER, Save(4))]
    receive(LEARNER, SavedState(4, {"version": 1}))
    receive(LEARNER, Died("killed"))
    stage.sent.clear()
    receive(LEARNER, here())
    assert stage.sent == []
    assert restarted == [LEARNER, LEARNER]


def test_roles_that_are_still_starting_restart_with_a_shards_new_address():
    crew, stage, receive, restarted = made(apex_dqn)
    receive(SHARD, here("a:1"))
    crew.start_others()
    receive(SHARD, Died("killed"))
    receive(SHARD, here("b:2"))
    for name in (LEARNER, *crew.actors):
        assert stage.newest(name).endpoints == (Endpoint("b:2"),)
        assert name in stage.killed
    assert EVALUATOR not in stage.killed
    assert restarted == [SHARD]
    # The event has the new address and the followers: the started ones, in the order of their start.
    assert stage.moves == [(SHARD, "a:1", "b:2", [LEARNER, *crew.actors])]


def test_a_shard_that_returns_to_its_address_restarts_no_other_role():
    crew, stage, receive, restarted = made(apex_dqn)
    receive(SHARD, here("a:1"))
    crew.start_others()
    for name in (LEARNER, EVALUATOR, *crew.actors):
        receive(name, here())
    receive(SHARD, Died("killed"))
    receive(SHARD, here("a:1"))
    assert (restarted, stage.killed, stage.moves) == ([SHARD], [], [])


def judged(number):
    return EvaluationDone(number, Evaluation((1,), (1.0,)), None, 0.1)


def test_an_evaluator_that_ends_at_every_evaluation_ends_the_run_and_one_that_ends_at_some_does_not(monkeypatch):
    monkeypatch.setattr(
        "reverie.runners.supervision.role_group.SHORT_LIFE_SECONDS", 0.0
    )  # as where an evaluation takes long
    crew, _, receive, restarted = made(apex_dqn)
    receive(SHARD, here("a:1"))
    crew.start_others()
    weights = Weights(0, np.zeros(1, np.float32))
    failed = Failed("EnvironmentCrashedError", "a game that broke", "where it broke", True)
    for number in range(12):
        receive(EVALUATOR, here())
        crew.ask(EVALUATOR, Evaluate(2 * number, weights, False))
        receive(EVALUATOR, judged(2 * number))
        crew.ask(EVALUATOR, Evaluate(2 * number + 1, weights, False))
        receive(EVALUATOR, failed)
        receive(EVALUATOR, Died("it ended"))
    assert restarted == [EVALUATOR] * 12
    for _ in range(4):
        receive(EVALUATOR, here())
        receive(EVALUATOR, failed)
        receive(EVALUATOR, Died("it ended"))
    receive(EVALUATOR, here())
    receive(EVALUATOR, failed)
    with pytest.raises(RoleError, match=r"5 times without a finished evaluation, .*: a game that broke") as caught:
        receive(EVALUATOR, Died("it ended"))
    assert (caught.value.role, caught.value.traceback) == ("evaluator", "where it broke")


def test_learners_follow_restarted_parameter_shards_even_while_starting():
    crew, stage, receive, _ = made(gorila)
    first, second = crew.learners
    zero, one = crew.parameters
    for name in crew.all_shards:
        receive(name, here("a:1"))
    crew.start_others()
    receive(first, here())
    receive(zero, Died("killed"))
    for name in (zero, one):
        receive(name, here())
    assert (first, Follow([1, 1], 1)) in stage.sent
    assert first not in stage.killed
    assert stage.killed == [one, second]
    assert (stage.newest(second).parameters, stage.newest(second).epoch) == ([1, 1], 1)


def test_a_role_that_does_not_end_in_time_is_killed_before_the_run_continues(monkeypatch):
    monkeypatch.setattr(supervisor, "END_SECONDS", 0.0)
    crew, stage, receive, restarted = made(apex_dqn)
    receive(SHARD, here("a:1"))
    crew.start_others()
    first, second = crew.actors
    for name in (first, second):
        receive(name, here())
    crew.ask(first, Stop())
    receive(first, Died("it ended"))
    course = object.__new__(supervisor.Supervisor)
    course._roles = crew
    course._end(crew.actors)
    assert stage.killed == [second]
    assert crew.all_ended(crew.actors)
    assert restarted == []


@pytest.fixture
def clock(monkeypatch):
    """A function that lets a crew listen for so many seconds, one second at a time."""
    now = [100.0]
    monkeypatch.setattr(role_group, "ListeningClock", lambda: ListeningClock(lambda: now[0]))

    def listen(crew, seconds, *, turns=None):
        for _ in range(turns or seconds):
            now[0] += seconds / (turns or seconds)
            crew.listen(0)

    return listen


def begun(agent):
    """A crew whose roles are all there."""
    crew, stage, receive, restarted = made(agent)
    receive(SHARD, here("a:1"))
    crew.start_others()
    for name in (LEARNER, EVALUATOR, *crew.actors):
        receive(name, here())
    return crew, stage, receive, restarted


def test_a_role_that_does_not_report_is_awaited_and_an_evaluator_may_play_for_hours(clock):
    crew, _, receive, _ = begun(apex_dqn)
    served = Served({}, "")
    for _ in range(29):
        clock(crew, 1)
        receive(SHARD, served)
    assert crew.awaited() == {}
    clock(crew, 1)
    receive(SHARD, served)
    assert crew.awaited() == {name: Absence(30.0, begun=True) for name in (LEARNER, *crew.actors)}
    receive(LEARNER, Learnt(1, {}, {}))
    clock(crew, 1)
    assert set(crew.awaited()) == set(crew.actors)
    clock(crew, 1_000)
    assert EVALUATOR not in crew.awaited()


def test_a_role_whose_process_is_stopped_is_awaited_with_the_command_that_resumes_it(clock):
    crew, stage, *_ = begun(apex_dqn)
    stage.stops = {EVALUATOR: "is stopped"}
    assert crew.awaited() == {EVALUATOR: Absence(0.0, "is stopped", begun=True)}
    clock(crew, 7)
    assert crew.awaited()[EVALUATOR] == Absence(7.0, "is stopped", begun=True)
    stage.stops = {}
    assert crew.awaited() == {}
    stage.stops = {EVALUATOR: "is stopped"}
    assert crew.awaited() == {EVALUATOR: Absence(0.0, "is stopped", begun=True)}


def test_time_in_which_the_supervisor_was_suspended_does_not_count_as_silence(clock):
    """Ctrl-Z and fg affect the whole group."""
    crew, *_ = begun(apex_dqn)
    clock(crew, 3_600, turns=1)
    assert crew.awaited() == {}
    clock(crew, 29)
    assert set(crew.awaited()) == {SHARD, LEARNER, *crew.actors}


@pytest.fixture
def standing(clock):
    """A run whose roles neither step nor learn, its roles, and its events."""
    crew, *_ = begun(apex_dqn)
    course = object.__new__(supervisor.Supervisor)
    course._roles, course._topology, course._should_stop = crew, crew.topology, lambda: False
    course._account, course._stalls = SimpleNamespace(env_steps=5, updates=3), StallWatch()
    course._awaiting = absences.AbsenceReporter(300.0)
    course._latest, events = LatestReports(), []
    course._emit = events.append
    course._latest.served[0] = Served({}, "its table is full")
    course._check_stalled(waiting_for_training=True)
    return course, crew, events


def test_a_run_that_neither_steps_nor_learns_reports_each_half_minute_why(standing, clock):
    course, crew, events = standing

    def reported_after(seconds):
        clock(crew, seconds)
        course._check_stalled(waiting_for_training=True)
        return len(events)

    assert [reported_after(seconds) for seconds in (34, 2, 20, 10)] == [0, 1, 1, 2]
    assert isinstance(events[0], TrainingWaits)
    assert "shard 0: its table is full" in events[0].reason
    # It is not reported while other reports name the role that the run waits for, nor once the run goes on.
    course._awaiting.text = "learner has not reported for 30 s"
    assert reported_after(30) == 2
    course._awaiting.text, course._account.updates = "", 4
    assert [reported_after(seconds) for seconds in (1, 25, 10)] == [2, 2, 3]


def test_time_in_which_the_supervisor_was_suspended_does_not_count_as_a_stall(standing, clock):
    course, crew, _ = standing
    clock(crew, 3_600, turns=1)
    course._check_stalled(waiting_for_training=True)
    clock(crew, 300)
    with pytest.raises(StalledError, match=r"learner has not reported for 30\d s.*; shard 0: its table is full"):
        course._check_stalled(waiting_for_training=True)


def test_late_reports_of_a_replaced_role_are_not_taken_for_those_of_its_replacement():
    crew, stage, receive, restarted = begun(apex_dqn)
    receive(SHARD, Died("killed"))
    receive(SHARD, here("b:2"))
    reports = []
    crew._on_report = lambda name, report: reports.append(report)
    # Its answer lets it begin elsewhere; what comes behind it in the same turn is of the one before.
    stage.next = [(LEARNER, SavedState(-1, {"version": 3})), (LEARNER, Learnt(9, {}, {})), (LEARNER, Died("killed"))]
    crew.listen(0)
    assert (stage.newest(LEARNER).generation, restarted) == (1, [SHARD])
    assert [type(report) for report in reports] == [SavedState]
    receive(LEARNER, here())
    receive(LEARNER, Learnt(4, {}, {}))
    assert type(reports[-1]) is Learnt


def test_no_two_restarts_have_the_same_seed_before_or_after_a_resume():
    config = dataclasses.replace(gorila.load_preset("CartPole-v1").config, num_learners=2, num_actors=2)
    topology = plan(gorila, "CartPole-v1", config=config, runner="process", seed=3)
    names = [RoleName(kind, index) for kind in ("shard", "learner", "actor", "bundle") for index in range(4)]
    seeds = {}
    for state in (None, {"env_steps": 1}, {"env_steps": 5_000}):
        setups = RoleSetups(gorila, topology, state)
        for name in (*names, role_group.EVALUATOR):
            for generation in range(4):
                seeds.setdefault(setups.seed(name, generation), []).append((name, generation, state))
    # A learner, an evaluator and actors start with the same seed again: their random states are in the checkpoint.
    again = [found for found in seeds.values() if len(found) > 1]
    assert all(len({name for name, *_ in found}) == 1 for found in again)
    assert {generation for found in again for _, generation, _ in found} == {0}


def test_a_role_starts_with_the_seed_that_it_has_in_one_process():
    topology = plan(apex_dqn, "CartPole-v1", runner="process", seed=3)
    setups = RoleSetups(apex_dqn, topology, None)
    assert setups.seed(RoleName("learner"), 0) == seed_of(3, 1)
    assert [setups.seed(RoleName("actor", index), 0) for index in range(3)] == [seed_of(3, 2, i) for i in range(3)]


def test_a_resumed_run_gives_tables_new_seeds_and_actors_the_same():
    topology = plan(apex_dqn, "CartPole-v1", runner="process")

    def seeds(state):
        setups = RoleSetups(apex_dqn, topology, state)
        return setups.seed(SHARD, 0), setups.seed(RoleName("actor", 0), 0)

    (start, actor), (once, one), (later, two) = (
        seeds(state) for state in (None, {"env_steps": 500}, {"env_steps": 900})
    )
    assert len({start, once, later}) == 3
    assert actor == one == two


def test_a_learner_that_is_restarted_while_it_is_held_starts_held_and_is_resumed_with_the_others():
    crew, stage, receive, _ = begun(apex_dqn)
    crew.ask(LEARNER, Hold(1))
    receive(LEARNER, Holding(1))
    receive(LEARNER, Died("killed"))
    assert stage.newest(LEARNER).held
    crew.ask(LEARNER, Resume())
    stage.sent.clear()
    receive(LEARNER, here())
    assert stage.sent == [(LEARNER, Resume())]
    receive(LEARNER, Died("killed"))
    assert not stage.newest(LEARNER).held
    stage.sent.clear()
    receive(LEARNER, here())
    assert stage.sent == []


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
