"""docs/guides/atari.md names the agents that learn from lives, how they store frames, and what training needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.agents.cql.actor import Actor as CqlActor
from reverie.agents.env_actor import EnvActor
from reverie.agents.replay_actor import ReplayActor
from reverie.training import NEEDED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "atari.md"


def names(text: str) -> set[str]:
    return set(re.findall(r"`([a-z0-9-]+)`", text))


def classes() -> dict[str, type[EnvActor]]:
    """The classes of the actors of all agents that the page names."""
    (line,) = re.findall(r"play Atari games: (.*?)\.", PAGE.read_text(), re.DOTALL)
    made = {name: agents.find(name).make_actor for name in names(line)}
    return {name: CqlActor if name == "cql" else one for name, one in made.items()}  # type: ignore[misc]


def test_the_page_names_the_agents_that_learn_from_whole_games() -> None:
    (whole,) = re.findall(r"except with (.*?), which learns from whole games", PAGE.read_text())
    assert names(whole) == {name for name, one in classes().items() if not one.NEWEST_FRAMES}


def test_the_page_names_the_agents_that_store_each_frame_once() -> None:
    text = PAGE.read_text()
    (once,) = re.findall(r"\n(`.*?) store each frame once", text)
    (stacks,) = re.findall(r"(`[^.]*?) store the stack of four frames", text)
    assert names(once) == {name for name, one in classes().items() if issubclass(one, ReplayActor)}
    assert names(once) | names(stacks) == classes().keys()


def test_the_page_installs_every_package_that_training_needs() -> None:
    (line,) = re.findall(r"\npip install reverie-\S+\.whl (.*)", PAGE.read_text())
    assert set(NEEDED) <= {re.split("[>=]", word.strip('"'))[0] for word in line.split()}
