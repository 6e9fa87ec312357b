"""A run that Python made is one of the command's, and the other way round."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")

from reverie.runners import train
from reverie.runners.reports import logs

TINY = {
    "hidden": [8],
    "batch_size": 8,
    "learning_starts": 50,
    "evaluate_every": 100,
    "screening_episodes": 1,
    "confirmation_episodes": 1,
    "learning_rate": 0.5,
    "max_env_steps": 150,
}
COMMAND = ("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "made")


def test_commands_take_a_run_that_python_made(reverie):
    first = train("dqn", "CartPole-v1", **TINY, folder="made")
    refused = reverie(*COMMAND)
    assert refused.exit_code == 2
    assert "made holds a run: continue it with --resume" in refused.stderr
    resumed = reverie(*COMMAND, "--resume", "--max-steps", 250)
    assert resumed.exit_code == 1, resumed.stderr
    assert f"resuming after {first.env_steps} environment steps" in resumed.stdout
    assert "learning_rate = 0.5" in Path("made/preset.toml").read_text()
    assert logs.read(Path("made")).env_steps[: len(first.curve)] == tuple(point.env_steps for point in first.curve)
    assert reverie("plot", "made", "--out", "plot.png").exit_code == 0
    played = reverie("eval", "made", "--episodes", 2, "--json")
    assert played.exit_code in (0, 1), played.stderr
    assert json.loads(played.stdout)["checkpoint"].startswith("made/checkpoints/")


@pytest.mark.long
def test_python_continues_a_run_of_the_command(reverie, here):
    before = logs.read(Path("here"))
    result = train("dqn", "CartPole-v1", folder="here", resume=True, max_env_steps=1_500)
    assert result.env_steps >= 1_500
    assert result.topology.config.hidden == (16,)
    after = logs.read(Path("here"))
    assert after.env_steps[: len(before.env_steps)] == before.env_steps
    assert len(after.env_steps) == len(result.curve)


def test_each_problem_is_printed_once_by_the_command(reverie, monkeypatch, caplog):
    from reverie.runners.checkpoints import checkpoint_files

    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_files, "_write", full)
    settings = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]
    ended = reverie(*COMMAND, *settings)
    assert ended.exit_code == 1, ended.stderr
    assert (ended.stdout + ended.stderr).count("No space left on device") == 2, (
        "before the last evaluation and after it"
    )
    assert caplog.records == []
