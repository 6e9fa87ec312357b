"""The course of a run on a backend whose roles are simulated by the test, in one thread and with a fake clock."""

import dataclasses

import pytest

pytest.importorskip("torch")

from simulated_roles import SimulatedRoles, of_kind

from reverie import load_policy
from reverie.agents.gorila import agent as gorila
from reverie.agents.ppo import agent as ppo
from reverie.runners import Evaluated, Progress, RoleAwaited, Saved, StoppedError, TrainingWaits, checkpoints
from reverie.runners.links.messages import ActorReport, LearnerReport, RoleName
from reverie.runners.reports.events import WeightsNotPublished
from reverie.runners.reports.problems import problem_of
from reverie.runners.supervision.latest_reports import LatestReports
from reverie.runners.supervision.lost_unrolls import LostUnrolls, RoleWait


def test_checkpoints_wait_for_a_stalled_evaluator_for_evaluation_seconds_and_it_is_reported(perform):
    # It has judged nothing when the run is asked to end: 40 actor steps later than the bound.
    backend, events, end = perform(lambda version: None, stop=lambda backend: backend.now > 120, max_env_steps=10**6)
    assert isinstance(end, StoppedError)
    assert backend.judged == [(backend.judged[0][0], False)]
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
    backend, _, end = perform(lambda version: returns, stop=lambda backend: backend.now > 60, max_env_steps=10**6)
    assert isinstance(end, StoppedError)
    assert backend.now < 70, "a role has 30 s to stop"
    assert backend.killed == killed


@pytest.mark.parametrize("role", ["evaluator", "actor 1"])
def test_a_run_that_is_stopped_does_not_wait_for_a_replacement_that_is_starting(perform, role):
    def script(backend):
        if backend.now == 40:
            backend.hanging.add(role)
            backend.die(next(name for name in backend.roles if str(name) == role))

    backend, events, end = perform(
        lambda version: (1.0, 2.0), stop=lambda backend: backend.now > 60, max_env_steps=10**6, script=script
    )
    assert isinstance(end, StoppedError)
    assert backend.now < 70
    assert role in backend.killed
    assert of_kind(events, Saved)[-1].path == end.checkpoint
    assert checkpoints.load(end.checkpoint)["env_steps"] == end.env_steps > 80


def test_a_run_resumed_from_a_checkpoint_within_an_evaluation_makes_that_evaluation(perform):
    _, _, end = perform(lambda version: None, stop=lambda backend: backend.now > 60, max_env_steps=10**6)
    assert checkpoints.load(end.checkpoint)["next_evaluation"] == 50
    _, events, _ = perform(lambda version: (1.0, 2.0), resume=end.checkpoint, max_env_steps=end.env_steps + 20)
    assert of_kind(events, Evaluated)[0].point.env_steps <= end.env_steps + 4


@pytest.mark.parametrize("made", [None, 30, 70])
def test_a_checkpoint_has_the_draws_of_its_learners_state_and_not_those_that_a_server_counted_later(perform, made):
    def judge(version):
        return None

    draws = None if made is None else {"table": "replay", "made": made}
    _, _, end = perform(judge, draws=draws, stop=lambda backend: backend.now > 60, max_env_steps=10**6)
    (saved,) = checkpoints.load(end.checkpoint)["replay_draws"]
    assert saved == {"samples": {"replay": 50 if made is None else made}, "lost": {}}


