"""The policy of a run's best evaluation."""

import dataclasses
import pickle

import numpy as np
import pytest

pytest.importorskip("torch")

import reverie
from reverie import agents
from reverie.agents.core import Weights
from reverie.runners import Evaluated, PolicyNotSaved, Saved, Started, checkpoints, plan, train
from reverie.runners.checkpoints import BestKeeper, best_policies
from reverie.runners.checkpoints.best_policies import read_best
from reverie.runners.checkpoints.checkpoint_files import BEST
from reverie.runners.reports.evaluation import Evaluator, screening_seeds
from reverie.runners.reports.events import CurvePoint

SHORT = {
    "hidden": [16],
    "batch_size": 16,
    "learning_starts": 50,
    "max_env_steps": 600,
    "evaluate_every": 100,
    "checkpoint_every": 300,
    "screening_episodes": 3,
    "confirmation_episodes": 2,
    "target_return": None,
}
DQN = agents.find("dqn")


@pytest.fixture
def keeper(tmp_path):
    topology = plan(DQN, "CartPole-v1")

    def make(folder=tmp_path, resume=None, **options):
        found = BestKeeper(folder, DQN, "dqn", topology, **options)
        if resume is not None:
            found.resume(folder / "checkpoints" / f"{resume:012d}", resume)
        found.on_event(Started(topology, resume or 0))
        return found

    return make


def weights(version):
    policy = DQN.make_policy(plan(DQN, "CartPole-v1").env, DQN.load_preset("CartPole-v1").config)
    size = sum(one.numel() for one in policy.module.parameters())
    return Weights(version, np.full(size, version, np.float32))


def evaluated(keeper, steps, mean):
    return keeper.keep(Evaluated(CurvePoint(steps, 1.0, mean), None), weights(steps))


@pytest.mark.parametrize("runner", ["local", pytest.param("process", marks=pytest.mark.long)])
def test_the_file_has_the_weights_that_were_evaluated_once_the_event_comes(tmp_path, runner):
    played, evaluator = [], Evaluator("CartPole-v1", 3)

    def on_event(event):
        if not isinstance(event, Evaluated):
            return
        means = [point.mean_return for point in (*played, event.point)]
        played.append(event.point)
        assert (event.best is not None) == (event.point.mean_return == max(means))
        policy = reverie.load_policy(tmp_path / "best.safetensors")
        if event.best is not None:
            assert (event.best.env_steps, event.best.mean_return) == (event.point.env_steps, max(means))
        seeds = screening_seeds(3)
        assert evaluator.evaluate(policy, seeds).mean_return == max(means), "the very weights"
        assert (policy.run.env_steps, policy.path) == (
            next(point.env_steps for point in reversed(played) if point.mean_return == max(means)),
            tmp_path / "best.safetensors",
        )

    result = train("dqn", "CartPole-v1", folder=tmp_path, runner=runner, on_event=on_event, **SHORT)
    assert len(played) >= 6
    assert result.best.mean_return == max(point.mean_return for point in result.curve)
    assert result.best_policy.run.env_steps == result.best.env_steps
    assert pickle.loads(pickle.dumps(result)).best == result.best
    again = train("dqn", "CartPole-v1", folder=tmp_path, resume=True, **SHORT)
    assert again.best == result.best


def test_the_later_of_equal_evaluations_is_kept_and_lower_ones_and_nan_are_not(keeper, tmp_path):
    run = keeper()
    for steps, mean, kept in ((1, float("nan"), 0), (2, 5.0, 2), (3, 4.0, 2), (4, 5.0, 4), (5, float("nan"), 4)):
        (event,) = evaluated(run, steps, mean)
        assert (event.best is not None) == (kept == steps)
        assert (0 if run.best is None else run.best.env_steps) == kept
    policy = reverie.load_policy(tmp_path / "best.safetensors")
    assert policy.run.updates == 4
    assert {float(one.max()) for one in policy.module.parameters()} == {4.0}


