import errno
import importlib.util
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("torch")
typer = pytest.importorskip("typer")
testing = pytest.importorskip("typer.testing")
get_command = pytest.importorskip("typer.main").get_command
figure = pytest.importorskip("matplotlib.figure")

from reverie import agents, runners  # noqa: E402
from reverie.cli import exits, short_flags  # noqa: E402
from reverie.cli.app import app  # noqa: E402
from reverie.cli.plot import Over, _panel, band, summary, variants  # noqa: E402
from reverie.cli.train_flags import RESUME_MUST  # noqa: E402
from reverie.runners import checkpoints  # noqa: E402
from reverie.runners.planning import topology  # noqa: E402
from reverie.runners.planning.nodes import place  # noqa: E402
from reverie.runners.reports import logs  # noqa: E402
from reverie.server import Server  # noqa: E402

SMALL = ["--set", "screening_episodes=2", "--set", "confirmation_episodes=3"]
SMALL += ["--set", "hidden=[16]", "--set", "batch_size=32", "--set", "samples_per_insert=8"]
LENGTH = ["--set", "max_env_steps=1300", "--set", "evaluate_every=500", "--set", "checkpoint_every=600"]
SHORT = [*SMALL, *LENGTH]


@pytest.fixture
def reverie(tmp_path, monkeypatch):
    """Runs `reverie` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: testing.CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory):
    """The folder of a run of `SHORT`, trained once for the tests that go on from one or read one."""
    folder = tmp_path_factory.mktemp("short") / "run"
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", str(folder), *SHORT]
    result = testing.CliRunner().invoke(app, command)
    assert result.exit_code == 1, result.stderr
    return folder


@pytest.fixture
def here(trained_run, tmp_path):
    """A copy of that folder, as the test's own `here`."""
    return shutil.copytree(trained_run, tmp_path / "here")


def test_train_leaves_a_log_a_curve_checkpoints_and_its_settings_and_json_is_the_last_line(reverie, tmp_path):
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--seed", 3, *SHORT, "--tensorboard", "--json")
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


def test_the_same_command_with_resume_continues_and_without_it_is_refused(reverie, here):
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "here", *SHORT]
    again = reverie(*command)
    assert again.exit_code == 2
    ways = "continue it with --resume, replace it with --overwrite, or name another folder with --out"
    assert f"here holds a run: {ways}" in again.stderr
    longer = reverie(*command[:-6], "--resume", "--set", "max_env_steps=1800")
    assert longer.exit_code == 1, longer.stderr
    assert "resuming after 1,30" in longer.stdout
    read = logs.read(Path("here"))
    assert [round(step, -2) for step in read.env_steps] == [500, 1_000, 1_300, 1_500, 1_800]
    assert "max_env_steps = 1800" in Path("here/preset.toml").read_text()


def test_settings_of_the_first_run_hold_for_the_resumed_one_and_others_are_refused(reverie):
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", *SHORT]
    assert reverie(*command, "--set", "learning_rate=0.5").exit_code == 1
    resumed = reverie(
        "train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--resume", "--set", "max_env_steps=1500"
    )
    assert resumed.exit_code == 1, resumed.stderr
    changed = ["--set", "n_step=2", "--num-actors", 2, "--learning-rate", 0.1]
    other = reverie(*command, "--resume", "--set", "max_env_steps=1900", *changed)
    assert other.exit_code == 2
    (line,) = other.stderr.splitlines()
    assert "--set n_step is 2, and was 1, which cannot change: the items in its table are" in line
    assert "--num-actors is 2, and was 1, which cannot change: each actor continues with its own" in line
    assert "learning_rate" not in line, "which may change"
    settings = Path("runs/dqn-CartPole-v1-seed-0/preset.toml").read_text()
    assert "learning_rate = 0.5" in settings, "what was refused leaves the run's settings as they were"
    assert "max_env_steps = 1500" in settings


def test_a_changed_learning_rate_is_reported_and_becomes_that_of_the_run(reverie, here):
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "here", *SHORT]
    resumed = reverie(*command, "--resume", "--max-steps", 1500, "--learning-rate", "1e-5", "--set", "capacity=1200")
    assert resumed.exit_code == 1, resumed.stderr
    words = "reverie: the run continues with capacity 1200 (before: 50000), learning_rate 1e-05 (before: 0.002)"
    assert words in resumed.stderr
    settings = Path("here/preset.toml").read_text()
    assert "learning_rate = 1e-05" in settings
    again = reverie(*command, "--resume", "--max-steps", 1600)
    assert "the run continues with" not in again.stderr, "it holds from then on"


def test_a_job_that_is_queued_again_begins_its_run_and_then_continues_it(reverie):
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "here", *SHORT, "--resume"]
    first = reverie(*command)
    assert first.exit_code == 1, first.stderr
    assert "reverie: here has no run yet: a new one begins" in first.stderr
    assert "resuming" not in first.stdout
    for again, steps in (("--resume", 1500), ("--resume=must", 1700)):
        second = reverie(*command[:-1], again, "--max-steps", steps)
        assert second.exit_code == 1, second.stderr
        assert "resuming after" in second.stdout
        assert "a new one begins" not in second.stderr