def test_with_a_responsive_evaluator_checkpoints_are_written_when_due_without_a_report(perform):
    _, events, result = perform(lambda version: (1.0, 2.0))
    assert [event.env_steps // 10 for event in of_kind(events, Saved)] == [6, 12, 18, 20, 20]
    assert of_kind(events, RoleAwaited) == []
    assert result.evaluation.mean_return == 2.0


def test_the_last_weights_are_saved_before_they_are_evaluated(perform):
    """The evaluator does not answer for them, as in an environment that hangs; a stop is honoured meanwhile."""
    last = []

    def judge(version):
        return None if backends[0].saves == 4 and last.append(version) is None else (1.0, 2.0)

    backends = []
    backend, events, end = perform(
        judge,
        script=lambda backend: backends or backends.append(backend),
        stop=lambda backend: bool(last) and backend.now > 400,
    )
    saved = of_kind(events, Saved)
    assert [event.env_steps // 10 for event in saved] == [6, 12, 18, 20, 20]
    assert isinstance(end, StoppedError)
    assert backend.killed == ["evaluator"]
    state = checkpoints.load(end.checkpoint)
    assert state["weights"]["version"] == last[0]
    assert (state["result"], [point[0] for point in state["curve"]][-1] < state["env_steps"]) == (None, True)


@pytest.mark.parametrize("stops", [False, True], ids=["late evaluation", "evaluator that does not answer"])
def test_a_checkpoint_that_is_due_at_the_last_step_is_the_one_before_the_last_evaluation(perform, stops):
    """The evaluation of step 198 ends at the last one; that of the last weights takes longer than checkpoints wait."""
    judged = []

    def judge(version):
        return None if stops and len(set(judged)) > 1 else (1.0, 2.0)

    def noted(version):
        judged.append(version)
        return judge(version)

    _, events, _ = perform(noted, stop=lambda backend: backend.now > 400, evaluate_every=198, checkpoint_every=200)
    assert [event.env_steps for event in of_kind(events, Saved)] == [200, 200]


def test_a_run_resumed_from_the_checkpoint_before_its_last_evaluation_evaluates_and_ends(perform):
    backends = []

    def judge(version):
        return None if backends[0].saves == 4 else (1.0, 2.0)

    _, _, end = perform(
        judge, script=lambda backend: backends or backends.append(backend), stop=lambda backend: backend.now > 400
    )
    saved = checkpoints.load(end.checkpoint)
    env_steps, version = saved["env_steps"], saved["weights"]["version"]
    _, events, result = perform(lambda version: (3.0, 4.0), resume=end.checkpoint)
    assert of_kind(events, Evaluated)[-1].point.mean_return == 3.0
    assert result.evaluation.mean_return == 4.0
    state = checkpoints.load(of_kind(events, Saved)[-1].path)
    assert result.env_steps == env_steps, "no actor acts any more"
    assert result.weights.version == version, "nor does the learner learn"
    assert state["result"]["returns"] == [4.0]
    assert state["next_evaluation"] > state["env_steps"] < state["next_checkpoint"]


def test_a_role_that_does_not_report_is_reported_and_not_that_training_waits_for_it(perform):
    """The learner makes an update of a minute; it has reported last after the last step, and roles are looked at each
    second."""

    def script(backend):
        backend.now -= 0.75
        if backend.now > 50:
            backend.awaiting |= {"learner", *map(str, backend.steps)}
        if backend.now > 50.5:
            backend.ended |= {name for name in backend.versions if name not in backend.ended}

    _, events, _ = perform(
        lambda version: (1.0, 2.0), script=script, stop=lambda backend: backend.now > 100, max_env_steps=10**6
    )
    assert {event.role for event in of_kind(events, RoleAwaited)} == {"learner"}
    assert of_kind(events, TrainingWaits) == []


def test_weights_that_are_not_published_are_an_event_and_training_continues(perform, monkeypatch):
    listen = SimulatedRoles.listen

    def full(backend, timeout):
        reports = listen(backend, timeout)
        problem = "No space left on device" if backend.now == 9 else ""
        return [
            (name, dataclasses.replace(one, unpublished=problem) if isinstance(one, LearnerReport) else one)
            for name, one in reports
        ]

    monkeypatch.setattr(SimulatedRoles, "listen", full)
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

    backend, events, result = perform(judge)
    assert [version for version, _ in backend.judged][:2] == [lucky[0], lucky[0] + 1]
    assert of_kind(events, Evaluated)[0].point.mean_return == 7.0
    assert (result.confirmed, result.env_steps >= 200) == (False, True)


def test_a_run_with_confirmed_weights_ends_with_them_and_evaluates_them_once(perform):
    backend, _, result = perform(lambda version: (100.0 + version, 200.0 + version))
    assert result.confirmed
    first, second = backend.judged
    assert first[0] + 1 == second[0] == result.weights.version
    assert result.evaluation.mean_return == 200.0 + result.weights.version


def test_the_best_policy_has_the_weights_that_were_evaluated_last(perform, tmp_path):
    """The learner continued during the first evaluation; the newer weights that it holds are the point of the curve."""
    backend, events, _ = perform(lambda version: (100.0 + version, 200.0 + version), best_in=tmp_path)
    (first, _), (second, _) = backend.judged
    (event,) = of_kind(events, Evaluated)
    assert first < second
    assert event.best.mean_return == 100.0 + second
    assert load_policy(event.best.path).run.updates == second


def test_the_result_is_of_the_last_weights_and_not_of_earlier_evaluations(perform):
    backend, events, result = perform(lambda version: (version / 100, 50 + version / 100))
    assert backend.judged[-1] == (result.weights.version, True)
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
    backend, events, result = perform(lambda version: (1.0, 1.0), agent=gorila, config=config, folder=None)
    assert result.learner["updates"] == backend.version
    assert all(event.updates <= backend.version for event in of_kind(events, Progress))


def await_from(*times):
    """A backend's wait for the roles of each time, which comes with the turns: `(time, roles)`."""

    def awaits(backend):
        for since, roles in times:
            if backend.now == since:
                backend.awaiting = set(roles)
        return backend.now > 60

    return awaits


ALL = ("actor 0", "actor 1", "learner")


def test_actors_that_await_weights_from_a_learner_that_awaits_their_batch_act_again_every_two_seconds(perform):
    waits = await_from((20, ALL), (27, ()))
    backend, _, end = perform(lambda version: (0.0, 0.0), agent=ppo, stop=waits, max_env_steps=10**6)
    assert isinstance(end, StoppedError)
    first = backend.acts_again[0][0]
    assert 22 <= first <= 23
    assert backend.acts_again == [(first + 3 * i, actor) for i in range(2) for actor in ("actor 0", "actor 1")]


@pytest.mark.parametrize("missing", ALL)
def test_they_do_not_while_one_of_them_is_at_work(perform, missing):
    waits = await_from((20, set(ALL) - {missing}))
    backend, _, _ = perform(lambda version: (0.0, 0.0), agent=ppo, stop=waits, max_env_steps=10**6)
    assert backend.acts_again == []


def test_a_short_wait_for_each_other_is_none(perform):
    """The last unroll is on its way, or the weights are."""
    waits = await_from((20, ALL), (21, ()), (22, ALL), (23, ()))
    backend, _, _ = perform(lambda version: (0.0, 0.0), agent=ppo, stop=waits, max_env_steps=10**6)
    assert backend.acts_again == []


def test_a_role_that_has_not_reported_again_is_at_work():
    lost = LostUnrolls()
    found = [lost.found([RoleWait(True, min(now, 3.0)), RoleWait(True, now)]) for now in (3.0, 4.0, 9.0)]
    assert found == [False] * 3, "the first one is in a long step"
    assert lost.found([RoleWait(True, 9.5), RoleWait(True, 9.0)])
    assert not lost.found([RoleWait(True, 9.5), RoleWait(True, 10.0)]), "the time begins again"


@pytest.mark.parametrize(("kind", "index"), [("actor", 1), ("learner", 0)])
def test_a_restarted_role_does_not_wait_until_it_reports_that(kind, index):
    latest, name = LatestReports(), RoleName(kind, index)
    assert not latest.waits(name), "it has not started yet"
    latest.acted[1] = ActorReport(8, 0, {}, awaits_weights=True)
    latest.learnt[0] = LearnerReport(0, {}, {}, awaits_batch=True)
    assert latest.waits(name)
    latest.forget_wait(name)
    assert not latest.waits(name)
