"""Several pages show results; all of them match the runs."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

import reverie
from reverie.runners.reports.evaluation import Evaluator

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def learn(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT)
    import benchmarks.learn.__main__
    import benchmarks.learn.curves
    import benchmarks.learn.readmes
    import benchmarks.learn.replays
    import benchmarks.learn.report
    import benchmarks.learn.scores

    return benchmarks.learn


def test_every_page_with_results_is_what_make_bench_learn_writes(learn: Any) -> None:
    main = sys.modules["benchmarks.learn.__main__"]
    texts = learn.report.texts(learn.scores.read(main.RESULTS), main.RESULTS, main.PAGE, main.AGENTS, main.REPLAY_PAGE)
    assert len(texts) == 3 + len(list(main.AGENTS.glob("*/README.md")))
    for path, text in texts.items():
        assert path.read_text() == text, f"{path} says something else: python -m benchmarks.learn --report"


def run_of(row: Any, seed: int, *, confirmed: bool = True) -> dict[str, Any]:
    return {
        "row": row.name,
        "env_id": row.env_id,
        "seed": seed,
        "env_steps": 1_000 * (seed + 3),
        "confirmed": confirmed,
        "mean_return": 400.0 + seed,
        "num_episodes": 20,
        "target_return": row.reach,
        "settings": list(row.settings),
        "curve": [[1_000, 0.0], [2_000, 300.0]],
        "cpu_seconds": 9.0,
        "date": "2026-11-28 09:00 UTC",
        "machine": {"cpu": "AMD EPYC"},
    }


def scored(run: dict[str, Any], mean_return: float) -> dict[str, Any]:
    """A run whose last weights have played episodes that decided nothing."""
    return {**run, "score": {"mean_return": mean_return, "num_episodes": 100}}


def test_a_score_is_of_episodes_that_decided_nothing_and_is_marked_where_there_are_none(learn: Any) -> None:
    row = learn.rows.ROWS["cartpole-dqn"]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in learn.rows.ROWS}
    results[row.name] = [scored(run_of(row, seed), 470.0 + seed) for seed in range(5)]
    (line,) = [line for line in learn.report.targets_table(results).splitlines() if "CartPole-v1 | dqn" in line]
    assert "| 472.0 [47" in line
    assert "| 5 of 5 | 5,000 (3,000 to 7,000) |" in line
    assert "| **no** | 0 to 4; AMD EPYC; 2026-11-28 |" in line, "all reached it once, and their weights do not"
    results[row.name][2] = run_of(row, 2)
    (line,) = [line for line in learn.report.targets_table(results).splitlines() if "CartPole-v1 | dqn" in line]
    assert "] * | 5 of 5 |" in line


def test_a_run_that_does_not_stop_reaches_its_target_by_its_score(learn: Any) -> None:
    row = learn.rows.ROWS["lunarlander-apex-dqn"]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in learn.rows.ROWS}
    means = [249.0, 255.0, 260.0, 260.0, 251.0]
    results[row.name] = [scored(run_of(row, s, confirmed=s == 0), mean) for s, mean in enumerate(means)]
    (line,) = [line for line in learn.report.targets_table(results).splitlines() if "LunarLander-v3 | apex" in line]
    assert "| 4 of 5 | no stop | 9 s | yes |" in line
    (line,) = [line for line in learn.readmes.agent_table("apex-dqn", results).splitlines() if "LunarLander" in line]
    assert "| 4 of 5 | no stop | 249, 255, 260, 260, 251 (of 100) |" in line
    line = learn.readmes.with_cells("| [`apex_dqn`](x) | a paper | discrete | LunarLander-v3 | old |", results)
    assert line.endswith("| 250 on 100 other episodes after 300 k steps: 4 of 5 seeds |")


def test_a_row_of_three_seeds_has_a_verdict_when_all_are_run_and_needs_all_of_them(learn: Any) -> None:
    row = learn.rows.ROWS["bipedalwalker-sac"]
    runs = [scored(run_of(row, seed), 295.0) for seed in row.seeds]
    assert learn.report.verdict(row, runs[:2]) == "2 of 3 seeds run"
    assert learn.report.verdict(row, runs) == "yes"
    assert learn.report.verdict(row, [*runs[:2], {**runs[2], "confirmed": False}]) == "**no**"
    assert learn.report.verdict(row, [*runs[:2], scored(runs[2], 279.0)]) == "**no**"


def test_seeds_that_chose_nothing_replace_the_others_as_soon_as_there_are_as_many(learn: Any, tmp_path: Path) -> None:
    row = learn.rows.ROWS["cartpole-dqn"]
    folder = tmp_path / row.name
    folder.mkdir()

    def seeds_after(*seeds: int) -> list[int]:
        for seed in seeds:
            (folder / f"seed-{seed}.json").write_text(json.dumps(run_of(row, seed)))
        return [run["seed"] for run in learn.scores.read(tmp_path)[row.name]]

    assert seeds_after(0, 1, 2) == [0, 1, 2]
    assert seeds_after(100, 101) == [0, 1, 2]
    assert seeds_after(104) == [100, 101, 104]
    assert learn.scores.seeds(learn.scores.read(tmp_path)[row.name]) == "100, 101, 104"


def test_files_of_other_settings_than_the_rows_are_left_out_but_for_the_device(learn: Any, tmp_path: Path) -> None:
    row = learn.rows.ROWS["bitflips-dqn-her"]
    (tmp_path / row.name).mkdir()
    for seed, settings in enumerate([row.settings, (*row.settings, "device=cuda"), row.settings[:-1]]):
        file = tmp_path / row.name / f"seed-{seed}.json"
        file.write_text(json.dumps(run_of(row, seed) | {"settings": list(settings)}))
    assert [run["seed"] for run in learn.scores.read(tmp_path)[row.name]] == [0, 1]


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


def test_a_seed_that_does_not_reach_the_target_counts_as_later_than_all_others(learn: Any) -> None:
    row = learn.rows.ROWS["cartpole-dqn"]
    runs = [run_of(row, seed, confirmed=seed < 3) for seed in range(5)]
    assert learn.scores.median_steps(runs) == 5_000
    assert learn.scores.median_steps(runs[1:]) == float("inf")
    assert "| 2 of 4 | > 100,000 (4,000 to > 100,000)" in learn.report._reached(row, runs[1:])
    assert learn.report._reached(row, runs[3:]).endswith("| 0 of 2 | -")


def test_curves_of_equal_length_are_compared_at_equal_numbers_of_updates(learn: Any) -> None:
    one, four = learn.rows.ROWS["actors-1"], learn.rows.ROWS["actors-4"]
    assert one.points == list(range(1_500, 11_001, 500))
    assert four.points == list(range(3_000, 41_001, 2_000))
    assert [len(row.points) for row in learn.rows.ROWS.values() if row.group == learn.row.PARTS] == [10] * 11
    # Returns that rise with the updates alone: evaluated at other steps, and more often, they have the same mean.
    for row in (one, four):
        end = row.by - row.first
        steps = [0, row.first, row.by] if row is one else [0, row.first, *range(row.first + 700, row.by, 700), row.by]
        curve = [[step, 100.0 * max(0, step - row.first) / end] for step in steps]
        assert learn.scores.mean_of_curve(row, {"curve": curve}) == pytest.approx(52.5)


def test_fewer_than_five_seeds_have_a_plain_mean_and_no_interval(learn: Any) -> None:
    assert learn.scores.score([0.0, 0.0, 0.0, 100.0]) == "25.0"
    assert learn.scores.score([0.0, 0.0, 0.0, 3.0, 100.0]).startswith("1.0 [0.0, ")


def test_a_run_that_stopped_at_its_target_counts_in_pictures_after_its_end(learn: Any) -> None:
    rows = learn.rows.ROWS
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in rows}
    for name in ("cartpole-dqn", "actors-2"):
        results[name] = [run_of(rows[name], 0)]
    drawn = {title: runs[0].finished for title, runs in learn.curves.pictures(results).items()}
    assert drawn["CartPole-v1"]["mean_return"] == 400.0
    assert drawn["ablations-actors"] is None


def test_the_page_counts_the_evaluations_that_a_second_one_did_not_confirm(learn: Any) -> None:
    row = learn.rows.ROWS["cartpole-dqn"]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in learn.rows.ROWS}
    results[row.name] = [
        run_of(row, 0) | {"curve": [[1, 480.0], [2, 300.0], [3, 490.0], [4, 500.0]]},
        run_of(row, 1) | {"curve": [[1, 500.0]]},
        run_of(row, 2, confirmed=False) | {"curve": [[1, 500.0], [2, 20.0]]},
    ]
    said = learn.report.failed_confirmations(results)
    assert said.startswith(
        "In 2 of the 3 runs that stop at a target, the second evaluation missed it at least once (3 times in all)"
    )


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


def test_a_readme_tells_each_seed_and_the_overview_the_range(learn: Any) -> None:
    row = learn.rows.ROWS["cartpole-dqn"]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in learn.rows.ROWS}
    results["cartpole-dqn"] = [run_of(row, 0), run_of(row, 1), run_of(row, 2, confirmed=False)]
    (line,) = [text for text in learn.readmes.agent_table("dqn", results).splitlines() if "CartPole" in text]
    assert line == "| CartPole-v1 | 475, 100,000 | 0 to 2 | 2 of 3 | 3 k, 4 k, - | 400*, 401*, 402* (of 20) |"
    assert "not run yet" in learn.readmes.agent_table("sac", results)
    overview = "| [`dqn`](x) | a paper | discrete | CartPole-v1 | old |\n| | | | ALE/Pong-v5 | as it was |"
    first, second = learn.readmes.with_cells(overview, results).splitlines()
    assert first.endswith("| 475 on 20 other episodes: 3 k to 4 k steps, 2 of 3 seeds |")
    assert second.endswith("| as it was |")


def test_the_overview_has_the_result_of_the_preset_and_not_of_a_row_with_other_settings(
    learn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = learn.rows.ROWS["acrobot-apex-dqn"]
    other = dataclasses.replace(preset, name="other", settings=("n_step=1",))
    monkeypatch.setitem(learn.rows.ROWS, other.name, other)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in learn.rows.ROWS}
    results[preset.name], results[other.name] = [run_of(preset, 0)], [run_of(other, 0), run_of(other, 1)]
    line = learn.readmes.with_cells("| [`apex_dqn`](x) | a paper | discrete | Acrobot-v1 | old |", results)
    assert line.endswith("| -90 on 20 other episodes: 3 k to 3 k steps, 1 of 1 seeds |")
    assert "`n_step=1`" in learn.readmes.agent_table("apex-dqn", results)


def test_parts_of_rainbow_are_a_table_and_a_picture_of_their_own(learn: Any) -> None:
    row = learn.rows.ROWS["parts-spectral"]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in learn.rows.ROWS}
    page = ROOT / "docs" / "results.md"
    assert "Parts of Rainbow" not in learn.report.texts(results, page.parent, page)[page]
    results[row.name] = [scored(run_of(row, 0), 90.0) | {"curve": [[25_000, 3.0], [50_000, 5.0], [250_000, 5.0]]}]
    text = learn.report.texts(results, page.parent, page)[page].partition("## Parts of Rainbow")[2]
    assert "| [parts-spectral](parts-spectral) | 0 | 250,000 | 4.8 | 90.0 |" in text
    assert "(parts-of-rainbow.png)" in text
    assert not any(one.group == learn.row.PARTS for one in map(learn.rows.ROWS.get, learn.rows.DEFAULT))


def test_walkers_are_a_table_and_pictures_of_their_own_next_to_another_library(learn: Any) -> None:
    rows, results = learn.rows.ROWS, {name: [] for name in learn.rows.ROWS}
    page = Path("page.md")
    assert "Walkers" not in learn.report.texts(results, page.parent, page)[page]
    for name, returns in {
        "control-hopper-sac": 120.0,
        "control-hopper-sb3-sac": 80.0,
        "control-hopper-ppo": 0.0,
    }.items():
        curve = [[step, returns + step / 1_000] for step in rows[name].points]
        known = run_of(rows[name], 0) | {"target_return": None, "cpu_seconds": 7.0}
        results[name] = [{**known, "curve": curve, "mean_return": returns}]
    results["control-hopper-sb3-sac"][0] = scored(results["control-hopper-sb3-sac"][0], 95.0)
    text = learn.report.texts(results, page.parent, page)[page].partition("## Walkers")[2]
    assert "| Hopper-v5 | [sac](control-hopper-sac) | 0 | 300 k | 180.0 | 275.0 | 120.0 * | 7 s |" in text
    assert "| Hopper-v5 | [sb3: sac](control-hopper-sb3-sac) | 0 | 300 k | 140.0 | 235.0 | 95.0 | 7 s |" in text
    assert "| Hopper-v5 | [ppo](control-hopper-ppo) | 0 | 1000 k | 60.0 | 510.0 | 0.0 * | 7 s |" in text
    assert "| Hopper-v5 | td3 | not run yet | 300 k | | | | |" in text
    assert "| Hopper-v5 | sac, `--config droq` | not run yet | 100 k | | | | |" in text
    assert text.count("![") == 1
    assert not any(one.group == learn.row.CONTROL for one in map(rows.get, learn.rows.DEFAULT))


def test_a_row_of_another_library_is_run_by_its_worker_and_says_which_library(
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


def test_the_table_of_defaults_has_a_cell_for_each_task_without_a_preset(learn: Any) -> None:
    rows = learn.rows.ROWS
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in rows}
    row = rows["defaults-acrobot-dqn"]
    results["defaults-acrobot-dqn"] = [run_of(row, seed, confirmed=seed > 0) for seed in range(3)]
    head, _, *lines = learn.report.defaults_table(results, learn.rows.DISCRETE).splitlines()
    assert head.startswith("| agent | Acrobot-v1: -100, 100,000 | MountainCar-v0: -110, 200,000 |")
    assert "| dqn | 401 *; 2 of 3, 5 k | not run yet | not run yet |" in lines
    assert "| apex-dqn | preset | not run yet | preset |" in lines
    assert not any(line.startswith("| sac |") for line in lines)
    assert not any(row.group == learn.row.DEFAULTS for row in map(rows.get, learn.rows.DEFAULT))


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


def test_the_page_about_replay_has_a_table_and_a_picture_of_each_game_that_was_run(learn: Any, tmp_path: Path) -> None:
    rows, replays, unfinished = learn.rows, learn.replays, learn.unfinished.read(tmp_path)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in rows.ROWS}
    page = tmp_path / "replay.md"
    page.write_text(f"before\n{learn.readmes.BEGIN}\nold\n{learn.readmes.END}\nafter\n")
    assert "##" not in replays.text(page, results, unfinished, tmp_path)
    row = rows.ROWS["replay-space_invaders-priorities"]
    curve = [[0, 2.0], [1_000_000, 2.0]]
    results[row.name] = [run_of(row, seed) | {"curve": curve, "num_episodes": 100} for seed in range(2)]
    text = replays.text(page, results, unfinished, tmp_path)
    assert "## Space Invaders" in text
    assert "Breakout" not in text
    assert "(replay-space_invaders.png)" in text
    assert text.count("| not run yet | | | | |") == len(rows.REPLAYS) - 1
    assert "`noisy=false`, `n_step=1`](replay-space_invaders-priorities) | 0 to 1 | 1000 k | 2.0 | 400.5 | AMD" in text
    assert "Young & Tian 2019 have 44 with DQN and 13 without replay" in text
    assert replays.best("space_invaders", results) == ""
    for way, returns in (
        ("uniform", (20.0, 40.0, 30.0)),
        ("rainbow", (50.0, 40.0, 60.0)),
        ("priorities", (9.0, 9.0, 9.0)),
    ):
        row = rows.ROWS[f"replay-space_invaders-{way}"]
        results[row.name] = [
            run_of(row, seed) | {"curve": curve, "num_episodes": 100, "mean_return": value}
            for seed, value in enumerate(returns)
        ]
    text = replays.text(page, results, unfinished, tmp_path)
    assert (
        "Among the rows with at least 3 seeds, apart from the second, Rainbow has the highest return of the last"
        " weights: 1.67 times that of the second row, and its mean of the curve 1.00 times."
    ) in text
    priorities, results["replay-space_invaders-priorities"] = results["replay-space_invaders-priorities"], []
    assert replays.best("space_invaders", results) == (
        "Only the second row and Rainbow have at least 3 seeds. Rainbow's return of the last weights is 1.67 times"
        " that of the second row, and its mean of the curve 1.00 times."
    )
    results["replay-space_invaders-priorities"] = priorities
    results["replay-space_invaders-uniform"].pop()
    assert replays.best("space_invaders", results) == ""
    for way in ("uniform", "rainbow"):
        results[f"replay-space_invaders-{way}"] = []
    (title,) = learn.curves.pictures(results)
    assert title == replays.picture("space_invaders")
    assert {run.agent for run in learn.curves.pictures(results)[title]} == {"priorities"}
    page.write_text("no section")
    with pytest.raises(learn.readmes.NoSectionError):
        replays.text(page, results, unfinished, tmp_path)


def test_rows_about_replay_differ_in_one_thing_each(learn: Any) -> None:
    """DQN's preset, and Rainbow with its other parts off, but for priorities."""
    from reverie.agents import find, presets

    def settings_of(way: str) -> dict[str, Any]:
        agent, settings = learn.rows.REPLAYS[way]
        preset = presets.load(find(agent).presets / "MinAtar_Breakout-v0.toml", find(agent).config)
        return vars(presets.override(preset, settings).config)

    uniform, priorities = settings_of("uniform"), settings_of("priorities")
    shared = uniform.keys() & priorities.keys()
    assert {name for name in shared if uniform[name] != priorities[name]} == set()
    parts_off = {"head": "scalar", "dueling": False, "double": False, "noisy": False, "target_rate": 0.0}
    assert {name: priorities[name] for name in parts_off} == parts_off
    assert priorities["prioritized"]
    assert {name for name in uniform if uniform[name] != settings_of("three-steps")[name]} == {"n_step"}
    assert {name for name in uniform if uniform[name] != settings_of("none")[name]} == {"capacity", "learning_starts"}


def test_a_readme_without_a_place_for_results_is_named(learn: Any, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("agents")
    (tmp_path / "apex_dqn").mkdir()
    (tmp_path / "apex_dqn" / "README.md").write_text("no results")
    with pytest.raises(learn.readmes.NoSectionError, match=r"apex_dqn/README\.md has 0 sections"):
        learn.readmes.texts({name: [] for name in learn.rows.ROWS}, tmp_path)