def test_resume_takes_no_argument_of_the_command_as_its_value(reverie):
    result = reverie("train", "--resume", "dqn", "--env", "CartPole-v1", "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert "dqn on CartPole-v1" in result.stdout


def test_overwrite_replaces_the_files_of_a_run_and_leaves_others(reverie, tmp_path):
    command = ["train", "dqn", "--env", "CartPole-v1", "--tensorboard", "--out", "here", "--set", "evaluate_every=500"]
    command += SMALL
    assert reverie(*command, "--max-steps", 900).exit_code == 1
    folder = tmp_path / "here"
    (folder / "notes.txt").write_text("mine")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert reverie(*command, "--max-steps", 600, "--overwrite", "--dry-run").exit_code == 0
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    result = reverie(*command, "--max-steps", 600, "--overwrite", "--seed", 5)
    assert result.exit_code == 1, result.stderr
    read = logs.read(folder)
    assert (read.seed, [round(step, -2) for step in read.env_steps]) == (5, [500, 600])
    assert [one["env_steps"] // 100 for one in map(checkpoints.load, (folder / "checkpoints").glob("0*"))] == [6]
    assert "max_env_steps = 600" in (folder / "preset.toml").read_text()
    assert (folder / "notes.txt").read_text() == "mine"
    assert len(list((folder / "tensorboard").iterdir())) == 1
    assert (folder / "curve.png").read_bytes() != before[folder / "curve.png"]
    assert reverie(*command, "--max-steps", 700, "--seed", 5, "--resume").exit_code == 1


@pytest.mark.parametrize("files", [["thesis.tex"], ["log.jsonl"], ["checkpoints/000000000007/photo"]])
def test_overwrite_never_touches_a_folder_that_is_not_a_runs(reverie, tmp_path, files):
    for name in files:
        (tmp_path / "here" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / name).write_text("mine")
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "here", "--overwrite", *SHORT)
    assert result.exit_code == 2
    assert "is not the folder of a run" in result.stderr or "is not a checkpoint of a run" in result.stderr
    assert [path.read_text() for path in (tmp_path / "here").rglob("*") if path.is_file()] == ["mine"] * len(files)


def test_a_file_in_the_place_of_the_folder_is_refused(reverie, tmp_path):
    (tmp_path / "here").write_text("mine")
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "here", "--overwrite", *SHORT)
    assert result.exit_code == 2
    assert "here is not the folder of a run" in result.stderr


def test_a_checkpoint_that_does_not_fit_a_learner_in_a_process_is_refused_in_one_line(capsys, tmp_path):
    with pytest.raises(typer.Exit) as ended, exits.errors_reported(tmp_path):
        raise runners.RoleError("learner", "ParameterError", "network critic lacks the weight head.bias", "Traceback")
    assert ended.value.exit_code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "network critic lacks the weight head.bias" in line


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


def test_a_dry_run_prints_processes_memory_and_settings_and_writes_nothing(reverie, tmp_path):
    text = reverie("train", "apex-dqn", "--env", "CartPole-v1", "--dry-run", "--set", "n_step=5")
    assert text.exit_code == 0, text.stderr
    for word in ("2 actors of 4 environments", "MiB  replay of 50,000 items", "n_step = 5", "max_env_steps = 100000"):
        assert word in text.stdout
    printed = json.loads(reverie("train", "sac", "--env", "Pendulum-v1", "--dry-run", "--json").stdout)
    assert printed["processes"] == 1
    assert printed["settings"]["agent"]["batch_size"] == 128
    assert sum(printed["memory_bytes"].values()) > 2**20
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_with_a_disk_counts_what_stays_in_memory(reverie, tmp_path):
    command = ["train", "apex-dqn", "--env", "CartPole-v1", "--dry-run", "--json"]
    whole = json.loads(reverie(*command).stdout)["memory_bytes"]
    partly = json.loads(reverie(*command, "--disk", "spill", "--memory", "1MiB").stdout)
    assert partly["memory_bytes"] == {
        **{part: size for part, size in whole.items() if not part.startswith("replay")},
        "replay of 50,000 items, partly on the disk": 2**20,
    }
    assert partly["settings"]["run"]["replay_disk"] == str(tmp_path / "spill")
    refused = reverie(*command, "--memory", "1MiB")
    assert refused.exit_code == 2
    assert "there is no replay_disk" in refused.stderr


