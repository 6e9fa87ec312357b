import json

import pytest

pytest.importorskip("torch")
testing = pytest.importorskip("typer.testing")

from reverie.cli.app import app  # noqa: E402

MINE = """
import dataclasses
from reverie.agents.dqn import agent as dqn

agent = dataclasses.replace(dqn, name="mine-own")
"""
SHORT = ["--env", "CartPole-v1", "--no-tensorboard", "--set", "max_env_steps=300", "--set", "evaluate_every=200"]
SHORT += ["--set", "screening_episodes=2", "--set", "confirmation_episodes=3"]


@pytest.fixture
def reverie(tmp_path, monkeypatch):
    """Runs `reverie` in a folder with a package's module."""
    (tmp_path / "a_package").mkdir()
    (tmp_path / "a_package" / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return lambda *arguments: testing.CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.mark.long
def test_an_agent_is_trained_by_its_module_and_evaluated_by_it(reverie, tmp_path):
    result = reverie("train", "a_package.mine:agent", *SHORT, "--json")
    assert result.exit_code == 1, result.stderr
    assert json.loads(result.stdout.splitlines()[-1])["agent"] == "mine-own"
    run = "runs/mine-own-CartPole-v1-seed-0"
    result = reverie("eval", run, "--episodes", 2, "--agent", "a_package.mine:agent", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1])["agent"] == "mine-own"
    result = reverie("eval", run, "--episodes", 2)
    assert result.exit_code == 2
    assert "is of the agent mine-own, which is neither an agent of Reverie nor one that" in result.stderr
    result = reverie("eval", run, "--episodes", 2, "--agent", "dqn")
    assert result.exit_code == 2
    assert "is of the agent mine-own, and dqn was named" in result.stderr
    best = f"{run}/best.safetensors"
    result = reverie("eval", best, "--episodes", 2)
    assert "is of the agent a_package.mine:agent, and a file imports no module by itself" in result.stderr
    assert reverie("eval", best, "--episodes", 2, "--agent", "a_package.mine:agent").exit_code == 0


@pytest.mark.long
def test_an_agent_is_trained_by_its_entry_point(reverie, tmp_path):
    installed = tmp_path / "mine-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[reverie.agents]\nmine-own = a_package.mine:agent\n")
    result = reverie("train", "mine-own", "--env", "CartPole-v1", "--dry-run", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["agent"] == "mine-own"


def test_a_module_without_an_agent_ends_the_command_in_one_line(reverie):
    result = reverie("train", "a_package.mine:nothing", "--env", "CartPole-v1")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("reverie: agent 'a_package.mine:nothing' cannot be imported:")
