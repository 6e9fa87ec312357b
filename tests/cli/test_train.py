"""`reverie train` as a command: what a run leaves behind, and what is refused before it begins."""

import errno
import importlib.util
import json
import os
import sys

import pytest

pytest.importorskip("torch")
typer = pytest.importorskip("typer")
figure = pytest.importorskip("matplotlib.figure")

from reverie import (  # noqa: E402
    _memory,
    agents,
    runners,
)
from reverie.cli import exits  # noqa: E402
from reverie.runners.planning.nodes import place  # noqa: E402
from reverie.runners.reports import logs  # noqa: E402
from reverie.server import Server  # noqa: E402


def test_train_leaves_a_log_a_curve_checkpoints_and_its_settings_and_json_is_the_last_line(reverie, tmp_path, short):
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--seed", 3, *short, "--tensorboard", "--json")
    assert result.exit_code == 1, result.stderr
    (line,) = result.stdout.splitlines()
    printed = json.loads(line)
    assert list(printed)[:4] == ["agent", "env_id", "seed", "env_steps"]
    assert (printed["agent"], printed["seed"], printed["confirmed"]) == ("dqn", 3, False)
    folder = tmp_path / "runs" / "dqn-CartPole-v1-seed-3"
    assert printed["folder"] == str(folder.relative_to(tmp_path))
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "max_env_steps = 1300" in (folder / "preset.toml").read_text()
    assert len(list((folder / "checkpoints").glob("0*"))) == 2
    assert list((folder / "checkpoints" / "replay-1").glob("*.checkpoint"))
    assert list((folder / "tensorboard").iterdir())
    assert logs.read(folder).finished["mean_return"] == printed["mean_return"]
    assert printed["best_return"] == max(logs.read(folder).returns)
    assert "best evaluation: " in result.stderr
    assert reverie("eval", folder / "best.safetensors", "--episodes", 1).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dqm", "--env", "CartPole-v1"], ["no agent 'dqm'", "did you mean dqn"]),
        (["dqn", "--env", "MountainCar"], ["'MountainCar': its id has no version; did you mean MountainCar-v0?"]),
        (["dqn", "--env", "CartPoel-v1"], ["no environment 'CartPoel-v1'", "did you mean CartPole-v1"]),
        (["dqn", "--env", "Pendulum-v1"], ["continuous actions need", "sac", "CartPole-v1"]),
        (["sac", "--env", "CartPole-v1"], ["discrete actions need", "dqn", "Pendulum-v1"]),
        (["dqn", "--env", "CartPole-v1", "--set", "batchsize=3"], ["no setting 'batchsize'; did you mean batch_size?"]),
        (["dqn", "--env", "CartPole-v1", "--config", "nowhere.toml"], ["nowhere.toml", "cannot be read"]),
        (["dqn", "--env", "CartPole-v1", "--http", "0.0.0.0:1"], ["other machines can reach", "use 127.0.0.1"]),
        (["dqn", "--env", "CartPole-v1", "--http", "0.0.0.0:1", "--runner", "ray"], ["other machines", "a token"]),
        (["dqn", "--env", "CartPole-v1", "--http", "0.0.0.0:1", "--seeds", "0-2"], ["other machines", "a token"]),
        (
            ["dqn", "--env", "CartPole-v1", "--http", "1", "--tls-cert", "c"],
            ["--tls-cert and --tls-key belong together"],
        ),
        (["dqn", "--env", "CartPole-v1", "--http", "1", "--token-file", "none"], ["none: no such file"]),
        (
            ["dqn", "--env", "CartPole-v1", "--token-file", "t"],
            ["--token-file is for the page of the run: give --http"],
        ),
        (["dqn", "--env", "CartPole-v1", "--insecure"], ["--insecure is for the page of the run"]),
        (["dqn", "--env", "CartPole-v1", "--set", "capacity=10_000_000_000"], ["needs about", "lower the capacity"]),
        (
            ["dqn", "--env", "CartPole-v1", "--resume=must"],
            ["has no checkpoint to continue from", "--resume=must asks"],
        ),
        (["dqn", "--env", "CartPole-v1", "--resume=yes"], ["--resume is 'yes', and may only have the value must"]),
        (["dqn", "--env", "CartPole-v1", "--resume", "--overwrite"], ["--overwrite replaces a run and --resume"]),
        (
            ["dqn", "--env", "CartPole-v1", "--resume=must", "--seeds", "0-1"],
            ["continues a sweep", "has no run of these"],
        ),
        (["dqn", "--env", "CartPole-v1", "--config", "paperr"], ["neither a file nor a preset", "CartPole-v1"]),
        (["dqn", "--env", "CartPole-v1", "--target-return", "nan"], ["target_return is nan, and must be a number"]),
        (["dqn", "--env", "CartPole-v1", "--jobs", "2"], ["--jobs is 2, and there is one run"]),
        (["dqn", "--env", "no_such_module:E-v0"], ["its module no_such_module cannot be imported", "PYTHONPATH"]),
    ],
)
def test_runs_that_cannot_start_are_refused_at_once_in_one_line(reverie, arguments, words, monkeypatch, tmp_path):
    monkeypatch.setattr(runners, "train", lambda *args, **kwargs: pytest.fail("training began"))
    result = reverie("train", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("reverie: ")
    for word in words:
        assert word in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.long
@pytest.mark.parametrize("runner", ["local", pytest.param("process", marks=pytest.mark.long)])
def test_a_run_whose_replay_does_not_fit_in_memory_trains_from_the_disk(reverie, tmp_path, runner, monkeypatch):
    moved = []
    stop = Server.stop

    def seen(self):
        moved.append(self.client().info().disk)
        stop(self)

    monkeypatch.setattr(Server, "stop", seen)
    disk = tmp_path / "spill"
    flags = ["--disk", str(disk), "--memory", "64KiB", "--runner", runner, "--no-tensorboard"]
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--max-steps", "3000", *flags)
    assert result.exit_code == 1, result.stderr  # the target is not reached in so few steps
    assert [path.name.endswith("-server-0") for path in disk.iterdir()] == [True]
    assert list(disk.rglob("*.chunks")) == []
    if runner == "local":
        assert moved[0].num_moved > 10
        assert moved[0].memory_bytes <= moved[0].max_memory_bytes * 1.5


def test_a_cluster_without_room_is_reported_in_one_line_with_exit_code_2(monkeypatch, tmp_path, capsys):
    planned = runners.plan(agents.find("apex-dqn"), "CartPole-v1", runner="ray")
    with pytest.raises(typer.Exit) as ended, exits.run_errors_reported(tmp_path):
        place(planned, [runners.ClusterNode("small", 2**20, 4.0)])
    assert ended.value.exit_code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "after 0 of them no node has room for a role 'shard'" in line


@pytest.mark.long
def test_no_check_memory_starts_a_run_with_less_memory_than_estimated(reverie, monkeypatch, short):
    monkeypatch.setattr(_memory, "available_memory", lambda: 2**20)
    assert reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", *short).exit_code == 2
    assert (
        reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--no-check-memory", *short).exit_code == 1
    )


@pytest.mark.long
def test_a_missing_tensorboard_is_refused_if_requested(reverie, monkeypatch, short):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--tensorboard", *short)
    assert result.exit_code == 2
    assert 'tensorboard is not installed: pip install "reverie[tensorboard]"' in result.stderr
    again = reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", *short)
    assert again.exit_code == 1, "a command that was refused has begun no run"
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tensorboard" else find(name))
    assert reverie("train", "dqn", "--env", "CartPole-v1", "--out", "other", *short).exit_code == 1


@pytest.mark.long
@pytest.mark.parametrize("failing", ["log.jsonl", "curve.png"])
def test_a_full_disk_for_log_or_plot_does_not_lose_the_result(reverie, monkeypatch, failing, short):
    def full(*args, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if failing == "log.jsonl":
        monkeypatch.setattr(logs, "_packed", lambda lines: b"" if not lines else full())
    else:
        monkeypatch.setattr(figure.Figure, "savefig", full)
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--json", *short)
    assert result.exit_code == 1, result.stderr
    assert json.loads(result.stdout)["env_steps"] >= 1300
    reported = [line for line in result.stderr.splitlines() if failing in line]
    assert [line.count("No space left on device") for line in reported] == [1], result.stderr


def test_a_folder_that_cannot_be_written_is_refused_in_a_line(reverie, tmp_path, short):
    (tmp_path / "here").write_text("a file")
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "here/run", *short)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line == "reverie: here/run: the run's folder cannot be written: not a directory"


def test_a_preset_of_another_environment_works_with_a_given_target(reverie):
    options = ["--config", "CartPole-v1", "--target-return", -110, "--set", "max_env_steps=1e5", "--dry-run"]
    result = reverie("train", "dqn", "--env", "MountainCar-v0", *options)
    assert result.exit_code == 0, result.stderr
    assert "until -110 is reached and confirmed, at most 100,000 environment steps" in result.stdout
    assert "dqn/presets/CartPole-v1.toml" in result.stdout


def test_an_environment_without_a_preset_has_its_own_target_and_the_command_reports_it(reverie):
    result = reverie("train", "dqn", "--env", "MountainCar-v0", "--set", "time_limit=90", "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert "until -110 is reached and confirmed" in result.stdout
    assert "time_limit 90" in result.stdout


def test_settings_of_the_environment_hold_before_its_preset_is_chosen(reverie):
    wrapped = ["--set", 'wrappers=["gymnasium.wrappers:RecordEpisodeStatistics", "reverie.agents.wrappers:Nothing"]']
    result = reverie("train", "dqn", "--env", "MountainCar-v0", *wrapped, "--dry-run")
    assert result.exit_code == 2
    assert "wrapper 'reverie.agents.wrappers:Nothing' cannot be imported" in result.stderr
    evaluation = ["--set", "evaluation_env=MountainCar-v0(goal_velocity=0.01)"]
    result = reverie("train", "gorila", "--env", "MountainCar-v0", *evaluation, "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert "its target is that of MountainCar-v0(goal_velocity=0.01), -110" in result.stdout + result.stderr
    assert "evaluation_env 'MountainCar-v0(goal_velocity=0.01)'" in result.stdout


def test_an_environment_in_the_working_folder_is_found_and_its_errors_have_their_line(reverie, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    (tmp_path / "envs_of_this_folder.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('Here-v0', entry_point=CartPoleEnv, max_episode_steps=50)\n"
        "def broken(**options):\n"
        "    raise RuntimeError('no licence')\n"
        "gymnasium.register('Broken-v0', entry_point=broken)\n"
    )
    options = ["--config", "CartPole-v1", "--dry-run"]
    result = reverie("train", "dqn", "--env", "envs_of_this_folder:Here-v0", *options)
    assert result.exit_code == 0, result.stderr
    broken = reverie("train", "dqn", "--env", "envs_of_this_folder:Broken-v0", *options)
    assert broken.exit_code == 2
    assert "cannot be made: RuntimeError: no licence (" in broken.stderr
    assert "envs_of_this_folder.py, line 5)" in broken.stderr
    near = reverie("train", "dqn", "--env", "envs_of_this_folder:Heer-v0", *options).stderr
    assert "; did you mean envs_of_this_folder:" in near
    assert "envs_of_this_folder:Here-v0" in near


@pytest.mark.long
def test_device_auto_is_cuda_if_available_and_supported(reverie, monkeypatch):
    import torch

    def device(agent):
        planned = reverie("train", agent, "--env", "CartPole-v1", "--device", "auto", "--dry-run", "--json")
        return json.loads(planned.stdout)["settings"]["run"]["device"]

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device("dqn") == "cpu"
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--device", "cuda", "--dry-run")
    assert result.exit_code == 2
    assert "device 'cuda' is missing" in result.stderr
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert (device("dqn"), device("ppo")) == ("cuda", "cpu")


@pytest.mark.long
def test_quiet_prints_only_the_result_in_one_line(reverie, short):
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--quiet", *short)
    assert result.exit_code == 1, result.stderr
    (line,) = result.stdout.splitlines()
    assert line.startswith("not reached: ")
    assert result.stderr == ""
