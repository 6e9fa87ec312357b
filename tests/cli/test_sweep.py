import dataclasses
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest

pytest.importorskip("torch")
testing = pytest.importorskip("typer.testing")

from reverie import _memory, agents  # noqa: E402
from reverie.agents import presets  # noqa: E402
from reverie.cli import sweep, sweep_view, video  # noqa: E402
from reverie.cli.run_processes import RunProcesses  # noqa: E402
from reverie.cli.sweep import parse_seeds  # noqa: E402
from reverie.cli.train_request import TrainRequest  # noqa: E402
from reverie.runners import checkpoints  # noqa: E402

SHORT = ["--set", "max_env_steps=1100", "--set", "evaluate_every=500"]
SHORT += ["--set", "screening_episodes=2", "--set", "confirmation_episodes=3"]


def of_seed(seed, **changes):
    """A run's result, whose log could not be written."""
    names = {"agent": "dqn", "env_id": "CartPole-v1", "seed": seed, "target_return": 475.0, "folder": "nowhere"}
    numbers = {"env_steps": 1_100, "seconds": 1.0, "confirmed": False, "mean_return": 9.5, "num_episodes": 20}
    return {**names, **numbers, **changes}


def test_seeds_are_ranges_and_lists():
    assert parse_seeds("0-4") == (0, 1, 2, 3, 4)
    assert parse_seeds("7") == (7,)
    assert parse_seeds("0-1, 5,3") == (0, 1, 5, 3)


@pytest.mark.parametrize("text", ["", "a", "0-", "3-1", "-2", "1,1", "0-2,2", "1.5"])
def test_invalid_seeds_are_refused_in_one_line(reverie, text):
    result = reverie("train", "dqn", "--env", "CartPole-v1", f"--seeds={text}")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"reverie: seeds are {text!r}: ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "capacity=10_000_000_000"], "lower the capacity"),
        (["--set", "n_stp=3"], "did you mean n_step?"),
        (["--jobs", "1000"], "3 runs at a time need about"),
        (["--seed", "0"], "--seed is 0 and --seeds 3-5: give one of them"),
    ],
)
def test_errors_of_every_run_of_a_sweep_are_reported_once(reverie, monkeypatch, options, words):
    monkeypatch.setattr(RunProcesses, "train", lambda *arguments: pytest.fail("a run began"))
    monkeypatch.setattr(_memory, "available_memory", lambda: 2**30)
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--seeds", "3-5", *options)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert words in line


@pytest.mark.long
def test_the_memory_of_this_machine_does_not_limit_a_sweep_on_a_cluster(reverie, monkeypatch):
    asked = []
    monkeypatch.setattr(RunProcesses, "train", lambda runs, request: asked.append(request) or (2, None))
    monkeypatch.setattr(_memory, "available_memory", lambda: 2**20)
    options = ["--seeds", "3,4", "--jobs", "2"]
    reverie("train", "dqn", "--env", "CartPole-v1", *options, "--runner", "ray", "--address", "auto")
    reverie("train", "dqn", "--env", "CartPole-v1", *options, "--no-check-memory")
    assert [(one.address, one.check_memory) for one in asked] == [
        ("auto", True),
        ("auto", True),
        (None, False),
        (None, False),
    ]
    assert reverie("train", "dqn", "--env", "CartPole-v1", *options).exit_code == 2
    assert len(asked) == 4


def test_sweep_is_another_name_of_seeds(reverie):
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--sweep", "3-5", "--seed", 1)
    assert result.exit_code == 2
    assert "--seed is 1 and --seeds 3-5: give one of them" in result.stderr