def test_a_dry_run_shows_the_journal_and_where_it_is(reverie, tmp_path):
    command = ["train", "apex-dqn", "--env", "CartPole-v1", "--dry-run"]

    def settings(*flags):
        found = json.loads(reverie(*command, "--json", *flags).stdout)["settings"]["run"]
        return found["replay_journal"], found["replay_journal_sync"]

    assert settings() == (None, None)
    assert settings("--journal") == ("run", None)
    assert settings("--journal", "--journal-sync", "always") == ("run", "always")
    assert settings("--journal", "fast", "--journal-sync=os") == (str(tmp_path / "fast"), "os")
    assert settings("--journal=off") == ("off", None)
    assert "; a journal with its checkpoints, sync interval" in reverie(*command, "--journal").stdout
    assert (
        f"; a journal in {tmp_path}/fast, sync os" in reverie(*command, "--journal=fast", "--journal-sync", "os").stdout
    )
    refused = reverie(*command, "--journal-sync", "os")
    assert refused.exit_code == 2
    assert "replay_journal_sync is os and there is no replay_journal" in refused.stderr
    assert list(tmp_path.iterdir()) == []


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


def test_a_dry_run_plans_for_a_described_or_unknown_cluster(reverie, monkeypatch):
    monkeypatch.setattr(topology, "available_memory", lambda: 2**30)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    command = ["train", "apex-dqn", "--env", "CartPole-v1", "--runner", "ray", "--num-actors", "60", "--dry-run"]
    assert "no node has room for a role 'learner'" in reverie(*command).stderr  # it would start Ray here
    elsewhere = reverie(*command, "--address", "auto")
    assert elsewhere.exit_code == 0, elsewhere.stderr
    assert "the nodes are unknown until there is a cluster" in elsewhere.stdout
    fits = reverie(*command, "--node", "1x8GB,8", "--node", "15x4GB,16")
    assert fits.exit_code == 0, fits.stderr
    assert "60 x actor, 1 CPU: an actor of Ray, where it has room; 400 MiB each" in fits.stdout
    assert "on 1 x node of 8GB: 1 x shard" in fits.stdout
    printed = json.loads(reverie(*command, "--node", "16x4GB,16", "--json").stdout)
    assert sum(sum(one["roles"].values()) for one in printed["nodes"]) == printed["processes"] - 1 == 63
    assert {one["node"] for one in printed["nodes"]} == {"node of 4GB"}
    assert all(role["memory_bytes"] > 400 * 2**20 - 1 for role in printed["roles"])
    small = reverie(*command, "--node", "4x4GB,16")
    assert (small.exit_code, small.stdout) == (2, "")
    assert "no node has room for a role 'actor'" in small.stderr
    assert "(--no-check-memory)" in small.stderr
    forced = reverie(*command, "--node", "4x4GB,16", "--no-check-memory")
    assert forced.exit_code == 0, forced.stderr
    assert "no node has room for a role 'actor'" in forced.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--node", "4GB", "--dry-run"], "--node describes a Ray cluster for --dry-run: give it with --runner ray"),
        (["--node", "4GB", "--runner", "ray"], "--node describes a Ray cluster for --dry-run"),
        (["--node", "4", "--runner", "ray", "--dry-run"], "a node is '4', and must be [COUNTx]MEMORY"),
    ],
)
def test_an_invalid_description_of_nodes_is_refused(reverie, options, words):
    result = reverie("train", "apex-dqn", "--env", "CartPole-v1", *options)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_cluster_without_room_is_reported_in_one_line_with_exit_code_2(monkeypatch, tmp_path, capsys):
    planned = runners.plan(agents.find("apex-dqn"), "CartPole-v1", runner="ray")
    with pytest.raises(typer.Exit) as ended, exits.errors_reported(tmp_path):
        place(planned, [runners.Node("small", 2**20, 4.0)])
    assert ended.value.exit_code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "after 0 of them no node has room for a role 'shard'" in line


def test_no_check_memory_starts_a_run_with_less_memory_than_estimated(reverie, monkeypatch):
    monkeypatch.setattr(topology, "available_memory", lambda: 2**20)
    assert reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", *SHORT).exit_code == 2
    assert (
        reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--no-check-memory", *SHORT).exit_code == 1
    )


