"""The runs of a row, the command that starts one, and the contents of its file."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from result_files import run_of

import reverie
from reverie.runners.reports.evaluation import Evaluator


def test_each_row_has_seeds_of_its_own_and_those_that_stop_at_a_target_the_ones_that_chose_nothing(
    learn: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    main, began = sys.modules["benchmarks.learn.__main__"], []

    def run(row: Any, seed: int, folder: Path, left: float | None) -> None:
        began.append((row.name, seed))
        raise main.RunError("not trained here")

    monkeypatch.setattr(main, "run", run)
    monkeypatch.setattr(main, "RESULTS", tmp_path)
    names = ["cartpole-dqn", "defaults-acrobot-dqn", "parts-all"]
    assert main.work(names, None, None) == 1
    assert began[:3] == [("cartpole-dqn", 100), ("defaults-acrobot-dqn", 100), ("parts-all", 0)], "seeds are outside"
    assert [[seed for name, seed in began if name == row] for row in names] == [
        [100, 101, 102, 103, 104],
        [100, 101, 102],
        [0, 1, 2],
    ]
    began.clear()
    main.work(names[:1], [7], None)
    assert began == [("cartpole-dqn", 7)]


@pytest.mark.long
def test_a_file_has_the_command_and_the_score_of_its_last_weights(learn: Any, tmp_path: Path) -> None:
    from benchmarks.learn import runs

    row = dataclasses.replace(learn.rows.ROWS["cartpole-dqn"], by=1_500)
    found = runs.run(row, 100, tmp_path / "run", None)
    assert found is not None
    assert found["command"].startswith(
        "reverie train dqn --env CartPole-v1 --seed 100 --out FOLDER --set target_return"
    )
    evaluator = Evaluator("CartPole-v1", 100)
    policy = reverie.load_policy(tmp_path / "run")
    played = evaluator.evaluate(policy, tuple(range(30_000, 30_100)))
    evaluator.close()
    assert found["score"] == {"mean_return": pytest.approx(played.mean_return, rel=0.02), "num_episodes": 100}
    assert policy.run.env_steps == found["env_steps"]
    again = runs.run(row, 100, tmp_path / "run", None)
    assert again == found, "it was trained, and is scored alone"
    with pytest.raises(runs.RunError, match=r"has a run of `reverie train dqn .*n_step=5.*remove the folder"):
        runs.run(dataclasses.replace(row, settings=("n_step=5",)), 100, tmp_path / "run", None)
    (tmp_path / "run" / runs.TRAINED).write_text(json.dumps(found | {"env_steps": 7}))
    with pytest.raises(runs.RunError, match=r"its newest checkpoint is of 1,50\d steps, and the run of 7"):
        runs.run(row, 100, tmp_path / "run", None)
    assert runs.run(row, 100, tmp_path / "run", 0.01) is None, "its time is up before it is scored"


def test_a_seed_with_a_file_is_left_out_and_reported_unless_it_is_to_be_trained_again(
    learn: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = sys.modules["benchmarks.learn.__main__"]
    name, results, folders = "cartpole-dqn", tmp_path / "results", tmp_path / "runs"
    monkeypatch.setattr(main, "RESULTS", results)
    monkeypatch.setattr(main, "RUNS", folders)
    monkeypatch.setattr(main.report, "write", lambda *_: None)
    left: list[tuple[int, list[str]]] = []

    def run(row: Any, seed: int, folder: Path, seconds: float | None) -> dict[str, Any]:
        left.append((seed, sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())))
        return run_of(row, seed)

    monkeypatch.setattr(main, "run", run)
    (folders / name / "seed-100").mkdir(parents=True)
    (folders / name / "seed-100" / "trained.json").write_text("{}")
    (results / name).mkdir(parents=True)
    for kept in ("seed-100.json", "unfinished-100.json"):
        (results / name / kept).write_text("{}")
    monkeypatch.setattr(sys, "argv", ["learn", "--rows", name, "--seeds", "100"])
    assert main.main() == 0
    assert not left
    assert f"{name}, seed 100: has a file, which stays (--again)" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--again"])
    assert main.main() == 0
    assert left == [(100, [])], "it starts from nothing"
    assert json.loads((results / name / "seed-100.json").read_text())["seed"] == 100


def test_a_row_of_another_library_is_run_by_its_worker_and_names_the_library(
    learn: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.learn import runs

    def worker(text: str) -> Any:
        """Instead of the library's environment: an interpreter that runs this text, whatever it is asked for."""
        script = tmp_path / "worker"
        script.write_text(f"#!{sys.executable}\nimport sys\n{text}\n")
        script.chmod(0o755)
        monkeypatch.setattr(runs, "python_of", lambda peer: script)

    row = learn.rows.ROWS["control-hopper-sb3-sac"]
    worker(
        """print('{"library": "sb3 1", "mean_return": 5.0, "num_episodes": 100, "curve": [[10000, 1.0]]}');"""
        + " assert sys.argv[3:] == "
        + (f"['Hopper-v5', '4', '{row.by}', {str(tmp_path)!r}]")
    )
    found = runs.run(row, 4, tmp_path, None)
    assert found is not None
    assert (found["row"], found["seed"], found["library"]) == (row.name, 4, "sb3 1")
    assert found["target_return"] == 3800.0
    assert found["machine"]
    assert not found["confirmed"]
    assert found["score"] == {"mean_return": 5.0, "num_episodes": 100}
    assert found["command"] == f"python -m workers.walkers_sb3 Hopper-v5 4 {row.by}"
    with pytest.raises(runs.RunError, match="which does not take device=cuda"):
        runs.run(dataclasses.replace(row, settings=("device=cuda",)), 4, tmp_path, None)
    worker("sys.exit('no such environment')")
    with pytest.raises(runs.RunError, match="control-hopper-sb3-sac, seed 4: exit code 1: no such environment"):
        runs.run(row, 4, tmp_path, None)
    worker("import time; time.sleep(60)")
    assert runs.run(row, 4, tmp_path, 0.2) is None, "its time is up"


def test_a_row_without_velocities_trains_with_that_preset_and_is_another_task_of_the_same_environment(
    learn: Any,
) -> None:
    hidden, plain = (learn.rows.ROWS[name] for name in ("cartpole-no-velocities-ppo", "cartpole-ppo"))
    words = hidden.arguments(3, "folder")
    assert words[words.index("--config") + 1] == "no-velocities"
    assert "--config" not in plain.arguments(3, "folder")
    assert (hidden.task, plain.task) == ("CartPole-v1 without velocities", "CartPole-v1")
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in learn.rows.ROWS}
    results[hidden.name] = [run_of(hidden, 0)]
    overview = "| [`ppo`](x) | a paper | both | CartPole-v1 | old |\n| | | | CartPole-v1 without velocities | old |"
    first, second = learn.readmes.with_cells(overview, results).splitlines()
    assert first.endswith("| old |")
    assert second.endswith("| 475 on 20 other episodes: 3 k to 3 k steps, 1 of 1 seeds |")
