"""The course of a run on a stage whose roles are simulated by the test, in one thread and with a fake clock."""

import dataclasses
import os

import numpy as np
import pytest

pytest.importorskip("torch")

from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.agents.core import RunSettings, Weights
from reverie.agents.gorila import agent as gorila
from reverie.agents.ppo import agent as ppo
from reverie.runners import Evaluated, Evaluation, Progress, RoleAwaited, Saved, StoppedError, checkpoints, plan
from reverie.runners.links.messages import (
    ActAgain,
    Acted,
    Died,
    Endpoint,
    Evaluate,
    EvaluationDone,
    Hold,
    Holding,
    Learnt,
    Ready,
    Resume,
    RoleName,
    Save,
    Served,
    Serving,
    State,
    Stop,
)
from reverie.runners.reports.events import WeightsNotPublished
from reverie.runners.reports.problems import problem_of
from reverie.runners.supervision import role_group
from reverie.runners.supervision.latest_reports import LatestReports
from reverie.runners.supervision.listening_clock import ListeningClock
from reverie.runners.supervision.lost_unrolls import LostUnrolls, Wait
from reverie.runners.supervision.supervisor import Supervisor

RUN = RunSettings(
    target_return=100.0,
    max_env_steps=200,
    evaluate_every=50,
    checkpoint_every=60,
    screening_episodes=1,
    confirmation_episodes=1,
    evaluation_seconds=20.0,
)
FIGURES = dict.fromkeys(("inserts", "samples", "size", "bytes", "priorities_updated", "updates_stale"), 1.0)


class Theatre:
    """A stage: in each turn every actor steps once and every learner that is not held updates once.

    `judge` gives the returns (screening, confirming) of weights of a version; None leaves the evaluator silent.
    """

    def __init__(self, folder, judge):
        self.folder, self.judge = folder, judge
        self.roles, self.ended, self.held, self.coming = {}, set(), set(), []
        self.evaluating, self.killed = False, []
        self.steps, self.versions = {}, {}
        self.judged, self.saves, self.now = [], 0, 0.0
        self.awaiting, self.acts_again = set(), []
        """Roles that wait for others, by index and kind, and actors that were asked not to, with the time."""
        self.ready = True
        self.num_parameters = 1

    @property
    def weights(self):
        return self

    def source(self):
        return self

    @property
    def version(self):
        return max(self.versions.values(), default=0)

    def latest(self, newer_than):
        return Weights(self.version, np.zeros(self.num_parameters, np.float32))

    def serving(self, name, storage, before):
        return Serving()

    def endpoint(self, name, ready):
        return Endpoint(ready.address)

    def parameter_addresses(self, shards):
        return [shard.generation for shard in shards]

    def why_not_started(self, name):
        return ""

    def why_stopped(self, name):
        return ""

    def kill(self, name):
        self.killed.append(str(name))
        self.ended.add(name)

    def start(self, setup):
        name = setup.name
        self.roles[name] = setup
        if name.kind == "actor":
            self.steps[name] = (setup.state or {"env_steps": 0})["env_steps"]
        if name.kind == "learner":
            self.versions[name] = (setup.state or {"version": 0})["version"]
        self.coming.append((name, Ready(os.getpid(), "here", "a:1")))

    def send(self, name, command):
        match command:
            case Hold(number):
                self.held.add(name)
                self.coming.append((name, Holding(number, self.latest(-1))))
            case Resume():
                self.held.discard(name)
            case Save(number):
                self.coming.append((name, self.state_of(name, number)))
            case Evaluate(number, weights, confirm):
                self.judged.append((weights.version, confirm))
                returns = self.judge(weights.version)
                self.evaluating = returns is None
                if returns is not None:
                    screening, confirming = (Evaluation((1,), (one,)) for one in returns)
                    reached = screening.mean_return >= RUN.target_return or confirm
                    self.coming.append((name, EvaluationDone(number, screening, confirming if reached else None, 0.0)))
            case ActAgain():
                self.acts_again.append((self.now, str(name)))
            case Stop() if name == role_group.EVALUATOR and self.evaluating:
                pass
            case Stop():
                self.ended.add(name)
                self.coming.append((name, Died("it ended")))

    def state_of(self, name, number):
        if name.kind == "shard":
            self.saves += 1
            tables = self.folder / "replay-1" / str(self.saves)
            tables.mkdir(parents=True, exist_ok=True)
            return State(number, tables=str(tables), samples={"replay": 50})
        if name.kind == "learner":
            return State(number, {"version": self.versions[name], "draws": self.draws}, self.latest(-1))
        return State(number, {"version": self.version})

    def listen(self, timeout):
        self.now += 1.0
        reported, self.coming = self.coming, []
        for name in [one for one in self.roles if one not in self.ended]:
            if name.kind == "shard":
                reported.append((name, Served(FIGURES, "")))
            awaits = str(name) in self.awaiting
            if name.kind == "actor":
                self.steps[name] += not awaits
                state = {"env_steps": self.steps[name]}
                reported.append((name, Acted(self.steps[name], self.version, state, awaits_weights=awaits)))
            if name.kind == "learner" and name not in self.held:
                self.versions[name] += not awaits
                reported.append((name, Learnt(self.versions[name], {}, {}, awaits_batch=awaits)))
        return reported


