import contextlib
import dataclasses
import io

import numpy as np
import pytest

pytest.importorskip("torch")
console = pytest.importorskip("rich.console")

from reverie.agents.core import Weights  # noqa: E402
from reverie.agents.dqn import agent as dqn  # noqa: E402
from reverie.cli import report  # noqa: E402
from reverie.runners import Evaluation, Progress, Result, Started, plan, train  # noqa: E402

EVENT = Progress(
    env_steps=25_000,
    updates=500,
    seconds=50.0,
    training_return=12.5,
    learner={"age_in_updates": 80.0},
    samples_per_insert=31.5,
)


def shown(*events):
    started = Started(plan(dqn, "CartPole-v1"))
    progress = report.ProgressView(to_stderr=False, quiet=True)
    for event in (started, *events):
        progress(event)
    view = progress._view(events[-1], started)
    text = io.StringIO()
    console.Console(file=text, width=160).print(view)
    return text.getvalue()


def test_the_live_view_shows_steps_rates_the_replay_ratio_the_age_and_the_time_left():
    text = shown(EVENT)
    for words in (
        "25,000 of at most 100,000, 500/s",
        "500, 10/s, 1,280 trained samples/s; its batches are 80 updates old",  # batches of 128
        "samples per insert  31.50",
        "12.5, exploring",
        "time 50.0 s",
    ):
        assert " ".join(words.split()) in " ".join(text.split())
    assert "behind the learner" not in text


def at(env_steps, seconds):
    return dataclasses.replace(EVENT, env_steps=env_steps, seconds=seconds)


def test_the_time_left_is_by_the_rate_since_the_first_steps_and_not_shown_before():
    assert "left" not in shown(at(0, 0.0))
    assert "left" not in shown(at(0, 0.0), at(0, 90.0))
    assert "left" not in shown(at(0, 90.0), at(10, 100.0))
    # 30,000 steps in a minute: the 100 seconds before the first of them do not count.
    assert "161.0 s, at most 2 min 20 s left" in shown(at(0, 90.0), at(10, 101.0), at(30_010, 161.0))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (60, "1 min 0 s"),
        (3_599, "59 min 59 s"),
        (5_400, "1 h 30 min"),
        (180_000, "2 d 2 h"),
    ],
)
def test_a_duration_has_two_units(seconds, text):
    assert report.duration(seconds) == text


def result_of(runner, seconds, activities):
    run = dataclasses.replace(plan(dqn, "CartPole-v1"), runner=runner)
    evaluation = Evaluation((1,), (9.0,))
    return Result(
        run, 100, seconds, False, evaluation, (), {}, {}, activities, Weights(1, np.zeros(1, np.float32)), dqn
    )


def test_time_shares_are_of_elapsed_time_in_one_process_and_of_the_reported_sum_in_several():
    here = report._time_rows(result_of("local", 10.0, {"act": 2.0, "learn": 5.0}))
    assert here == [("learn", 5.0, 0.5), ("act", 2.0, 0.2), ("other", 3.0, 0.3), ("total", 10.0, None)]
    there = report._time_rows(result_of("process", 10.0, {"act": 30.0, "learn": 10.0}))
    assert there[:2] == [("act", 30.0, 0.75), ("learn", 10.0, 0.25)]
    assert there[2:] == [("sum over all processes", 40.0, None), ("elapsed", 10.0, None)]


def test_the_policy_lag_is_shown_if_there_is_one():
    assert "7.5 updates behind the learner" in shown(dataclasses.replace(EVENT, policy_lag=7.5))


def test_the_report_of_a_run_without_an_update_notes_that(tmp_path):
    settings = {"evaluate_every": 100, "screening_episodes": 1, "confirmation_episodes": 1, "learning_starts": 90}
    words = "environment steps, with no update: the weights are those that it began with"
    for steps in (80, 150):
        result = train("dqn", "CartPole-v1", max_env_steps=steps, **settings)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            report.show(result, "curve.png", to_stderr=False, quiet=True)
        assert (words in " ".join(printed.getvalue().split())) == (steps == 80)
