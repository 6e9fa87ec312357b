import dataclasses
import math

import pytest

pytest.importorskip("torch")

from reverie import Server, Table, agents
from reverie.runners import CurvePoint, Evaluated, Evaluation, Progress, Saved, Started, plan
from reverie.runners.reports.run_figures import MOST_POINTS, RunFigures, thinned


@pytest.fixture
def started():
    return Started(plan(agents.find("dqn"), "CartPole-v1", seed=-3))


def progress(seconds, **changes):
    return dataclasses.replace(Progress(40, 10, seconds, 12.5, {"loss": 1.0}, 8.0), **changes)


def evaluated(steps, mean, confirmed=None):
    confirmation = None if confirmed is None else Evaluation((1,), (confirmed,))
    return Evaluated(CurvePoint(steps, steps / 100, mean), confirmation)


def test_figures_have_what_the_events_have(started):
    figures = RunFigures()
    assert figures(started)["env_steps"] == 0
    figures(progress(1.0, activities={"act": 0.25, "learn": 0.5}, policy_lag=2.0, waits_for="actor 1"))
    newest = figures(evaluated(30, 9.0))
    assert newest["curve"] == [[30, 0.3, 9.0]]
    assert (newest["agent"], newest["env"], newest["seed"], newest["runner"]) == ("dqn", "CartPole-v1", -3, "local")
    assert (newest["env_steps"], newest["updates"], newest["seconds"]) == (40, 10, 1.0)
    assert (newest["policy_age_updates"], newest["waits_for"]) == (2.0, "actor 1")
    assert newest["activities"] == {"learn": 0.5, "act": 0.25}
    assert newest["target_return"] == started.topology.run.target_return
    assert not newest["confirmed"]


def test_progress_is_published_once_a_second_and_a_point_of_the_curve_at_once_with_the_newest_counts(started):
    figures = RunFigures()
    figures(started)
    given = [figures(progress(tenth / 10, env_steps=tenth)) for tenth in range(21)]
    assert [number for number, one in enumerate(given) if one is not None] == [0, 10, 20]
    assert figures(progress(2.5, env_steps=25)) is None
    assert figures(evaluated(25, 9.0))["env_steps"] == 25
    assert figures(Saved(25, None)) is None


def test_only_the_last_evaluation_confirms_a_target(started):
    figures, target = RunFigures(), started.topology.run.target_return
    figures(started)
    assert not figures(evaluated(10, target, confirmed=target - 1))["confirmed"]
    assert figures(evaluated(20, target, confirmed=target))["confirmed"]
    assert not figures(evaluated(30, 0.0))["confirmed"]


def test_a_resumed_run_begins_with_its_curve_and_its_steps(started):
    resumed = dataclasses.replace(started, env_steps=500, curve=(CurvePoint(400, 4.0, 20.0),))
    figures = RunFigures()
    newest = figures(resumed)
    assert (newest["env_steps"], newest["curve"]) == (500, [[400, 4.0, 20.0]])


@pytest.mark.parametrize("count", [0, 1, MOST_POINTS - 1, MOST_POINTS, 10 * MOST_POINTS + 1])
def test_a_long_curve_is_thinned_and_keeps_its_ends(count):
    curve = [CurvePoint(step, float(step), 0.0) for step in range(count)]
    kept = thinned(curve)
    assert len(kept) <= MOST_POINTS
    assert len(kept) > min(count - 1, MOST_POINTS // 2 - 1)
    assert kept[:1] + kept[-1:] == curve[:1] + curve[-1:]
    steps = [point.env_steps for point in kept]
    assert steps == sorted(set(steps))


@pytest.mark.long
def test_the_largest_figures_are_within_the_bounds_of_the_server(started):
    topology = dataclasses.replace(
        started.topology,
        agent="ü" * 5000,
        env=dataclasses.replace(started.topology.env, env_id="\ud800" + "x" * 5000),
    )
    figures = RunFigures()
    figures(dataclasses.replace(started, topology=topology))
    newest = None
    for step in range(5000):
        newest = figures(evaluated(10**12 + step, -math.pi * 1e100))
    assert figures(evaluated(10**13, math.nan))["curve"][-1][0] < 10**13, "no number"
    long = {f"activity {number} {'x' * 1000}": 1e9 / 3 for number in range(1000)}
    newest = figures(progress(1e9 / 3, training_return=math.inf, activities=long, waits_for="role " * 10_000))
    with Server([Table.queue("t", 1)], listen=False, http=0) as server:
        server.publish(newest)