@pytest.fixture
def perform(tmp_path, monkeypatch):
    """A run on a `Theatre` by its clock; gives the stage, the events and the result, or what ended it."""

    def perform(
        judge, *, agent=apex_dqn, stop=lambda stage: False, resume=None, folder=tmp_path, config=None, draws=None, **run
    ):
        config = config or dataclasses.replace(agent.load_preset("CartPole-v1").config, num_actors=2)
        topology = plan(agent, "CartPole-v1", config=config, run=dataclasses.replace(RUN, **run), runner="process")
        stage, events = Theatre(tmp_path, judge), []
        stage.draws = draws
        policy = agent.make_policy(topology.env, config)
        stage.num_parameters = sum(one.numel() for one in policy.module.parameters())
        monkeypatch.setattr(role_group, "ListeningClock", lambda: ListeningClock(lambda: stage.now))
        monkeypatch.setattr("reverie.runners.supervision.supervisor.time.monotonic", lambda: stage.now)
        state = None if resume is None else checkpoints.load(resume)
        supervisor = Supervisor(
            agent,
            topology,
            stage,
            events.append,
            checkpoint_folder=folder,
            resume=None,
            state=state,
            replays=checkpoints.place_replays(folder, None, topology, None),
            should_stop=lambda: stop(stage),
        )
        try:
            end = supervisor.run(stop_when_confirmed=True)
        except (StoppedError, TimeoutError) as error:
            end = error
        return stage, events, end

    return perform


def of_kind(events, kind):
    return [event for event in events if isinstance(event, kind)]


def test_checkpoints_wait_for_a_stalled_evaluator_for_evaluation_seconds_and_it_is_reported(perform):
    # It has judged nothing when the run is asked to end: 40 actor steps later than the bound.
    stage, events, end = perform(lambda version: None, stop=lambda stage: stage.now > 120, max_env_steps=10**6)
    assert isinstance(end, StoppedError)
    assert stage.judged == [(stage.judged[0][0], False)]
    saved = [event.env_steps for event in of_kind(events, Saved)]
    # Two steps a second. The first is due at 60, and written once the evaluation, asked for at 50, took 20 s.
    assert 90 <= saved[0] <= 96
    assert all(0 <= steps % 60 <= 4 for steps in saved[1:-1])
    assert len(saved) >= 4
    (reported, *_) = of_kind(events, RoleAwaited)
    assert (reported.role, reported.begun) == ("evaluator", True)
    assert (
        reported.reason == "has not finished an evaluation, and checkpoints no longer wait for it (evaluation_seconds)"
    )
    assert 20 < reported.seconds < 24


