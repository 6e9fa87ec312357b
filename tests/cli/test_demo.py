import importlib.util
import json
import re
import subprocess

import pytest

pytest.importorskip("torch")
testing = pytest.importorskip("typer.testing")

import reverie.cli  # noqa: E402
from reverie import _memory, runners  # noqa: E402
from reverie.agents.apex_dqn import agent as apex_dqn  # noqa: E402
from reverie.agents.core import EnvironmentCrash, EnvironmentCrashedError  # noqa: E402
from reverie.cli.app import app  # noqa: E402
from reverie.cli.report import sparkline  # noqa: E402
from reverie.runners import DeviceError, StalledError  # noqa: E402


@pytest.fixture
def short_preset(tmp_path):
    """A function that writes the CartPole preset with another end, and gives its path."""

    def write(*, target_return, max_env_steps=1_600):
        text = (apex_dqn.presets / "CartPole-v1.toml").read_text()
        kept = [line for line in text.splitlines() if not line.startswith(("target_return", "max_env_steps"))]
        path = tmp_path / "short.toml"
        path.write_text("\n".join([*kept, f"target_return = {target_return}", f"max_env_steps = {max_env_steps}"]))
        return str(path)

    return write


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """Runs `reverie demo` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: testing.CliRunner().invoke(app, ["demo", *arguments])


@pytest.mark.long
def test_json_is_the_last_line_of_stdout_with_these_names_and_all_else_goes_to_stderr(demo, short_preset):
    result = demo("--json", "--seed", "5", "--preset", short_preset(target_return=475))
    assert result.exit_code == 1, result.stderr
    (line,) = result.stdout.splitlines()
    printed = json.loads(line)
    assert list(printed) == ["env_id", "env_steps", "seconds", "mean_return", "num_episodes", "seed"]
    assert printed["env_id"] == "CartPole-v1"
    assert printed["seed"] == 5
    assert printed["num_episodes"] == 20
    assert 1_600 <= printed["env_steps"] < 1_604
    assert printed["seconds"] > 0
    assert 8 < printed["mean_return"] < 475
    assert "not reached" in result.stderr


@pytest.mark.long
def test_the_report_has_evaluation_replay_buffer_times_and_the_path_of_the_curve(demo, short_preset, tmp_path):
    result = demo("--preset", short_preset(target_return=8.0), "--plot", "deep/er/curve.png")
    assert result.exit_code == 0, result.stderr
    for words in (
        "apex-dqn on CartPole-v1, seed 0",
        "confirmed:",
        "over 20 greedy episodes",
        "items inserted",
        "items sampled",
        "samples per insert",
        "bytes in the replay buffer",
        "priorities updated",
        "priority updates that came too late",
        "evaluate",
        "env step",
        "total",
        "learning curve: deep/er/curve.png",
    ):
        assert words in result.stdout
    png = (tmp_path / "deep/er/curve.png").read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert png.rstrip(b"\0").endswith(b"IEND\xaeB`\x82")


@pytest.mark.long
def test_a_demo_with_an_http_port_prints_the_address_of_its_page(demo, short_preset):
    result = demo("--preset", short_preset(target_return=8.0), "--http", "0")
    assert result.exit_code == 0, result.stderr
    assert re.search(r"^page and metrics: http://127\.0\.0\.1:[0-9]+/$", result.stdout, re.MULTILINE)


@pytest.mark.long
def test_a_demo_with_a_token_opens_a_page_for_other_machines(demo, short_preset, tmp_path):
    (tmp_path / "token").write_text("open sesame")
    given = ["--http", "0.0.0.0:0", "--token-file", "token", "--insecure"]
    result = demo("--preset", short_preset(target_return=8.0), *given)
    assert result.exit_code == 0, result.stderr
    assert re.search(r"^page and metrics: http://0\.0\.0\.0:[0-9]+/$", result.stdout, re.MULTILINE)


@pytest.mark.long
def test_a_demo_without_a_target_ends_with_its_last_step_and_exit_code_0(demo, tmp_path):
    text = (apex_dqn.presets / "CartPole-v1.toml").read_text()
    kept = [line for line in text.splitlines() if not line.startswith(("target_return", "max_env_steps"))]
    (tmp_path / "aimless.toml").write_text("\n".join([*kept, "max_env_steps = 1_600"]))
    result = demo("--preset", "aimless.toml")
    assert result.exit_code == 0, result.stderr
    assert "trained:" in result.stdout
    assert "no target" in result.stdout


@pytest.mark.long
def test_the_same_seed_prints_the_same_result_except_for_times(demo, short_preset):
    preset = short_preset(target_return=475)
    one, two = (json.loads(demo("--json", "--seed", "-3", "--preset", preset).stdout) for _ in range(2))
    assert one.pop("seconds") > 0
    assert two.pop("seconds") > 0
    assert one == two


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--env", "CartPoel-v1"], ["no environment 'CartPoel-v1'", "did you mean CartPole-v1"]),
        (["--env", "Pendulum-v1"], ["Box(-2.0, 2.0, (1,), float32)", "continuous actions need", "CartPole-v1"]),
        (["--preset", "nowhere.toml"], ["nowhere.toml", "cannot be read"]),
        (["--http", "0.0.0.0:8080"], ["other machines can reach", "use 127.0.0.1"]),
        (["--http", "0.0.0.0:8080", "--token-file", "none"], ["none: no such file"]),
        (["--http", "0", "--tls-cert", "cert.pem"], ["--tls-cert and --tls-key belong together"]),
        (["--token-file", "token"], ["--token-file is for the page of the run: give --http"]),
        (["--plot", "curve.pdf"], ["curve.pdf does not end in .png"]),
        (["--plot", "short.toml/curve.png"], ["the folder short.toml cannot be created"]),
    ],
)
def test_runs_that_cannot_start_are_refused_at_once_in_one_line(demo, short_preset, arguments, words, monkeypatch):
    short_preset(target_return=8.0)
    monkeypatch.setattr(runners, "train", lambda *args, **kwargs: pytest.fail("training began"))
    result = demo(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("reverie: ")
    for word in words:
        assert word in line


def test_too_little_memory_is_refused_with_the_numbers(demo, monkeypatch):
    monkeypatch.setattr(_memory, "available_memory", lambda: 100 * 2**20)
    result = demo()
    assert result.exit_code == 2
    assert "100 MiB are free" in result.stderr
    assert "needs about" in result.stderr


def test_ctrl_c_ends_with_130_and_no_traceback(demo, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(runners, "train", interrupted)
    result = demo()
    assert result.exit_code == 130
    assert result.stderr == "reverie: interrupted; nothing was saved\n"


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (EnvironmentCrashedError(EnvironmentCrash("CartPole-v1", 3, 17, "ZeroDivisionError: no"), 1), 3),
        (StalledError("replay", "both wait"), 3),
        (DeviceError("cuda:7", "this machine has no such device"), 2),
    ],
)
def test_an_error_of_the_run_is_one_line_and_an_exit_code(demo, monkeypatch, error, exit_code):
    def failing(*args, **kwargs):
        raise error

    monkeypatch.setattr(runners, "train", failing)
    result = demo()
    assert (result.exit_code, result.stderr) == (exit_code, f"reverie: {error}\n")


def test_without_its_libraries_the_command_names_the_extra_in_one_line(monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "rich" else find(name))
    with pytest.raises(SystemExit) as caught:
        reverie.cli.main()
    assert caught.value.code == 2
    assert capsys.readouterr().err == 'reverie: rich not installed: pip install "reverie[cli]"\n'


@pytest.mark.long
def test_a_demo_whose_output_is_closed_ends_as_if_interrupted(start, short_preset):
    preset = short_preset(target_return=475.0, max_env_steps=1_000_000_000)
    process = start("demo", "--config", preset, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert "apex-dqn on CartPole-v1" in process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=200) == 130
    assert process.stderr.read() == ""


def test_without_torch_the_demo_names_its_extra(demo, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    result = demo()
    assert result.exit_code == 2
    assert result.stderr == 'reverie: torch not installed: pip install "reverie[demo]"\n'


def test_help_explains_the_options_and_the_exit_codes(demo):
    result = demo("--help")
    assert result.exit_code == 0
    for word in ("--env", "--seed", "--json", "--plot", "--config", "--preset", "Exit codes"):
        assert word in result.stdout


def test_a_sparkline_rises_with_its_values_and_is_flat_without_any_difference():
    assert sparkline([0, 1, 2, 7]) == "▁▂▃█"
    assert sparkline([3.0, 3.0]) == "▁▁"
