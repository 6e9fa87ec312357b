"""Agents of other packages: by entry point, and by module and attribute."""

import dataclasses
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.agents.built_in import AGENTS

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


def test_agents_are_listed_by_the_actions_that_they_take():
    assert {name: agents.find(name).actions for name in agents.BUILT_IN} == AGENTS
    assert agents.names("continuous") == ["apex-dpg", "ddpg", "td3", "sac", "ppo", "iql", "cql-sac", "d4pg"]


@pytest.mark.usefixtures("mine")
def test_agents_of_other_packages_are_listed_last_and_take_no_name_of_a_built_in_one():
    assert agents.names() == [*agents.BUILT_IN, "broken", "mine-own"]
    assert agents.find("dqn").name == "dqn"
    with pytest.raises(
        agents.UnknownAgentError,
        match=r"no agent 'mine-owm'; did you mean mine-own.*\? An agent of your own is named as module:agent",
    ):
        agents.find("mine-owm")


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "no_such_module:agent",
            "cannot be imported: No module named 'no_such_module': install it, or add its folder to PYTHONPATH$",
        ),
        ("an_agent_of_mine:other", "cannot be imported: .* has no attribute 'other'"),
        ("an_agent_of_mine:", "cannot be imported: .* has no attribute ''"),
        (":agent", "cannot be imported: .*Empty module name"),
        ("an_agent_of_mine:number", "is a int, and must be a reverie.agents.agent.Agent"),
        ("broken", "is a int, and must be a reverie.agents.agent.Agent"),
    ],
)
def test_an_object_that_is_not_an_agent_is_refused_by_its_given_name(name, words):
    with pytest.raises(agents.AgentError, match=rf"agent '{name}' {words}"):
        agents.find(name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f(:\n", r"SyntaxError: .*a_broken_agent.py, line 1\)"),
        ("raise RuntimeError('boom')\n", r"RuntimeError: boom \(.*a_broken_agent.py, line 1\)"),
        ("agent = 1 / 0\n", r"ZeroDivisionError: division by zero \(.*a_broken_agent.py, line 1\)"),
    ],
)
def test_a_module_of_an_agent_that_raises_is_named_with_file_and_line(tmp_path, monkeypatch, text, words):
    (tmp_path / "a_broken_agent.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(agents.AgentError, match=f"cannot be imported: {words}$"):
        agents.find("a_broken_agent:agent")


@pytest.mark.parametrize("setting", ["wrappers", "network"])
def test_a_module_of_a_wrapper_or_of_layers_that_raises_is_named_with_file_and_line(tmp_path, monkeypatch, setting):
    from reverie.agents.env_settings import EnvSettings
    from reverie.runners import plan

    (tmp_path / "a_broken_part.py").write_text("\nraise RuntimeError('boom')\n")
    monkeypatch.syspath_prepend(tmp_path)
    named = ["a_broken_part:made"] if setting == "wrappers" else "a_broken_part:made"
    with pytest.raises(ValueError, match=r"cannot be imported: RuntimeError: boom \(.*a_broken_part.py, line 2\)"):
        plan(agents.find("dqn"), "CartPole-v1", environment=EnvSettings(**{setting: named}))


def test_a_part_of_the_program_itself_is_warned_of_and_named_where_it_is_missing(monkeypatch):
    from reverie.agents.env_settings import EnvSettings
    from reverie.agents.named_parts import PartError, resolve

    def scaled(env):
        return env

    monkeypatch.setattr(scaled, "__module__", "__main__")
    monkeypatch.setattr(scaled, "__qualname__", "scaled")
    monkeypatch.setattr(sys.modules["__main__"], "scaled", scaled, raising=False)
    words = "scaled is defined in the program itself, .*: define it in a module"
    with pytest.warns(UserWarning, match=words) as warned:
        assert EnvSettings(wrappers=(scaled,)).wrappers == ("__main__:scaled",)
    assert [one.filename for one in warned] == [__file__], "the line that named it"
    with pytest.warns(UserWarning, match=words) as warned:
        assert dataclasses.replace(EnvSettings(), wrappers=(scaled,)).wrappers == ("__main__:scaled",)
    assert [one.filename for one in warned] == [__file__], "and not the one of the standard library between"
    with ThreadPoolExecutor(1) as pool, pytest.warns(UserWarning, match=words) as warned:
        pool.submit(EnvSettings, wrappers=(scaled,)).result()
    assert Path(warned[0].filename).parent.name == "futures", "a thread that begins here has no line of the program"
    monkeypatch.delattr(sys.modules["__main__"], "scaled")
    with pytest.raises(PartError, match="defined in the program that named it: define it in a module of its own"):
        resolve("__main__:scaled")