def test_a_missing_tensorboard_is_refused_if_requested(reverie, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--tensorboard", *SHORT)
    assert result.exit_code == 2
    assert 'tensorboard is not installed: pip install "reverie[tensorboard]"' in result.stderr
    again = reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", *SHORT)
    assert again.exit_code == 1, "a command that was refused has begun no run"
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tensorboard" else find(name))
    assert reverie("train", "dqn", "--env", "CartPole-v1", "--out", "other", *SHORT).exit_code == 1


@pytest.mark.parametrize("failing", ["log.jsonl", "curve.png"])
def test_a_full_disk_for_log_or_plot_does_not_lose_the_result(reverie, monkeypatch, failing):
    def full(*args, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if failing == "log.jsonl":
        monkeypatch.setattr(logs, "_packed", lambda lines: b"" if not lines else full())
    else:
        monkeypatch.setattr(figure.Figure, "savefig", full)
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--json", *SHORT)
    assert result.exit_code == 1, result.stderr
    assert json.loads(result.stdout)["env_steps"] >= 1300
    told = [line for line in result.stderr.splitlines() if failing in line]
    assert [line.count("No space left on device") for line in told] == [1], result.stderr


def test_a_folder_that_cannot_be_written_is_refused_in_a_line(reverie, tmp_path):
    (tmp_path / "here").write_text("a file")
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "here/run", *SHORT)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line == "reverie: here/run: not a directory"


def twice(number):
    """Sends a signal twice, as to a process and to its group."""

    def send_signal(process):
        os.kill(process.pid, number)
        for line in process.stderr:
            if line.startswith("reverie: saving a checkpoint and ending"):  # or the two would be taken for one
                os.kill(process.pid, number)
                return

    return send_signal


@pytest.mark.long
@pytest.mark.parametrize(
    "send_signal",
    [lambda process: os.kill(process.pid, signal.SIGINT), twice(signal.SIGTERM)],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_ctrl_c_and_sigterm_save_end_with_130_and_the_run_can_be_resumed(start, tmp_path, send_signal):
    """In its own process, interrupted as soon as its log shows that it trains."""
    folder = tmp_path / "runs" / "dqn-CartPole-v1-seed-0"
    options = ["--no-tensorboard", "--set", "evaluate_every=200", "--set", "target_return=10000", "--json"]
    options += ["--set", "max_env_steps=1000000000"]
    process = start("train", "dqn", "--env", "CartPole-v1", *options, stderr=subprocess.PIPE)
    for line in process.stderr:
        if "greedy return" in line:
            send_signal(process)
            break
    rest = process.stderr.read()
    assert process.wait(timeout=200) == 130
    assert "the same command with --resume continues from there" in rest
    assert "Traceback" not in rest
    saved = checkpoints.load(checkpoints.find(folder))
    assert saved["env_steps"] >= 200


def test_a_second_ctrl_c_ends_a_run_without_a_checkpoint_and_a_second_sigterm_does_not(capsys):
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        with exits.stop_on_signals() as is_asked:
            assert not is_asked()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
                signal.raise_signal(number)
                assert is_asked()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert capsys.readouterr().err.count("Ctrl-C now ends without it") == 1


def test_a_run_saves_when_its_terminal_closes_and_continues_after_nohup(start, tmp_path):
    folder = tmp_path / "runs" / "dqn-CartPole-v1-seed-0"
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--until-max-steps"]
    command += ["--set", "evaluate_every=1000000000", "--set", "max_env_steps=1000000000"]
    terminal, end = pty.openpty()
    process = start(*command, terminal=end, session=True)
    os.close(end)
    while not (folder / logs.LOG).exists() or b'"progress"' not in (folder / logs.LOG).read_bytes():
        os.read(terminal, 2**16)
    os.close(terminal)
    assert process.wait(timeout=200) == 130
    assert checkpoints.load(checkpoints.find(folder))["env_steps"] > 0
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert exits.stop_signals() == (signal.SIGINT, signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.long
@pytest.mark.parametrize("errors", [subprocess.DEVNULL, subprocess.STDOUT], ids=["2> file", "2>&1"])
def test_a_run_whose_output_is_closed_saves_and_ends(start, tmp_path, errors):
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--until-max-steps"]
    command += ["--set", "evaluate_every=200", "--set", "max_env_steps=1000000000"]
    process = start(*command, stdout=subprocess.PIPE, stderr=errors)
    assert "dqn on CartPole-v1" in process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=200) == 130
    assert checkpoints.load(checkpoints.find(tmp_path / "runs" / "dqn-CartPole-v1-seed-0"))["env_steps"] >= 200


def test_eval_plays_the_weights_of_a_checkpoint_as_the_runs_own_evaluator_does(reverie, trained_run):
    trained = logs.read(trained_run).finished
    # On the seeds that confirmed the run, the return is the run's own.
    same = json.loads(reverie("eval", trained_run, "--first-seed", 20_000, "--episodes", 3, "--json").stdout)
    assert same["mean_return"] == trained["mean_return"]
    assert same["env_steps"] == trained["env_steps"]
    text = reverie("eval", checkpoints.find(trained_run), "--episodes", 3)
    assert text.exit_code == 0
    assert "dqn on CartPole-v1 after 1,30" in text.stdout
    assert "over 3 greedy episodes" in text.stdout


def test_eval_of_a_damaged_checkpoint_names_the_file(reverie, here, tmp_path):
    resume = ["train", "dqn", "--env", "CartPole-v1", "--out", "here", "--resume", "--set", "max_env_steps=9999"]
    newest = checkpoints.find(tmp_path / "here")
    (older,) = (path for path in (tmp_path / "here" / "checkpoints").glob("0*") if path != newest)
    for name in ("arrays.npz", "preset.toml"):
        whole = (newest / name).read_bytes()
        (newest / name).write_bytes(whole[:-1])
        for command in (["eval", "here"], resume):
            result = reverie(*command)
            assert result.exit_code == 2
            assert (
                f"{name} is damaged: its checksum does not match; the earlier checkpoint {older.name} is intact"
                in result.stderr
            )
        (newest / name).write_bytes(whole)
    tables = newest.parent / checkpoints.load(newest)[checkpoints.REPLAY][0]
    tables.write_bytes(tables.read_bytes()[:-1])
    result = reverie(*resume)
    assert result.exit_code == 2
    damaged, instead = result.stderr.splitlines()[-2:]
    assert f"{tables.name} is damaged at byte" in damaged
    which = Path("here", "checkpoints", newest.name)
    assert (
        f"these are the tables of {which}; the earlier checkpoint {older.name} is intact: remove {which} to continue"
        in instead
    )
    assert "is missing" in reverie("eval", "nowhere").stderr


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


def test_a_folder_with_another_run_is_named_with_what_it_holds(reverie, here):
    for other in (["ppo", "--env", "CartPole-v1"], ["dqn", "--env", "CartPole-v1", "--seed", 1]):
        refused = reverie("train", *other, "--no-tensorboard", "--out", "here", "--resume")
        assert refused.exit_code == 2
        assert "here holds a run of dqn on CartPole-v1 with seed 0, and this one is of " in refused.stderr


def log_of(folder, returns, seed=0, **config):
    started = {"event": "started", "env_steps": 0, "agent": "dqn", "env_id": "E-v0", "seed": seed, "config": config}
    lines = [{**started, "target_return": 5.0}]
    lines += [
        {"event": "evaluated", "env_steps": 10 * i, "seconds": float(i), "mean_return": value}
        for i, value in enumerate(returns, start=1)
    ]
    folder.mkdir(parents=True)
    (folder / logs.LOG).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_everything_in_the_folder_of_runs_can_be_plotted_again_and_again(reverie, tmp_path):
    log_of(tmp_path / "runs/one", [1.0, 2.0])
    log_of(tmp_path / "runs/sweep/seed-1", [3.0], seed=1)
    log_of(tmp_path / "runs/sweep/seed-2", [4.0], seed=2)
    log_of(tmp_path / "runs/begun", [], seed=3)
    for _ in range(2):  # the second time the first picture is among them
        result = reverie("plot", *sorted((tmp_path / "runs").iterdir()), tmp_path / "runs/one/log.jsonl")
        assert result.exit_code == 0, result.stderr
        assert [line.partition(":")[0] for line in result.stdout.splitlines()] == [
            "dqn on E-v0, seed 0",
            "dqn on E-v0, seed 1",
            "dqn on E-v0, seed 2",
            "learning curves",
        ]
        assert "begun/log.jsonl has no greedy evaluation yet, and is left out" in result.stderr
    assert "nothing to draw" in reverie("plot", "runs/begun").stderr


def test_what_has_no_log_that_can_be_read_is_left_out_of_a_plot_and_named(reverie, tmp_path):
    log_of(tmp_path / "runs/good", [1.0, 2.0])
    (tmp_path / "runs/empty").mkdir()
    for name, text in (
        ("broken", b"{]\n"),
        ("other", b"\xff\xfe\n"),
        ("null", (log_of(tmp_path / "null", [1.0]) / logs.LOG).read_bytes().replace(b"1.0", b"null")),
    ):
        (tmp_path / "runs" / name).mkdir()
        (tmp_path / "runs" / name / logs.LOG).write_bytes(text)
    (tmp_path / "runs/notes.txt").write_text("try a lower rate\n")
    result = reverie("plot", *sorted((tmp_path / "runs").iterdir()))
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) == 2
    lines = sorted(result.stderr.splitlines())
    assert len(lines) == 5
    for line, name in zip(lines, ("broken", "empty", "notes.txt", "null", "other"), strict=True):
        assert f"runs/{name}" in line
        assert line.endswith("; it is left out")
    for folder in ("empty", "broken"):
        alone = reverie("plot", f"runs/{folder}")
        assert alone.exit_code == 2
        assert f"log runs/{folder}/log.jsonl " in alone.stderr
    assert reverie("plot", "runs/empty", "runs/broken").exit_code == 2
    missing = reverie("plot", "runs/good", "runs/godo")
    assert missing.exit_code == 2
    assert "runs/godo does not exist" in missing.stderr


def test_a_curve_of_one_evaluation_is_drawn_as_a_dot():
    from matplotlib.figure import Figure

    def markers(*runs):
        axes = Figure().subplots()
        _panel(axes, "E-v0", runs, Over.steps)
        return [line.get_marker() for line in axes.lines if len(line.get_xdata()) and line.get_linestyle() == "-"]

    assert markers(curve_of([10], [1])) == ["o"]
    assert markers(curve_of([10, 20], [1, 2])) == ["None"]
    assert "o" in markers(curve_of([10], [1]), curve_of([10], [3], seed=1))[2:]


def test_a_seed_counts_once_by_the_run_with_the_most_steps(reverie, tmp_path):
    log_of(tmp_path / "runs/short", [1.0], seed=1)
    log_of(tmp_path / "runs/long", [1.0, 2.0], seed=1)
    log_of(tmp_path / "runs/other", [1.0], seed=2)
    log_of(tmp_path / "runs/settings", [1.0], seed=1, n_step=3)
    for names in (("short", "long", "other", "settings"), ("settings", "other", "long", "short")):
        result = reverie("plot", *(f"runs/{name}" for name in names))
        assert result.exit_code == 0, result.stderr
        (line,) = result.stderr.splitlines()
        assert "log runs/short/log.jsonl has the agent, settings and seed 1 of runs/long/log.jsonl" in line
        assert len(result.stdout.splitlines()) == 4


def test_runs_of_one_agent_with_other_settings_are_curves_of_their_own_named_by_what_differs(tmp_path):
    read = [
        logs.read(log_of(tmp_path / str(i), [1.0], seed=i % 2, discount=0.9, learning_rate=rate))
        for i, rate in enumerate([0.1, 0.1, 0.2])
    ]
    assert [(name, [run.seed for run in own]) for name, own in variants(read)] == [
        ("dqn, learning_rate 0.1", [0, 1]),
        ("dqn, learning_rate 0.2", [0]),
    ]
    assert [name for name, _ in variants(read[:2])] == ["dqn"]
    many = [curve_of([1], [1], config=dict.fromkeys("abcde", value)) for value in (1, 2)]
    assert variants(many)[1][0] == "dqn, a 2, b 2, c 2, and 2 more"


def test_curves_are_drawn_over_seconds_on_request(reverie, tmp_path):
    runs = [curve_of([10, 20], [0, 1], seconds=(1.0, 3.0)), curve_of([10, 20], [0, 1], seconds=(2.0, 3.0))]
    assert band(runs, Over.seconds)[0].tolist() == [2, 3]
    log_of(tmp_path / "run", [1.0, 2.0])
    drawn = {over: reverie("plot", "run", "--over", over, "--out", f"{over}.png") for over in ("steps", "seconds")}
    assert [one.exit_code for one in drawn.values()] == [0, 0]
    assert (tmp_path / "steps.png").read_bytes() != (tmp_path / "seconds.png").read_bytes()


@pytest.mark.parametrize("text", [b'{"event": "started", "env_steps": 0}\n', b"\xff\xfe\n"])
def test_a_log_of_something_else_is_named(reverie, tmp_path, text):
    (tmp_path / "log.jsonl").write_bytes(text)
    result = reverie("plot", "log.jsonl")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("reverie: log log.jsonl is ")


def test_plot_draws_several_runs_and_prints_how_each_ended(reverie, tmp_path):
    for seed in range(2):
        command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--seed", seed, *SMALL]
        reverie(*command, "--set", "max_env_steps=200")
    result = reverie("plot", *sorted((tmp_path / "runs").iterdir()), "--out", "pictures/both.png")
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "pictures/both.png").read_bytes().startswith(b"\x89PNG")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("dqn on CartPole-v1, seed 0: never reached 475; not reached: ")
    assert lines[1].startswith("dqn on CartPole-v1, seed 1: ")
    assert lines[2] == "learning curves: pictures/both.png"
    assert "does not exist: name a run's folder" in reverie("plot", "nowhere").stderr


