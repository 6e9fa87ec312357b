"""The page about replay has a table and a picture of each game, and of the longest runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from result_files import run_of, scored


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


def test_the_longest_runs_have_a_line_each_with_the_mean_of_every_million_steps(learn: Any, tmp_path: Path) -> None:
    rows, replays = learn.rows, learn.replays
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in rows.ROWS}
    so_far: dict[str, list[dict[str, Any]]] = {name: [] for name in rows.ROWS}
    dqn, rainbow = (rows.ROWS[f"long-breakout-{way}"] for way in ("uniform", "rainbow"))
    assert (dqn.by, dqn.seeds, dqn.every) == (5_000_000, (0,), 50_000)
    assert dqn.settings == rows.ROWS["replay-breakout-uniform"].settings
    assert not {dqn.name, rainbow.name} & set(rows.DEFAULT)
    assert replays.section(results, so_far, tmp_path, tmp_path / "page.md") == ""

    def run(row: Any, steps: int) -> dict[str, Any]:
        curve = [[step, step / 1_000_000] for step in range(50_000, steps + 1, 50_000)]
        return run_of(row, 0) | {"curve": curve, "env_steps": steps}

    so_far[rainbow.name] = [run(rainbow, 2_950_000)]
    text = replays.section(results, so_far, tmp_path, tmp_path / "page.md")
    assert text.startswith("## Breakout, 5 million steps\n")
    assert "| agent | seed | 0 to 1 M | 1 to 2 M | 2 to 3 M | 3 to 4 M | 4 to 5 M | last weights | proc" in text
    assert "(long-breakout-rainbow) | 0, unfinished, 2,950 k of 5,000 k | 0.5 | 1.5 | - | - | - | last eval" in text
    assert "| dqn | not run yet | | | | | | | |" in text
    assert "Young & Tian 2019 have 10 with DQN" in text
    assert text.endswith("![greedy return over steps](long-breakout.png)")
    so_far[rainbow.name], results[rainbow.name] = [], [scored(run(rainbow, 5_000_000), 30.0)]
    results[dqn.name] = [scored(run(dqn, 5_000_000), 15.0)]
    text = replays.section(results, so_far, tmp_path, tmp_path / "page.md")
    assert "(long-breakout-rainbow) | 0 | 0.5 | 1.5 | 2.5 | 3.5 | 4.5 | 30.0 | AMD EPYC; 2026-11-28 |" in text
    assert [line.count("|") for line in text.splitlines() if line.startswith("|")] == [10] * 4
    drawn = learn.curves.pictures(results)
    assert list(drawn) == [replays.LONG_PICTURE]
    assert {curve.agent for curve in drawn[replays.LONG_PICTURE]} == {"dqn", "rainbow"}
    page = learn.report.texts(results, tmp_path, tmp_path / "results.md")[tmp_path / "results.md"]
    assert "long-breakout.png" not in page
