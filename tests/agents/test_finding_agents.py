"""Agents of other packages: by entry point, and by module and attribute."""

import pytest

pytest.importorskip("torch")

from reverie import agents

MINE = """
import dataclasses
from reverie.agents.dqn import agent as dqn

agent = dataclasses.replace(dqn, name="mine-own")
number = 3
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module with an agent, and a package that lists it, and another under the name of a built-in one."""
    (tmp_path / "an_agent_of_mine.py").write_text(MINE)
    installed = tmp_path / "mine-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    names = "mine-own = an_agent_of_mine:agent\ndqn = an_agent_of_mine:agent\nbroken = an_agent_of_mine:number\n"
    (installed / "entry_points.txt").write_text(f"[reverie.agents]\n{names}")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize("name", ["an_agent_of_mine:agent", "mine-own", "mine_own"])
def test_an_agent_of_another_package_is_found_by_its_module_and_by_its_entry_point(name):
    assert agents.find(name).name == "mine-own"


@pytest.mark.usefixtures("mine")
def test_agents_of_other_packages_are_listed_last_and_take_no_name_of_a_built_in_one():
    assert agents.names() == [*agents.BUILT_IN, "broken", "mine-own"]
    assert agents.find("dqn").name == "dqn"
    with pytest.raises(agents.UnknownAgentError, match="no agent 'mine-owm'; did you mean mine-own"):
        agents.find("mine-owm")


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module:agent", "cannot be imported from no_such_module:agent: No module named"),
        ("an_agent_of_mine:other", "cannot be imported from an_agent_of_mine:other: .* has no attribute 'other'"),
        ("an_agent_of_mine:", "cannot be imported from an_agent_of_mine:"),
        (":agent", "cannot be imported from :agent"),
        ("an_agent_of_mine:number", "is a int, and must be a reverie.agents.agent.Agent"),
        ("broken", "is a int, and must be a reverie.agents.agent.Agent"),
    ],
)
def test_an_object_that_is_not_an_agent_is_refused_by_its_given_name(name, words):
    with pytest.raises(agents.AgentError, match=rf"agent '{name}' {words}"):
        agents.find(name)
