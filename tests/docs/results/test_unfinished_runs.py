"""Curves of long runs that were interrupted are published as far as they go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

WALKER, OTHERS, GAME, PART = "control-hopper-td3", "control-hopper-sb3-sac", "replay-asterix-apex-dqn", "parts-spectral"


def interrupted(folder: Path, steps: int, returns: float = 7.0) -> None:
    """A run's folder with a log of evaluations every 10,000 steps."""
    folder.mkdir(parents=True, exist_ok=True)
    started = {"event": "started", "env_steps": 0, "agent": "a", "env_id": "E-v0", "seed": 0, "target_return": 1.0}
    lines = [started | {"config": {}, "run": {}, "environment": {}}]
    lines += [
        {"event": "evaluated", "env_steps": step, "seconds": 1.0, "mean_return": returns}
        for step in range(10_000, steps + 1, 10_000)
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def pages(learn: Any, results: Path, tmp_path: Path) -> tuple[str, str]:
    """docs/results.md and the page about replay."""
    page, replay = tmp_path / "results.md", tmp_path / "replay.md"
    replay.write_text(f"{learn.readmes.BEGIN}\n{learn.readmes.END}\n")
    texts = learn.report.texts(learn.scores.read(results), results, page, None, replay)
    return texts[page], texts[replay]


def test_an_interrupted_run_is_a_line_and_a_curve_until_it_is_finished(learn: Any, tmp_path: Path) -> None:
    results, folders = tmp_path / "results", tmp_path / "runs"
    for name in (WALKER, GAME, PART):
        interrupted(folders / name / "seed-1", 120_000)
    learn.unfinished.collect(results, folders)
    text, about_replay = pages(learn, results, tmp_path)
    cells = "| 1, unfinished | 120 k of {} k | - | last evaluation: 7.0 |"
    walker = (
        f"| Hopper-v5 | [td3](results/{WALKER}) | 1, unfinished | 120 k of 300 k | 7.0 | - | last evaluation: 7.0 | |"
    )
    assert walker in text
    assert "| Hopper-v5 | td3 | not run yet" not in text
    assert f"| [{PART}](results/{PART}) {cells.format(250)}" in text
    assert f"| [apex-dqn](results/{GAME}) {cells.format('1,000')}" in about_replay
    drawn = learn.curves.pictures(learn.scores.read(results), learn.unfinished.read(results))
    assert {name: [run.agent for run in runs] for name, runs in drawn.items()} == {
        "control-Hopper-v5": ["td3 (unfinished)"],
        "replay-asterix": ["apex-dqn (unfinished)"],
        "parts-of-rainbow": ["spectral (unfinished)"],
    }
    (results / WALKER / "seed-1.json").write_text("{}")
    learn.unfinished.collect(results, folders)
    assert [path.name for path in (results / WALKER).iterdir()] == ["seed-1.json"]


def test_a_curve_replaces_a_shorter_one_and_no_longer_one(learn: Any, tmp_path: Path) -> None:
    results, folders = tmp_path / "results", tmp_path / "runs"
    for steps, kept in ((30_000, 30_000), (20_000, 30_000), (50_000, 50_000)):
        interrupted(folders / WALKER / "seed-0", steps)
        learn.unfinished.collect(results, folders)
        (run,) = learn.unfinished.read(results)[WALKER]
        assert run["env_steps"] == kept == run["curve"][-1][0]


def test_a_run_of_another_library_has_its_curve_from_its_newest_state(learn: Any, tmp_path: Path) -> None:
    results, folders = tmp_path / "results", tmp_path / "runs"
    for steps, to_first_steps in ((90_000, "-"), (100_000, "3.0")):
        state = folders / OTHERS / "seed-0" / f"{steps}-steps"
        state.mkdir(parents=True)
        (state / "progress.json").write_text(json.dumps({"curve": [[steps, 3.0]]}))
        learn.unfinished.collect(results, folders)
        text, _ = pages(learn, results, tmp_path)
        cells = f"0, unfinished | {steps // 1000} k of 300 k | {to_first_steps} | - | last evaluation: 3.0 | |"
        assert f"| Hopper-v5 | [sb3: sac](results/{OTHERS}) | {cells}" in text


def test_runs_that_stop_at_a_target_and_runs_without_an_evaluation_are_not_published(
    learn: Any, tmp_path: Path
) -> None:
    results, folders = tmp_path / "results", tmp_path / "runs"
    interrupted(folders / "cartpole-dqn" / "seed-100", 20_000)
    interrupted(folders / WALKER / "seed-0", 0)
    (folders / GAME / "seed-0").mkdir(parents=True)
    learn.unfinished.collect(results, folders)
    assert not list(tmp_path.glob("results/*/*"))
