"""Several pages show results; all of them match the runs."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from result_files import run_of, scored


def test_every_page_with_results_is_what_make_bench_learn_writes(learn: Any) -> None:
    main = sys.modules["benchmarks.learn.__main__"]
    texts = learn.report.texts(learn.scores.read(main.RESULTS), main.RESULTS, main.PAGE, main.AGENTS, main.REPLAY_PAGE)
    assert len(texts) == 3 + len(list(main.AGENTS.glob("*/README.md")))
    for path, text in texts.items():
        assert path.read_text() == text, f"{path} says something else: python -m benchmarks.learn --report"


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
    page = Path("docs/results.md")
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


def test_a_readme_without_a_place_for_results_is_named(learn: Any, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("agents")
    (tmp_path / "apex_dqn").mkdir()
    (tmp_path / "apex_dqn" / "README.md").write_text("no results")
    with pytest.raises(learn.readmes.NoSectionError, match=r"apex_dqn/README\.md has 0 sections"):
        learn.readmes.texts({name: [] for name in learn.rows.ROWS}, tmp_path)
