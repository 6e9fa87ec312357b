"""The exit codes and lines of runs that errors of agents and environments end."""

import warnings

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch")
typer = pytest.importorskip("typer")
testing = pytest.importorskip("typer.testing")

from reverie import runners  # noqa: E402
from reverie.agents.core import EnvironmentCrash, EnvironmentCrashedError  # noqa: E402
from reverie.agents.environments import UnknownEnvironmentError, UnsupportedEnvironmentError  # noqa: E402
from reverie.cli import common, exits  # noqa: E402
from reverie.cli.app import app  # noqa: E402
from reverie.errors import TrainingWarning  # noqa: E402
from reverie.integrations.datasets import DatasetError  # noqa: E402

CRASH = EnvironmentCrashedError(EnvironmentCrash("Mine-v0", 7, 4, "OSError: gone"), 1)


@pytest.mark.parametrize("role", [False, True])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CRASH, 3),
        (UnsupportedEnvironmentError("her is set, and Mine-v0 has no goals"), 2),
        (UnknownEnvironmentError("Mine-v0", "it is not registered", ()), 2),
        (DatasetError("mine.parquet of Mine-v0, episode 3: it has steps after the one that ended it"), 2),
    ],
)
def test_errors_of_environments_are_one_line_and_a_crash_has_a_code_of_its_own(error, code, role, tmp_path, capsys):
    if role:
        error = runners.RoleError("actor 0", type(error).__name__, str(error), "Traceback ...\n")
    with pytest.raises(typer.Exit) as ended, exits.run_errors_reported(tmp_path):
        raise error
    assert ended.value.exit_code == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("reverie: ")
    assert "Mine-v0" in line


def test_any_other_error_of_a_run_is_printed_with_its_place_and_has_the_code_of_a_crash(tmp_path, capsys):
    with pytest.raises(typer.Exit) as ended, exits.run_errors_reported(tmp_path):
        raise ZeroDivisionError("in a layer")
    assert ended.value.exit_code == 3
    printed = capsys.readouterr().err
    assert __file__ in printed
    assert printed.splitlines()[-1] == "ZeroDivisionError: in a layer"


def test_an_end_within_the_run_keeps_its_code(tmp_path):
    with pytest.raises(typer.Exit) as ended, exits.run_errors_reported(tmp_path):
        raise typer.Exit(1)
    assert ended.value.exit_code == 1


class OldInterface(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self):
        return np.zeros(2, np.float32)


def test_an_environment_of_the_old_interface_ends_the_command_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gymnasium.register("ReverieOld-v0", OldInterface)
    try:
        command = ["train", "dqn", "--env", "ReverieOld-v0", "--no-tensorboard", "--quiet", "--config", "CartPole-v1"]
        result = testing.CliRunner().invoke(app, command)
    finally:
        del gymnasium.registry["ReverieOld-v0"]
    assert result.exit_code == 2
    (line,) = [line for line in result.stderr.splitlines() if "takes" not in line or "reset of" in line]
    assert line.startswith("reverie: reset of ReverieOld-v0 takes no seed and options")


def test_the_help_of_commands_that_run_agents_names_every_code():
    for command in ("train", "demo"):
        text = " ".join(testing.CliRunner().invoke(app, [command, "--help"]).stdout.split())
        for words in ("1 training ended without reaching it", "3 an error ended the run", "130 interrupted"):
            assert words in text, command


def test_a_command_prints_training_warnings_in_one_line_and_others_as_python_does(capsys):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        common.print_training_warnings()
        warnings.warn(TrainingWarning("noisy_sigma is 1 and has no effect"), stacklevel=1)
        warnings.warn("of another library", stacklevel=1)
    assert [str(one.message) for one in caught] == ["of another library"]
    assert capsys.readouterr().err == "reverie: noisy_sigma is 1 and has no effect\n"