def test_a_resumed_run_replaces_only_a_policy_that_is_not_better(keeper, tmp_path):
    evaluated(keeper(), 100, 50.0)
    resumed = keeper(resume=80)  # a kill has undone the steps of the evaluation; its policy is there
    evaluated(resumed, 100, 49.0)
    assert resumed.best == best_policies.read_best(tmp_path / "best.safetensors")
    assert resumed.best.mean_return == 50.0
    evaluated(resumed, 200, 51.0)
    assert best_policies.read_best(tmp_path / "best.safetensors").env_steps == 200


@pytest.mark.parametrize(("resume", "kept"), [(600, False), (700, True)])
def test_a_run_that_resumes_an_older_checkpoint_leaves_the_best_policy_of_the_course_after_it(
    keeper, tmp_path, resume, kept
):
    for steps in (600, 700):
        checkpoints.save(tmp_path / "checkpoints", steps, {"env_steps": steps}, "")
    evaluated(keeper(), 720, 50.0)  # and a kill before the next checkpoint
    resumed = keeper(resume=resume)
    assert (resumed.best is not None) == kept == (tmp_path / "best.safetensors").exists()
    evaluated(resumed, 800, 40.0)
    assert (resumed.best.env_steps, resumed.best.mean_return) == ((720, 50.0) if kept else (800, 40.0))


def test_the_best_policy_of_a_course_stays_as_long_as_its_checkpoints(keeper, tmp_path):
    """A run leaves a course by resuming an older checkpoint, and is killed before it has written one of its own."""
    for steps in (600, 700):
        checkpoints.save(tmp_path / "checkpoints", steps, {"env_steps": steps}, "")
    evaluated(keeper(), 720, 50.0)
    for mean in (40.0, 60.0):
        evaluated(keeper(resume=600), 650, mean)
        evaluated(keeper(resume=600), 640, mean)
        assert best_policies.read_best(tmp_path / "best.safetensors").env_steps == 640
        resumed = keeper(resume=700)
        assert (resumed.best.env_steps, resumed.best.mean_return) == (720, 50.0)
        assert best_policies.read_best(tmp_path / "best.safetensors") == resumed.best
    left = keeper(resume=600)
    evaluated(left, 650, 40.0)
    left.on_event(Saved(660, tmp_path, "the other checkpoints are not removed"))
    assert keeper(resume=700).best.mean_return == 50.0
    left = keeper(resume=600)
    evaluated(left, 650, 40.0)
    left.on_event(Saved(660, tmp_path))
    assert (keeper(resume=700).best.mean_return, list(tmp_path.glob(".aside-*"))) == (40.0, [])


def test_a_finished_run_has_its_best_policy_again_if_another_course_had_begun(tmp_path):
    first = train("dqn", "CartPole-v1", folder=tmp_path, **SHORT)
    path = tmp_path / "best.safetensors"
    path.rename(tmp_path / ".aside-best.safetensors")
    path.write_bytes(b"of the other course, which has no checkpoint")
    again = train("dqn", "CartPole-v1", folder=tmp_path, resume=True, **SHORT)
    assert (again.best, again.best_policy.run) == (first.best, first.best_policy.run)
    assert not list(tmp_path.glob(".aside-*"))


def test_a_run_that_begins_does_not_take_the_policy_of_an_earlier_one(keeper, tmp_path):
    evaluated(keeper(), 100, 50.0)
    begun = keeper()
    assert not (tmp_path / "best.safetensors").exists()
    evaluated(begun, 100, 1.0)
    assert begun.best.mean_return == 1.0


def test_a_run_that_begins_again_keeps_the_policy_of_its_first_attempt_until_it_has_one(keeper, tmp_path):
    first = keeper()
    evaluated(first, 100, 50.0)
    begun = keeper(begins_again=True)
    assert begun.best is None, "another run's evaluations"
    assert read_best(tmp_path / BEST) == first.best
    evaluated(begun, 100, 1.0)
    assert read_best(tmp_path / BEST).mean_return == 1.0