@pytest.mark.parametrize(("returns", "killed"), [(None, ["evaluator"]), ((1.0, 2.0), [])])
def test_a_run_that_is_stopped_does_not_wait_for_an_evaluation(perform, returns, killed):
    stage, _, end = perform(lambda version: returns, stop=lambda stage: stage.now > 60, max_env_steps=10**6)
    assert isinstance(end, StoppedError)
    assert stage.now < 70, "a role has 30 s to stop"
    assert stage.killed == killed


def test_a_run_resumed_from_a_checkpoint_within_an_evaluation_makes_that_evaluation(perform):
    _, _, end = perform(lambda version: None, stop=lambda stage: stage.now > 60, max_env_steps=10**6)
    assert checkpoints.load(end.checkpoint)["next_evaluation"] == 50
    _, events, _ = perform(lambda version: (1.0, 2.0), resume=end.checkpoint, max_env_steps=end.env_steps + 20)
    assert of_kind(events, Evaluated)[0].point.env_steps <= end.env_steps + 4


@pytest.mark.parametrize("made", [None, 30, 70])
def test_a_checkpoint_has_the_draws_that_its_learners_state_knows_and_not_those_that_a_server_counted_later(
    perform, made
):
    def judge(version):
        return None

    draws = None if made is None else {"table": "replay", "made": made}
    _, _, end = perform(judge, draws=draws, stop=lambda stage: stage.now > 60, max_env_steps=10**6)
    (saved,) = checkpoints.load(end.checkpoint)["replay_draws"]
    assert saved == {"samples": {"replay": 50 if made is None else made}, "lost": {}}