def curve_of(steps, returns, **options):
    fields = {"path": None, "agent": "dqn", "env_id": "E-v0", "seed": 0, "target_return": 5.0, "finished": None}
    return logs.RunLog(**{**fields, **options}, env_steps=tuple(steps), returns=tuple(returns))


def test_the_band_covers_the_steps_that_every_run_reached():
    steps, quartiles = band([curve_of([0, 10, 20], [0, 10, 20]), curve_of([5, 15], [1, 1]), curve_of([0, 20], [8, 8])])
    assert steps.tolist() == [5, 10, 15]
    assert quartiles[1].tolist() == [5, 8, 8]
    assert quartiles[0].tolist() == [3, 4.5, 4.5]


def test_a_confirmed_run_counts_on_in_the_band_and_any_other_end_ends_it():
    ended = {"confirmed": True, "mean_return": 7.0, "env_steps": 10}
    short = curve_of([0, 10], [0, 5], finished=ended)
    steps, quartiles = band([short, curve_of([0, 10, 20, 30], [0, 1, 3, 9], finished=ended)])
    assert steps.tolist() == [0, 10, 20, 30]
    assert quartiles[1].tolist() == [0, 3, 5, 8]  # 5 and 1, 7 and 3, 7 and 9
    for finished in (None, {**ended, "confirmed": False}):
        stopped = curve_of([0, 20], [0, 1], finished=finished)
        assert band([short, stopped, curve_of([0, 30], [0, 1], finished=ended)])[0].tolist() == [0, 10, 20]


