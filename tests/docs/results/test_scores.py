"""Results that are read from the files of a row: scores, verdicts, and which seeds count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from result_files import run_of, scored


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
