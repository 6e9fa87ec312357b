import importlib.util
import json

import pytest

pytest.importorskip("torch")
testing = pytest.importorskip("typer.testing")

from reverie.cli import sweep, video  # noqa: E402
from reverie.cli.app import app  # noqa: E402
from reverie.cli.sweep import parse_seeds  # noqa: E402

SHORT = ["--set", "max_env_steps=1100", "--set", "evaluate_every=500"]


@pytest.fixture
def reverie(tmp_path, monkeypatch):
    """Runs `reverie` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: testing.CliRunner().invoke(app, [str(one) for one in arguments])


def test_seeds_are_ranges_and_lists():
    assert parse_seeds("0-4") == (0, 1, 2, 3, 4)
    assert parse_seeds("7") == (7,)
    assert parse_seeds("0-1, 5,3") == (0, 1, 5, 3)


@pytest.mark.parametrize("text", ["", "a", "0-", "3-1", "-2", "1,1", "0-2,2", "1.5"])
def test_what_is_no_list_of_seeds_is_refused_in_one_line(reverie, text):
    result = reverie("train", "dqn", "--env", "CartPole-v1", f"--seeds={text}")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"reverie: seeds are {text!r}: ")


def test_a_run_of_a_sweep_gets_every_option_of_the_sweep_and_its_own_seed_and_folder(reverie, monkeypatch):
    asked = []
    monkeypatch.setattr(sweep, "_train", lambda arguments, seed, processes: asked.append(arguments) or (2, None))
    options = ["--set", "n_step=2", "--set", "discount=0.9", "--to-the-end", "--no-tensorboard", "--resume"]
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--seeds", "3,4", "--out", "here", "--jobs", 2, *options)
    assert result.exit_code == 2
    assert "no result from seed 3, 4" in result.stderr
    assert sorted(asked)[1] == [
        *("train", "dqn", "--env", "CartPole-v1", "--set", "n_step=2", "--set", "discount=0.9"),
        *("--resume", "--to-the-end", "--no-tensorboard", "--seed", "4", "--out", "here/seed-4", "--json"),
    ]


def test_a_sweep_trains_every_seed_and_says_what_they_reached_together(reverie, tmp_path):
    command = ["train", "dqn", "--env", "CartPole-v1", "--seeds", "1-2", "--no-tensorboard", *SHORT]
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
    assert "[seed 1] dqn on CartPole-v1, seed 1:" in result.stderr
    assert "0 of 2 seeds confirmed" in result.stderr


@pytest.fixture
def trained(reverie):
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "run", *SHORT)
    assert result.exit_code == 1, result.stderr
    return "run"


def test_eval_writes_an_episode_as_a_video(reverie, trained, tmp_path):
    moviepy = pytest.importorskip("moviepy")
    pytest.importorskip("pygame")
    result = reverie("eval", trained, "--episodes", 2, "--video", "films/one.mp4", "--json")
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout.splitlines()[-1])
    assert printed["video"] == "films/one.mp4"
    length = int(printed["returns"][0])  # CartPole pays 1 a step
    assert f"video: films/one.mp4, {length + 1} pictures, return {length}.0, seed 30000" in result.stderr
    with moviepy.VideoFileClip(str(tmp_path / "films/one.mp4")) as clip:
        assert clip.size == [600, 400]
        assert abs(clip.n_frames - (length + 1)) <= 1


def test_a_video_that_cannot_be_made_is_refused_before_any_episode(reverie, trained, monkeypatch):
    refused = reverie("eval", trained, "--video", "one.gif")
    assert refused.exit_code == 2
    assert "video is 'one.gif', and must end in .mp4" in refused.stderr
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "moviepy" else find(name))
    refused = reverie("eval", trained, "--video", "one.mp4")
    assert refused.exit_code == 2
    assert 'moviepy not installed: pip install "reverie[video]"' in refused.stderr


def test_a_game_is_shown_as_the_agent_sees_it(tmp_path, monkeypatch):
    pytest.importorskip("ale_py")
    moviepy = pytest.importorskip("moviepy")
    import numpy as np

    from reverie.agents import atari

    monkeypatch.setattr(atari, "FRAMES_PER_EPISODE", 120)
    path = tmp_path / "pong.mp4"
    _, pictures = video.record("ALE/Pong-v5", lambda obs: np.zeros(len(obs), np.int64), 0, path)
    assert pictures <= 31
    with moviepy.VideoFileClip(str(path)) as clip:
        assert clip.size == [336, 336]
        assert clip.fps == 15
