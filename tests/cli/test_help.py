"""`reverie --help`, and that of `train`, `eval` and `plot`."""

import re
from importlib.metadata import version

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")
testing = pytest.importorskip("typer.testing")
get_command = pytest.importorskip("typer.main").get_command

from reverie import agents  # noqa: E402
from reverie.cli import short_flags  # noqa: E402
from reverie.cli.app import app  # noqa: E402
from reverie.cli.train_flags import RESUME_MUST  # noqa: E402


def test_help_shows_first_commands_and_train_help_lists_the_agents(reverie):
    wide = {"env": {"COLUMNS": "200"}}
    first = testing.CliRunner(**wide).invoke(app, ["--help"]).stdout
    for words in ("reverie demo", "reverie train apex-dqn --env CartPole-v1", "reverie serve --port 8000"):
        assert words in first
    listed = " ".join(testing.CliRunner(**wide).invoke(app, ["train", "--help"]).stdout.split())
    assert all(name in listed for name in agents.names())
    assert reverie("--version").stdout == f"reverie {version('reverie')}\n"


def test_help_fits_a_terminal_of_80_columns_with_every_flag_and_value_whole(reverie):
    narrow = testing.CliRunner(env={"COLUMNS": "80"})
    for command in ("train", "serve", "eval", "plot", "demo"):
        shown = narrow.invoke(app, [command, "--help"]).stdout
        assert max(map(len, shown.splitlines())) <= 80
        assert "…" not in shown
        flags = [one.opts[0] for one in get_command(app).commands[command].params if one.opts[0].startswith("--")]
        flags = [flag for flag in flags if flag != RESUME_MUST]  # written --resume=must
        assert [flag for flag in flags if not re.search(rf"{flag}\b", shown)] == []
    assert "reverie[video]" in narrow.invoke(app, ["eval", "--help"]).stdout  # no markup of the terminal's


def test_the_flags_that_are_short_for_a_setting_stand_together_in_the_help():
    panels = {one.name: one.rich_help_panel for one in get_command(app).commands["train"].params if one.name != "agent"}
    (panel,) = {panels[name] for name in short_flags.SHORT_FLAGS}
    assert "short for --set" in panel
    assert {name for name in panels if panels[name] == panel} == set(short_flags.SHORT_FLAGS)


@pytest.mark.parametrize("command", ["train", "eval", "plot"])
def test_help_explains_the_options_and_the_exit_codes(reverie, command):
    result = reverie(command, "--help")
    assert result.exit_code == 0
    assert "Exit codes" in result.stdout