def test_a_summary_has_the_first_step_at_the_target_and_the_end():
    assert summary(curve_of([10, 20], [1, 6])) == (
        "dqn on E-v0, seed 0: reached 5 after 20 steps; not finished; last greedy return 6.0 after 20 steps"
    )
    ended = {"confirmed": True, "mean_return": 5.5, "env_steps": 20}
    assert summary(curve_of([10], [1], finished=ended)).endswith("never reached 5; confirmed: 5.5 after 20 steps")


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


@pytest.mark.long
@pytest.mark.xdist_group("processes")  # with the other tests of roles: one fork server is enough for all of them
def test_the_same_command_runs_its_roles_in_processes_and_ctrl_c_saves_and_ends_all_of_them(start, reverie, tmp_path):
    command = ["train", "dqn", "--env", "CartPole-v1", "--runner", "process", "--num-actors", "2", "--no-tensorboard"]
    command += ["--json"]
    options = ["--set", "evaluate_every=200", "--set", "target_return=10000", "--set", "screening_episodes=1"]
    options += ["--set", "learning_starts=150"]
    endless = ["--set", "max_env_steps=1000000000"]
    process = start(*command, *options, *endless, stderr=subprocess.PIPE, session=True)
    for line in process.stderr:
        if "greedy return" in line:
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all processes of the group get it
            break
    rest = process.stderr.read()  # ends when the last process that has it open has ended
    assert process.wait(timeout=200) == 130
    assert "the same command with --resume continues from there" in rest
    assert "Traceback" not in rest
    folder = tmp_path / "runs" / "dqn-CartPole-v1-seed-0"
    first = checkpoints.load(checkpoints.find(folder))
    assert first["env_steps"] >= 200
    assert len(first["actors"]) == 2
    limit = first["env_steps"] + 300
    done = reverie(*command, *options, "--resume", "--set", f"max_env_steps={limit}")
    assert done.exit_code == 1, done.stderr
    assert json.loads(done.stdout)["env_steps"] >= limit
    lines = [json.loads(line) for line in (folder / logs.LOG).read_text().splitlines()]
    assert {"started", "progress", "evaluated", "saved", "finished"} <= {line["event"] for line in lines}
    assert any(line.get("policy_lag") is not None for line in lines)


