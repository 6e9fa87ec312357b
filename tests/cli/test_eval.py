"""`reverie eval`: the weights of a checkpoint play."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")

from reverie.runners import checkpoints
from reverie.runners.reports import logs


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


@pytest.mark.long
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


def test_eval_of_a_folder_that_is_no_run_reports_that(reverie, tmp_path):
    (tmp_path / "plots").mkdir()
    result = reverie("eval", "plots")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "this folder is not a run: it has neither log.jsonl nor checkpoints/; name a run's folder" in line


def test_an_environment_that_raises_ends_eval_in_one_line_with_its_seed_and_step(reverie, trained_run, monkeypatch):
    import gymnasium.envs.classic_control.cartpole as cartpole

    def raising(env, action):
        raise RuntimeError("the simulator is gone")

    monkeypatch.setattr(cartpole.CartPoleEnv, "step", raising)
    result = reverie("eval", trained_run, "--episodes", 2)
    assert result.exit_code == 3
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        "reverie: CartPole-v1 raised at step 1 from seed 30000: RuntimeError: the simulator is gone ("
    )