def test_with_a_responsive_evaluator_checkpoints_are_written_when_due_without_a_report(perform):
    _, events, result = perform(lambda version: (1.0, 2.0))
    assert [event.env_steps // 10 for event in of_kind(events, Saved)] == [6, 12, 18, 20]
    assert of_kind(events, RoleAwaited) == []
    assert result.evaluation.mean_return == 2.0


def test_weights_that_are_not_published_are_an_event_and_training_continues(perform, monkeypatch):
    listen = Theatre.listen

    def full(stage, timeout):
        reports = listen(stage, timeout)
        problem = "No space left on device" if stage.now == 9 else ""
        return [
            (name, dataclasses.replace(one, unpublished=problem) if isinstance(one, Learnt) else one)
            for name, one in reports
        ]

    monkeypatch.setattr(Theatre, "listen", full)
    _, events, result = perform(lambda version: (1.0, 2.0))
    (event,) = of_kind(events, WeightsNotPublished)
    assert (event.role, event.reason) == ("learner", "No space left on device")
    assert problem_of(event) == (
        "learner cannot publish its weights: No space left on device; make room, in a container with a larger"
        f" /dev/shm (docker run --shm-size) ({event.env_steps} steps)"
    )
    assert result.env_steps >= 200


def test_only_the_weights_that_the_learner_holds_are_are_confirmed(perform):
    """The learner continued during the evaluation: its newer weights are evaluated again, and may be worse."""
    lucky = []

    def judge(version):
        if not lucky:
            lucky.append(version)
        return (200.0, 200.0) if version in lucky else (7.0, 7.0)

    stage, events, result = perform(judge)
    assert [version for version, _ in stage.judged][:2] == [lucky[0], lucky[0] + 1]
    assert of_kind(events, Evaluated)[0].point.mean_return == 7.0
    assert (result.confirmed, result.env_steps >= 200) == (False, True)


def test_a_run_with_confirmed_weights_ends_with_them_and_evaluates_them_once(perform):
    stage, _, result = perform(lambda version: (100.0 + version, 200.0 + version))
    assert result.confirmed
    first, second = stage.judged
    assert first[0] + 1 == second[0] == result.weights.version
    assert result.evaluation.mean_return == 200.0 + result.weights.version


def test_the_result_is_of_the_last_weights_and_not_of_earlier_evaluations(perform):
    stage, events, result = perform(lambda version: (version / 100, 50 + version / 100))
    assert stage.judged[-1] == (result.weights.version, True)
    assert result.evaluation.mean_return == 50 + result.weights.version / 100
    assert of_kind(events, Evaluated)[-1].point.mean_return == result.weights.version / 100


def test_confirmation_does_not_count_if_the_screening_missed_the_target(perform):
    _, events, result = perform(lambda version: (99.0, 200.0))
    assert {event.confirmation for event in of_kind(events, Evaluated)} == {None}
    assert (result.confirmed, result.evaluation.mean_return) == (False, 200.0)


def test_weights_that_reach_the_target_on_the_screening_seeds_alone_are_not_confirmed(perform):
    _, events, result = perform(lambda version: (200.0, 99.0))
    assert (result.confirmed, result.env_steps >= 200) == (False, True)
    assert all(event.confirmation.mean_return == 99.0 for event in of_kind(events, Evaluated))


def test_updates_of_learners_that_share_their_parameters_are_counted_once(perform):
    config = dataclasses.replace(
        gorila.load_preset("CartPole-v1").config, num_learners=3, num_parameter_shards=2, num_actors=3
    )
    stage, events, result = perform(lambda version: (1.0, 1.0), agent=gorila, config=config, folder=None)
    assert result.learner["updates"] == stage.version
    assert all(event.updates <= stage.version for event in of_kind(events, Progress))


def await_from(*times):
    """A stage's wait for the roles of each time, which comes with the turns: `(time, roles)`."""

    def awaits(stage):
        for since, roles in times:
            if stage.now == since:
                stage.awaiting = set(roles)
        return stage.now > 60

    return awaits


ALL = ("actor 0", "actor 1", "learner")


def test_actors_that_await_weights_from_a_learner_that_awaits_their_batch_act_again_every_two_seconds(perform):
    waits = await_from((20, ALL), (27, ()))
    stage, _, end = perform(lambda version: (0.0, 0.0), agent=ppo, stop=waits, max_env_steps=10**6)
    assert isinstance(end, StoppedError)
    first = stage.acts_again[0][0]
    assert 22 <= first <= 23
    assert stage.acts_again == [(first + 3 * i, actor) for i in range(2) for actor in ("actor 0", "actor 1")]


@pytest.mark.parametrize("missing", ALL)
def test_they_do_not_while_one_of_them_is_at_work(perform, missing):
    waits = await_from((20, set(ALL) - {missing}))
    stage, _, _ = perform(lambda version: (0.0, 0.0), agent=ppo, stop=waits, max_env_steps=10**6)
    assert stage.acts_again == []


def test_a_short_wait_for_each_other_is_none(perform):
    """The last unroll is on its way, or the weights are."""
    waits = await_from((20, ALL), (21, ()), (22, ALL), (23, ()))
    stage, _, _ = perform(lambda version: (0.0, 0.0), agent=ppo, stop=waits, max_env_steps=10**6)
    assert stage.acts_again == []


def test_a_role_that_has_not_reported_again_is_at_work():
    lost = LostUnrolls()
    found = [lost.found([Wait(True, min(now, 3.0)), Wait(True, now)]) for now in (3.0, 4.0, 9.0)]
    assert found == [False] * 3, "the first one is in a long step"
    assert lost.found([Wait(True, 9.5), Wait(True, 9.0)])
    assert not lost.found([Wait(True, 9.5), Wait(True, 10.0)]), "the time begins again"


@pytest.mark.parametrize(("kind", "index"), [("actor", 1), ("learner", 0)])
def test_a_role_that_was_restarted_does_not_wait_until_it_says_so(kind, index):
    latest, name = LatestReports(), RoleName(kind, index)
    assert not latest.waits(name), "it has not started yet"
    latest.acted[1] = Acted(8, 0, {}, awaits_weights=True)
    latest.learnt[0] = Learnt(0, {}, {}, awaits_batch=True)
    assert latest.waits(name)
    latest.forget_wait(name)
    assert not latest.waits(name)
