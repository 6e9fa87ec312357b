"""docs/guides/logs.md names every event of a run's log with its fields, and every metric of every learner."""

from __future__ import annotations

import dataclasses
import re
import typing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

from reverie import agents
from reverie.agents.core import CompileNote, EnvironmentCrash
from reverie.runners import train
from reverie.runners.reports import events
from reverie.runners.reports.logs import as_line

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "logs.md"
EVERYWHERE = {"event", "env_steps"}


def sections() -> list[str]:
    return PAGE.read_text().split("\n## ")


def lines_of_a_log() -> list[dict[str, Any]]:
    """A line of each kind."""
    preset = agents.find("dqn").load_preset("CartPole-v1")
    env = SimpleNamespace(env_id="CartPole-v1", settings=preset.environment)
    topology: Any = SimpleNamespace(agent="dqn", env=env, seed=0, run=preset.run, config=preset.config)
    result: Any = SimpleNamespace(
        env_steps=1,
        seconds=1.0,
        confirmed=True,
        evaluation=SimpleNamespace(mean_return=1.0, num_episodes=1, success_rate=None),
        activities={},
        replay={},
    )
    found: list[events.Event] = [
        events.Started(topology),
        events.Progress(1, 1, 1.0, None, {}, 1.0),
        events.Evaluated(events.CurvePoint(1, 1.0, 1.0), None),
        events.Saved(1, Path("a")),
        events.NotSaved(1, Path("a"), "full"),
        events.PolicyNotSaved(1, Path("a"), "full"),
        events.LogNotWritten(1, "tensorboard", "full"),
        events.WeightsNotPublished(1, "learner", "full"),
        events.RoleRestarted(1, "actor 1", "killed", "nothing", 1),
        events.ShardMoved(1, "shard 0", "a", "b", ()),
        events.RoleAwaited(1, "actor 1", 1.0, ""),
        events.TrainingWaits(1, 30.0, "its table is full", 300.0),
        events.UpdatesCompiled(1, CompileNote(1, 1.0, False)),
        events.UpdatesCompiled(1, CompileNote(1, 1.0, False, "no compiler")),
        events.EnvironmentRestarted(1, EnvironmentCrash("a", 0, 1, "error")),
        events.PageOpened(1, "http://localhost"),
        events.Finished(result),
    ]
    assert {type(event) for event in found} == set(typing.get_args(events.Event)), "an event of a new kind"
    return [*map(as_line, found), {"event": "not written", "env_steps": 1, "lines": 1}]


def test_the_page_names_each_event_with_all_of_its_fields() -> None:
    (table,) = [section for section in sections() if section.startswith("Events")]
    rows = dict(re.findall(r"^\| `([a-z_ ]+)` \| (.*) \|$", table, re.MULTILINE))
    lines = {line["event"]: line for line in lines_of_a_log()}
    fields = {line["event"]: set(line) - EVERYWHERE for line in lines.values()}
    assert lines.keys() <= rows.keys()
    same = rows["updates not compiled"].replace("the same", rows["updates compiled"])
    texts = {**rows, "updates not compiled": same}
    assert {name: [one for one in own if f"`{one}`" not in texts[name]] for name, own in fields.items()} == {
        name: [] for name in fields
    }
    assert [field for field in fields["progress"] if field not in rows and field != "seconds"] == []


SMALL = {"learning_starts": 8, "batch_size": 4, "samples_per_insert": 4.0, "unroll_length": 8, "minibatch_size": 8}
STEPS = 300


@pytest.mark.long
@pytest.mark.parametrize("name", agents.BUILT_IN)
def test_the_page_names_each_metric_of_the_learner_of_an_agent(name: str) -> None:
    (table,) = [section for section in sections() if section.startswith("Metrics of learners")]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", table, re.MULTILINE)
    agent = agents.find(name)
    env_id = "Pendulum-v1" if agent.actions == "continuous" else "CartPole-v1"
    preset = agent.load_preset(env_id)
    names = {field.name for field in dataclasses.fields(preset.config)}
    small = {one: value for one, value in SMALL.items() if one in names}
    run = dataclasses.replace(
        preset.run, max_env_steps=STEPS, evaluate_every=STEPS, screening_episodes=1, confirmation_episodes=1
    )
    result = train(agent, env_id, config=dataclasses.replace(preset.config, **small), run=run)
    assert result.learner["updates"] > 0
    unnamed = [
        metric
        for metric in result.learner
        if not any(f"`{metric}`" in metrics and may_have(of, name) for metrics, of in rows)
    ]
    assert unnamed == []


def may_have(of: str, name: str) -> bool:
    """Whether the cell of a metric's agents includes one."""
    if of.startswith("all"):
        return f"`{name}`" not in of
    return f"`{name}`" in of or "`prioritized`" in of