def test_a_run_of_a_sweep_gets_every_option_of_the_sweep_and_its_own_seed_and_folder(reverie, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(RunProcesses, "train", lambda runs, request: asked.append(request) or (2, None))
    (tmp_path / "here/seed-4/checkpoints").mkdir(parents=True)
    options = [
        "--set",
        "n_step=2",
        "--set",
        "discount=0.9",
        "--threads",
        2,
        "--until-max-steps",
        "--no-tensorboard",
        "--resume",
    ]
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--seeds", "3,4", "--out", "here", "--jobs", 2, *options)
    assert result.exit_code == 2
    assert "no result from seed 3, 4" in result.stderr
    common = {
        "agent": "dqn",
        "env": "CartPole-v1",
        "settings": ("n_step=2", "discount=0.9"),
        "short_flags": {"threads": 2},
    }
    common |= {"until_max_steps": True, "tensorboard": False, "to_stderr": True, "silent": True}
    # A run that has not begun begins then.
    assert sorted(asked, key=lambda one: one.seed) == [
        TrainRequest(seed=3, out=Path("here/seed-3"), resume=True, **common),
        TrainRequest(seed=4, out=Path("here/seed-4"), resume=True, **common),
    ]


@pytest.mark.long
def test_a_sweep_trains_every_seed_and_prints_a_summary(reverie, tmp_path):
    command = [
        "train",
        "dqn",
        "--env",
        "CartPole-v1",
        "--seeds",
        "1-2",
        "--no-tensorboard",
        *SHORT,
        "--set",
        "epsilon_steps=100",
    ]
    result = reverie(*command, "--jobs", 2, "--json")
    assert result.exit_code == 1, result.stderr
    (line,) = result.stdout.splitlines()
    printed = json.loads(line)
    assert [run["seed"] for run in printed["runs"]] == [1, 2]
    scores = [run["mean_return"] for run in printed["runs"]]
    assert printed["interquartile_mean"] == pytest.approx(sum(scores) / 2)
    assert printed["interval"] == pytest.approx(sorted(scores))
    assert printed["confirmed"] == 0
    folder = tmp_path / "runs" / "dqn-CartPole-v1"
    assert {path.name for path in folder.iterdir()} == {"seed-1", "seed-2", "curves.png"}
    lines = result.stderr.splitlines()
    assert sorted(line.partition(":")[0] for line in lines[:2]) == [
        f"dqn on CartPole-v1, seed {seed}" for seed in (1, 2)
    ]
    assert "0 of 2 seeds confirmed" in lines[2]
    assert lines[3:] == ["learning curves: runs/dqn-CartPole-v1/curves.png"]


def test_a_run_of_a_sweep_that_ended_without_a_result_is_named_and_not_left_out_of_the_mean(reverie, monkeypatch):
    monkeypatch.setattr(RunProcesses, "train", lambda runs, request: (1, None if request.seed == 4 else of_seed(3)))
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--seeds", "3,4", "--no-tensorboard")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == ["reverie: no result from seed 4"]
    assert result.stdout.splitlines() == ["dqn on CartPole-v1, seed 3: not reached: 9.5 after 1,100 steps"]


def progress(env_steps, seconds):
    return {"event": "progress", "env_steps": env_steps, "seconds": seconds}


def test_a_seed_has_one_line_with_its_steps_its_return_and_the_time_left(tmp_path):
    def state(*lines, torn=""):
        (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + torn)
        return sweep_view.state(tmp_path)

    assert sweep_view.state(tmp_path) == "has not begun"
    started = {"event": "started", "target_return": 475.0, "run": {"max_env_steps": 100_000}}
    assert state(torn='{"event"') == state(started) == "is starting"
    assert state(started, progress(0, 60.0)) == "0 of at most 100,000 steps"
    course = [started, progress(0, 60.0), {"event": "evaluated", "mean_return": 21.25}, progress(40_000, 100.0)]
    assert (
        state(*course, torn='{"ev')
        == "40,000 of at most 100,000 steps, greedy return 21.2 of 475, at most 1 min 0 s left"
    )
    # Only the end of a long log is read: the rate is the recent one.
    many = [progress(step, 60.0 + step) for step in range(2_000)]
    assert state(*course[:2], *many, progress(50_000, 3_000.0)).startswith("50,000 of at most 100,000 steps, at most ")
    assert state(*course, {"event": "finished"}) == "has ended"


def test_the_view_of_a_sweep_is_for_a_terminal_unless_quiet(tmp_path, monkeypatch):
    import io

    def written(*, quiet):
        terminal = io.StringIO()
        terminal.isatty = lambda: True
        monkeypatch.setattr("sys.stderr", terminal)
        with sweep_view.shown({"seed 7": tmp_path}, as_json=True, quiet=quiet):
            pass
        return terminal.getvalue()

    monkeypatch.setenv("TERM", "xterm")
    assert "has not begun" in written(quiet=False)
    assert written(quiet=True) == ""


@pytest.mark.long
def test_other_output_of_a_run_does_not_hide_its_result(reverie, tmp_path):
    (tmp_path / "noisy.py").write_text(
        "import atexit, gymnasium\n"
        "gymnasium.register('Noisy-v0', 'gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=500)\n"
        "atexit.register(print, 'goodbye')\n"
    )
    command = ["train", "dqn", "--env", "noisy:Noisy-v0", "--config", "CartPole-v1", "--seeds", "1", "--no-tensorboard"]
    result = reverie(*command, *SHORT, "--target-return", "475", "--json")
    assert result.exit_code == 1, result.stderr
    (line,) = result.stdout.splitlines()
    assert [run["seed"] for run in json.loads(line)["runs"]] == [1]
    assert "[seed 1] goodbye" in result.stderr


@pytest.mark.long
def test_ctrl_c_ends_every_run_of_a_sweep_and_each_of_them_saves(start, tmp_path):
    """Ctrl-C reaches the whole group, as in a terminal. Each run gets it once, since a second would prevent a save."""
    command = [
        "train",
        "dqn",
        "--env",
        "CartPole-v1",
        "--seeds",
        "0-2",
        "--jobs",
        "2",
        "--out",
        "runs",
        "--no-tensorboard",
        "--until-max-steps",
    ]
    command += ["--set", "max_env_steps=1000000000", "--set", "evaluate_every=1000000000"]
    sweep_of_all = start(*command, stderr=subprocess.PIPE, session=True)

    def trains(seed):
        log = tmp_path / f"runs/seed-{seed}/log.jsonl"
        return log.exists() and b'"progress"' in log.read_bytes()

    children: set[str] = set()
    try:
        while not (trains(0) and trains(1)):
            assert sweep_of_all.poll() is None, sweep_of_all.stderr.read()
            threading.Event().wait(0.05)
        tasks = Path(f"/proc/{sweep_of_all.pid}/task").iterdir()
        children.update(child for task in tasks for child in (task / "children").read_text().split())
        # Else the second of two signals, the terminal's and the sweep's, may come before the first is done with.
        assert sweep_of_all.pid not in {os.getpgid(int(child)) for child in children}
        os.killpg(sweep_of_all.pid, signal.SIGINT)
        stderr = sweep_of_all.stderr.read()
        assert sweep_of_all.wait(200) == 130, stderr
    finally:
        if sweep_of_all.poll() is None:
            sweep_of_all.close()
            for child in children:
                os.kill(int(child), signal.SIGKILL)
    assert len(children) == 2
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
    for seed in (0, 1):
        assert f"[seed {seed}] reverie: stopped after" in stderr
        assert checkpoints.load(checkpoints.find(tmp_path / f"runs/seed-{seed}"))["env_steps"] > 0
    assert not (tmp_path / "runs/seed-2").exists()
    assert "dqn on CartPole-v1, seed 1: never reached 475; not finished, and never evaluated" in stderr
    assert "interrupted after 0 of 3 runs; the same command with --resume continues" in stderr


@pytest.mark.long
def test_a_resumed_sweep_skips_finished_runs_and_starts_the_others(reverie, tmp_path, monkeypatch):
    started = {"event": "started", "env_steps": 0, "agent": "dqn", "env_id": "CartPole-v1", "target_return": 475.0}
    started["config"] = {}

    def had(seed, *, confirmed, env_steps):
        folder = tmp_path / f"runs/seed-{seed}"
        (folder / "checkpoints").mkdir(parents=True)
        end = {"confirmed": confirmed, "env_steps": env_steps, "seconds": 1.0, "mean_return": 480.0, "num_episodes": 20}
        lines = [{**started, "seed": seed}, *([{"event": "finished", **end}] if env_steps else [])]
        (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    had(0, confirmed=True, env_steps=400)
    had(1, confirmed=False, env_steps=1100)
    had(2, confirmed=False, env_steps=0)  # interrupted
    asked = {}

    def train(runs, request):
        seed = request.seed
        asked[seed] = request.resume
        had(seed + 10, confirmed=True, env_steps=900)
        ended = {"mean_return": 490.0, "target_return": 475.0, "confirmed": True}
        return 0, {**ended, "seed": seed, "folder": f"runs/seed-{seed + 10}"}

    monkeypatch.setattr(RunProcesses, "train", train)
    command = ["train", "dqn", "--env", "CartPole-v1", "--seeds", "0-3", "--out", "runs", "--resume", "--json"]
    result = reverie(*command, "--set", "max_env_steps=1100")
    assert result.exit_code == 1, result.stderr
    assert asked == {2: True, 3: True}
    runs = json.loads(result.stdout.splitlines()[-1])["runs"]
    assert [(run["seed"], run["mean_return"]) for run in runs] == [(0, 480.0), (1, 480.0), (2, 490.0), (3, 490.0)]
    asked.clear()
    for seed in (12, 13):
        shutil.rmtree(tmp_path / f"runs/seed-{seed}")
    # With more steps to go what was not confirmed goes on; to the end, what was confirmed too.
    assert reverie(*command, "--set", "max_env_steps=1200").exit_code == 0
    assert asked == {1: True, 2: True, 3: True}
    asked.clear()
    for seed in (11, 12, 13):
        shutil.rmtree(tmp_path / f"runs/seed-{seed}")
    reverie(*command, "--set", "max_env_steps=1100", "--until-max-steps")
    assert asked == {0: True, 2: True, 3: True}


def test_a_resumed_sweep_takes_steps_from_the_runs_own_settings_and_compares_the_present_target(tmp_path):
    folder, dqn = tmp_path / "seed-0", agents.find("dqn")
    folder.mkdir()
    preset = dqn.load_preset("CartPole-v1")
    own = dataclasses.replace(preset, run=dataclasses.replace(preset.run, max_env_steps=700, target_return=50.0))
    (folder / "preset.toml").write_text(presets.dump(own))
    started = {"event": "started", "env_steps": 0, "agent": "dqn", "env_id": "CartPole-v1", "seed": 0, "config": {}}
    point = {"event": "evaluated", "env_steps": 400, "seconds": 1.0, "mean_return": 60.0}
    end = {"event": "finished", "seconds": 1.0, "confirmed": True, "mean_return": 70.0, "num_episodes": 2}

    def found(steps, *settings, **options):
        lines = [{**started, "target_return": 50.0}, point, {**end, "env_steps": steps}]
        (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        request = TrainRequest(agent="dqn", env="CartPole-v1", out=folder, settings=settings, resume=True, **options)
        result = sweep.find_finished(request)
        return None if result is None else (result["confirmed"], result["target_return"])

    assert found(400) == (True, 50.0)
    assert found(400, until_max_steps=True) is None
    assert found(700, until_max_steps=True) == (True, 50.0)
    assert found(700, "max_env_steps=800", until_max_steps=True) is None
    for higher in (65, 75):  # above the mean of one set of seeds, or of both
        assert found(400, f"target_return={higher}") is None
        assert found(700, f"target_return={higher}") == (False, higher)
    for other in ("learning_rate=0.5", "time_limit=9", "screening_episodes=77"):
        assert found(700, other) is None, "the run itself refuses it: it was not trained so"
    assert found(700, "threads=2") == (True, 50.0)
    folders = {"out": folder, "resume": True}
    missed = sweep.find_finished(TrainRequest(agent="dqn", env="CartPole-v1", settings=["target_return=75"], **folders))
    assert "never reached 75; not reached: 70.0" in sweep._summary(missed)


@pytest.fixture
def trained(reverie):
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "run", *SHORT)
    assert result.exit_code == 1, result.stderr
    return "run"


@pytest.mark.long
def test_eval_writes_an_episode_as_a_video(reverie, trained, tmp_path):
    moviepy = pytest.importorskip("moviepy")
    pytest.importorskip("pygame")
    result = reverie("eval", trained, "--episodes", 2, "--video", "films/one.mp4", "--json")
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout.splitlines()[-1])
    assert printed["video"] == "films/one.mp4"
    length = int(printed["returns"][0])  # CartPole pays 1 a step
    assert f"video: films/one.mp4, {length + 1} frames, return {length}.0, seed 30000" in result.stderr
    with moviepy.VideoFileClip(str(tmp_path / "films/one.mp4")) as clip:
        assert clip.size == [600, 400]
        assert abs(clip.n_frames - (length + 1)) <= 1


@pytest.mark.long
def test_a_video_that_cannot_be_written_is_refused_before_any_episode(reverie, trained, monkeypatch):
    refused = reverie("eval", trained, "--video", "one.gif")
    assert refused.exit_code == 2
    assert "video is 'one.gif', and must end in .mp4" in refused.stderr
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "moviepy" else find(name))
    refused = reverie("eval", trained, "--video", "one.mp4")
    assert refused.exit_code == 2
    assert 'moviepy not installed: pip install "reverie[video]"' in refused.stderr


@pytest.mark.long
def test_a_game_is_shown_as_the_agent_sees_it(tmp_path, monkeypatch):
    pytest.importorskip("ale_py")
    moviepy = pytest.importorskip("moviepy")
    import numpy as np

    from reverie.agents import atari

    monkeypatch.setattr(atari, "FRAMES_PER_EPISODE", 120)
    path = tmp_path / "pong.mp4"
    _, frames = video.record("ALE/Pong-v5", lambda obs: np.zeros(len(obs), np.int64), 0, path)
    assert frames <= 31
    with moviepy.VideoFileClip(str(path)) as clip:
        assert clip.size == [336, 336]
        assert clip.fps == 15
