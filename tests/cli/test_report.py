import dataclasses
import io

import pytest

pytest.importorskip("torch")
console = pytest.importorskip("rich.console")

from reverie.agents import dqn  # noqa: E402
from reverie.cli import report  # noqa: E402
from reverie.runners import Progress, Started, plan  # noqa: E402

EVENT = Progress(
    env_steps=25_000,
    updates=500,
    seconds=50.0,
    training_return=12.5,
    learner={"age_in_updates": 80.0},
    samples_per_insert=31.5,
)


def shown(event):
    topology = plan(dqn, "CartPole-v1")
    view = report.Progress(to_stderr=False)._view(event, Started(topology))
    text = io.StringIO()
    console.Console(file=text, width=160).print(view)
    return text.getvalue()


def test_the_live_view_tells_steps_rates_the_replay_ratio_the_age_and_the_time_to_go():
    text = shown(EVENT)
    for words in (
        "25,000 of at most 100,000, 500/s",
        "500, 10/s, 1,280 trained samples/s; what it learns from is 80 updates old",  # batches of 128
        "samples per insert  31.50",
        "12.5, exploring",
        "50.0 s, at most 150 s to go",
    ):
        assert " ".join(words.split()) in " ".join(text.split())
    assert "behind the learner" not in text


def test_the_lag_of_policies_is_told_where_there_is_one():
    assert "7.5 updates behind the learner" in shown(dataclasses.replace(EVENT, policy_lag=7.5))
