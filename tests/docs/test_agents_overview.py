"""The overview of the agents lists the presets and the modules that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from reverie.agents import BUILT_IN, find
from reverie.agents.preset_choice import environment_of

AGENTS = Path(__file__).resolve().parents[2] / "python" / "reverie" / "agents"


def listed_presets() -> dict[str, set[str]]:
    """The environments of each agent, as the overview's table has them."""
    found: dict[str, set[str]] = {}
    agent = ""
    for line in (AGENTS / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != 7 or cells[1] in ("agent", "---"):
            continue
        if named := re.match(r"\[`(\w+)`\]", cells[1]):
            agent = named[1].replace("_", "-")
        found.setdefault(agent, set()).add(cells[4].partition(",")[0])
    return found


def presets_of(agent: str) -> set[str]:
    """The environments with a preset of their own, those without velocities, and the defaults, in the table's words."""
    folder = find(agent).presets
    found = {environment_of(path) for path in folder.glob("*.toml")}
    found |= {f"{environment_of(path)} without velocities" for path in folder.glob("no-velocities/*.toml")}
    return found | ({"defaults for others"} if (folder / "defaults").is_dir() else set())


def test_the_table_of_agents_has_a_line_for_each_preset() -> None:
    assert listed_presets() == {agent: presets_of(agent) for agent in BUILT_IN}


def test_the_list_next_to_the_folders_names_each_module() -> None:
    text = (AGENTS / "README.md").read_text().partition("Next to the folders:")[2].partition("A new agent is")[0]
    named = set(re.findall(r"`(\w+\.py)`", text))
    assert named == {path.name for path in AGENTS.glob("*.py")} - {"__init__.py"}