def test_a_dry_run_of_processes_prints_each_role_and_starts_none(reverie, monkeypatch):
    from reverie.runners import process

    monkeypatch.setattr(process, "Processes", lambda: pytest.fail("a stage was made"))
    arguments = ["train", "apex-dqn", "--env", "CartPole-v1", "--runner", "process", "--num-actors", 3, "--dry-run"]
    text = reverie(*arguments)
    assert text.exit_code == 0, text.stderr
    for word in ("7 processes", "3 x actor, 1 CPU", "1 x shard", "1 x learner", "3 actors of 4 environments"):
        assert word in text.stdout
    printed = json.loads(reverie(*arguments, "--json").stdout)
    assert (printed["runner"], printed["processes"], printed["settings"]["agent"]["num_actors"]) == ("process", 7, 3)
    assert {place["role"]: place["count"] for place in printed["roles"]}["actor"] == 3


def test_a_dry_run_prints_the_learners_and_the_parameter_shards(reverie):
    numbers = ["--num-learners", 3, "--num-parameter-shards", 4]
    arguments = ["train", "gorila", "--env", "CartPole-v1", *numbers, "--runner", "process", "--dry-run"]
    text = reverie(*arguments)
    assert text.exit_code == 0, text.stderr
    for word in ("3 x learner, 1 CPU", "4 x parameter shard, 1 CPU", "3 learners on 4 parameter shards"):
        assert word in text.stdout
    settings = json.loads(reverie(*arguments, "--json").stdout)["settings"]["agent"]
    assert (settings["num_learners"], settings["num_parameter_shards"]) == (3, 4)


def test_impossible_layouts_are_refused_in_one_line(reverie):
    for arguments, words in (
        (["dqn", "--num-shards", 2], "num_shards is 2, and the runner 'local' has one shard"),
        (["ppo", "--runner", "process", "--num-shards", 2], "num_shards is 2, which ppo does not support"),
        (
            ["dqn", "--runner", "process", "--address", "auto"],
            "--address is for a Ray cluster, and --runner is process",
        ),
        (["dqn", "--runner", "process", "--num-actors", 0], "--num-actors"),
        (
            ["dqn", "--num-learners", 2],
            "--num-learners is 2, and dqn has one learner, which holds the parameters itself",
        ),
        (["ppo", "--num-parameter-shards", 2], "--num-parameter-shards is 2, and ppo has one learner"),
        (["gorila", "--num-learners", 0], "--num-learners"),
    ):
        result = reverie("train", *arguments, "--env", "CartPole-v1")
        assert result.exit_code == 2, arguments
        assert words in result.stderr