def test_a_run_is_replaced_with_its_best_policy_and_resumed_with_it(tmp_path):
    first = train("dqn", "CartPole-v1", folder=tmp_path, **SHORT)
    longer = {**SHORT, "max_env_steps": 700}
    further = train("dqn", "CartPole-v1", folder=tmp_path, resume=True, **longer)
    assert further.best.mean_return == max(point.mean_return for point in further.curve)
    assert further.best.mean_return >= first.best.mean_return
    short = {**SHORT, "max_env_steps": 50, "evaluate_every": 1_000}
    replaced = train("dqn", "CartPole-v1", folder=tmp_path, overwrite=True, **short)
    assert replaced.best.mean_return == replaced.curve[-1].mean_return


def test_a_run_that_continues_in_another_folder_takes_a_policy_from_before_its_checkpoint(tmp_path):
    train("dqn", "CartPole-v1", folder=tmp_path / "a", **SHORT)
    path = tmp_path / "a" / "best.safetensors"
    best = best_policies.read_best(path)
    seen = []
    further = {**SHORT, "max_env_steps": 650, "evaluate_every": 10_000}
    newest = checkpoints.find(tmp_path / "a")

    def copied(event):
        if isinstance(event, Started):
            seen.append((tmp_path / "b" / "best.safetensors").read_bytes())

    train("dqn", "CartPole-v1", folder=tmp_path / "b", resume=newest, on_event=copied, **further)
    assert seen == [path.read_bytes()]
    run = BestKeeper(tmp_path / "c", DQN, "dqn", plan(DQN, "CartPole-v1"))
    run.resume(newest, best.env_steps - 1)
    assert run.best is None, "it is of steps that this run has not made"


def test_a_full_disk_keeps_the_policy_before_is_reported_and_ends_no_run(tmp_path, monkeypatch, caplog):
    write, events, failing = best_policies.policy_files.write, [], [False]

    def full(*arguments):
        if failing[0]:
            raise OSError(28, "No space left on device")
        return write(*arguments)

    def on_event(event):
        events.append(event)
        failing[0] = isinstance(event, Started) or (failing[0] and not isinstance(event, Evaluated))

    monkeypatch.setattr(best_policies.policy_files, "write", full)
    result = train("dqn", "CartPole-v1", folder=tmp_path, on_event=on_event, **SHORT)
    (problem,) = [event for event in events if isinstance(event, PolicyNotSaved)]
    assert (problem.path, problem.reason) == (tmp_path / "best.safetensors", "No space left on device")
    words = f"best.safetensors lacks the best policy, of {problem.env_steps:,} steps: No space left on device"
    assert words in caplog.text
    assert [event.best is None for event in events if isinstance(event, Evaluated)][:2] == [True, False]
    assert result.best is not None


def test_a_damaged_file_is_reported_and_replaced(keeper, tmp_path, caplog):
    (tmp_path / "best.safetensors").write_bytes(b"damaged")
    resumed = keeper(resume=80)
    assert "is not the best policy of a run, and is replaced by the next one" in caplog.text
    evaluated(resumed, 100, 1.0)
    assert resumed.best.mean_return == 1.0


def test_a_run_without_a_folder_keeps_no_policy():
    events = []
    short = {name: value for name, value in SHORT.items() if name != "checkpoint_every"} | {"max_env_steps": 100}
    result = train("dqn", "CartPole-v1", on_event=events.append, **short)
    assert (result.best, result.best_policy) == (None, None)
    assert not [event for event in events if isinstance(event, Saved)]
    assert {event.best for event in events if isinstance(event, Evaluated)} == {None}
    assert dataclasses.replace(result, best=None).best_policy is None
