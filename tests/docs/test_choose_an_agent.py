"""The table of docs/guides/choose-an-agent.md is that of the agents' own properties."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

from reverie import agents, selectors
from reverie.agents.agent import Agent
from reverie.agents.environments import describe
from reverie.sharding import shard_table

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guides" / "choose-an-agent.md"
ENVIRONMENTS = {"discrete": "CartPole-v1", "continuous": "Pendulum-v1", "any": "CartPole-v1"}
HEAD = [
    "agent",
    "actions",
    "vectors of choices",
    "memory",
    "data set",
    "goals",
    "experience",
    "several servers",
    "GPU",
]


def rows() -> dict[str, list[str]]:
    """The cells of each agent's row, by its name."""
    lines = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line] for line in lines if len(line) == len(HEAD)]
    assert cells[0] == HEAD
    return {cell[0]: cell[1:] for cell in cells[2:]}


def setting(fields: dict[str, Any], name: str) -> str:
    return f"`{name}`" if name in fields else "-"


def of_memory(fields: dict[str, Any]) -> str:
    if "lstm_units" not in fields:
        return "-"
    return "`lstm_units`" if fields["lstm_units"] == 0 else "LSTM"


def of_experience(table: Any, fields: dict[str, Any]) -> str:
    if table.max_times_sampled == 1:
        return "queue"
    if "prioritized" in fields:
        return "`prioritized`"
    return "priorities" if isinstance(table.sampler, selectors.Prioritized) else "uniform"


def is_sharded(table: Any) -> bool:
    try:
        shard_table(table, 2)
    except ValueError:
        return False
    return True


def derived(agent: Agent) -> list[str]:
    """The expected cells of an agent's row."""
    fields = {field.name: field.default for field in dataclasses.fields(agent.config)}
    env_id = ENVIRONMENTS[agent.actions]
    (table,) = agent.make_tables(describe(env_id), agent.load_preset(env_id).config, seed=0)
    assert agent.any_space, "the first sentence of the page says that all of them play any observations"
    choices = "parts" if agent.factored else "combinations"
    return [
        {"any": "both"}.get(agent.actions, agent.actions),
        "-" if agent.actions == "continuous" else choices,
        of_memory(fields),
        setting(fields, "dataset"),
        setting(fields, "her"),
        of_experience(table, fields),
        "yes" if is_sharded(table) else "-",
        "yes" if "cuda" in agent.devices else "-",
    ]


def test_the_table_has_the_properties_of_each_agent() -> None:
    linked = {
        name: f"[`{name}`](../../python/reverie/agents/{name.replace('-', '_')}/README.md)" for name in agents.BUILT_IN
    }
    assert rows() == {linked[name]: derived(agents.find(name)) for name in agents.BUILT_IN}


@pytest.mark.parametrize("page", ["docs/guides/training.md", "python/reverie/agents/README.md"])
def test_sentences_about_gpus_name_the_agents_that_compute_on_one(page: str) -> None:
    (named,) = re.findall(r"On a GPU only (.+?) compute", (ROOT / page).read_text().replace("\n", " "))
    able = {name for name in agents.BUILT_IN if "cuda" in agents.find(name).devices}
    assert set(re.findall(r"`([a-z0-9-]+)`", named)) == able


def test_the_agents_to_begin_with_exist_and_have_what_their_task_needs() -> None:
    advice = PAGE.read_text().partition("## Which one to begin with")[2]
    named = set(re.findall(r"`([a-z0-9-]+)`", advice.partition("```")[0]))
    assert named <= {*agents.BUILT_IN, "her"}
    counts = {name: len(list(agents.find(name).presets.glob("*.toml"))) for name in agents.BUILT_IN}
    assert counts["apex-dqn"] == 5 == max(counts.values())