def test_a_dry_run_on_ray_prints_the_shards_and_needs_no_ray(reverie, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "reverie.runners.ray.cluster", raising=False)
    monkeypatch.delattr("reverie.runners.ray.cluster", raising=False)  # where a test before this one imported it
    arguments = ["train", "apex-dqn", "--env", "CartPole-v1", "--runner", "ray", "--num-shards", 3]
    text = reverie(*arguments, "--dry-run")
    assert text.exit_code == 0, text.stderr
    assert "3 x shard, 1 CPU: an actor of Ray" in text.stdout
    assert "with TLS and a token" in text.stdout
    missing = reverie(*arguments)
    assert missing.exit_code == 2
    assert 'pip install "reverie[ray]"' in missing.stderr


def test_short_flags_are_the_settings_that_they_stand_for(reverie):
    flags = ["--max-steps", 1234, "--batch-size", 16, "--learning-rate", 0.25, "--precision", "bfloat16"]
    flags += ["--envs-per-actor", 3, "--threads", 2, "--device", "cpu", "--num-actors", 5, "--compile", "off"]
    planned = reverie("train", "apex-dqn", "--env", "CartPole-v1", "--dry-run", "--json", *flags)
    assert planned.exit_code == 0, planned.stderr
    plan = json.loads(planned.stdout)
    settings = {**plan["settings"]["agent"], **plan["settings"]["run"]}
    expected = {
        "max_env_steps": 1234,
        "batch_size": 16,
        "learning_rate": 0.25,
        "precision": "bfloat16",
        "envs_per_actor": 3,
        "threads": 2,
        "device": "cpu",
        "num_actors": 5,
        "compile": "off",
    }
    assert {name: settings[name] for name in expected} == expected
    other = reverie("train", "apex-dqn", "--env", "CartPole-v1", "--dry-run", "--total-timesteps", 77)
    assert "at most 77 environment steps" in other.stdout
    shorter = reverie("train", "apex-dqn", "--env", "CartPole-v1", "--dry-run", "--json", "--lr", 0.5)
    assert json.loads(shorter.stdout)["settings"]["agent"]["learning_rate"] == 0.5


@pytest.mark.parametrize(
    ("name", "setting"),
    [("lr", "learning_rate"), ("gamma", "discount"), ("buffer_size", "capacity"), ("max_steps", "max_env_steps")],
)
def test_a_setting_by_the_name_that_other_libraries_have_is_refused_with_its_own(reverie, name, setting):
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--dry-run", "--set", f"{name}=1")
    assert result.exit_code == 2
    assert f"has no setting '{name}'; did you mean {setting}?" in result.stderr


def test_eval_of_a_folder_that_is_no_run_reports_that(reverie, tmp_path):
    (tmp_path / "plots").mkdir()
    result = reverie("eval", "plots")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "this folder is no run: it has neither log.jsonl nor checkpoints/; name a run's folder" in line


def test_short_flags_of_settings_that_an_agent_does_not_have_are_refused(reverie):
    for arguments, words in (
        (["sac", "--env", "Pendulum-v1", "--learning-rate", 0.1], "it has policy_learning_rate, critic_learning_rate"),
        (["ppo", "--env", "CartPole-v1", "--precision", "bfloat16"], "ppo has no setting precision: leave it out"),
        (["dqn", "--env", "CartPole-v1", "--precision", "int8"], "precision is 'int8'"),
        (["dqn", "--env", "CartPole-v1", "--max-steps", 0], "--max-steps"),
        (["dqn", "--env", "CartPole-v1", "--device", "gpu"], "device is 'gpu', and must be"),
        (["dqn", "--env", "CartPole-v1", "--device", "auto", "--runner", "ray"], "choose cpu or cuda"),
        (["ppo", "--env", "CartPole-v1", "--device", "cuda"], "is not supported by ppo, which runs on cpu"),
    ):
        result = reverie("train", *arguments, "--dry-run")
        assert result.exit_code == 2, arguments
        assert words in result.stderr


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


def test_quiet_prints_only_the_result_in_one_line(reverie):
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--quiet", *SHORT)
    assert result.exit_code == 1, result.stderr
    (line,) = result.stdout.splitlines()
    assert line.startswith("not reached: ")
    assert result.stderr == ""


def test_a_run_killed_before_its_first_checkpoint_starts_again_and_reports_it(reverie, tmp_path):
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "here", *SHORT]
    assert reverie(*command, "--set", "n_step=2").exit_code == 1
    shutil.rmtree(tmp_path / "here/checkpoints")
    assert "here holds a run" in reverie(*command).stderr
    again = reverie(*command, "--resume")
    assert again.exit_code == 1, again.stderr
    assert "here has no checkpoint yet: the run starts from the beginning" in again.stderr
    assert "resuming" not in again.stdout
    read = logs.read(Path("here"))
    assert [round(step, -2) for step in read.env_steps] == [500, 1_000, 1_300]
    assert "n_step = 2" in Path("here/preset.toml").read_text(), "the settings are still those of the run"
    assert reverie(*command, "--resume", "--max-steps", 1500).exit_code == 1, "and now there is a checkpoint"
