"""Rows that learn from a data set: it is recorded once, and their table names its policy."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")
pytest.importorskip("pyarrow")

from reverie.integrations.datasets import open_dataset

NAME = "cartpole-narrow"


@pytest.fixture(autouse=True)
def short_recording(learn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    recordings = learn.recordings
    short = dataclasses.replace(recordings.RECORDINGS[NAME], trained=1_100, steps=200)
    monkeypatch.setitem(recordings.RECORDINGS, NAME, short)


@pytest.mark.long
def test_a_row_learns_from_a_policy_that_was_recorded_once(
    learn: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("learning_starts=200", "capacity=1000", "evaluate_every=1000", "confirmation_episodes=1")
    row = dataclasses.replace(learn.rows.ROWS["offline-cartpole-narrow-cql"], by=220, settings=settings)
    first, second = (learn.runs.run(row, seed, tmp_path / row.name / f"seed-{seed}", None) for seed in (1, 2))
    path = tmp_path / "data-sets" / f"{NAME}.parquet"
    assert first["data"] == second["data"]
    assert first["data"].keys() == {"name", "commands", "steps", "episodes", "mean_return"}
    train, record = first["data"]["commands"]
    assert train.startswith("reverie train dqn --env CartPole-v1 --seed 0 --max-steps 1100 ")
    assert record == f"reverie data record RUN {NAME}.parquet --steps 200 --random-actions 0.05 --json"
    assert " --set dataset=DATASET " in first["command"]
    assert (first["env_steps"], first["score"]["num_episodes"]) == (220, 100)
    rows = open_dataset(path).num_rows
    assert rows == first["data"]["steps"] + first["data"]["episodes"]
    made = path.stat().st_mtime_ns
    path.with_suffix(".json").unlink()
    learn.recordings.recorded(NAME, path.parent)  # it was interrupted before it was whole
    assert path.stat().st_mtime_ns > made
    assert open_dataset(path).num_rows == rows, "the same policy and the same episodes"
    changed = dataclasses.replace(learn.recordings.RECORDINGS[NAME], steps=100)
    monkeypatch.setitem(learn.recordings.RECORDINGS, NAME, changed)
    again = learn.recordings.recorded(NAME, path.parent)
    assert " --steps 100 " in again["commands"][1], "another recording of the same name"
    assert open_dataset(path).num_rows == again["steps"] + again["episodes"]


def test_a_data_set_that_cannot_be_recorded_ends_the_row_with_the_reason(
    learn: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = dataclasses.replace(learn.recordings.RECORDINGS[NAME], env_id="Nowhere-v1")
    monkeypatch.setitem(learn.recordings.RECORDINGS, NAME, broken)
    row = learn.rows.ROWS["offline-cartpole-narrow-cql"]
    with pytest.raises(learn.runs.RunError, match=r"-cql, seed 1: train dqn .*: exit code 2: .*Nowhere"):
        learn.runs.run(row, 1, tmp_path / row.name / "seed-1", None)
    assert not (tmp_path / "data-sets" / f"{NAME}.json").exists()


def test_the_table_names_the_policy_of_the_data_and_the_number_of_updates(learn: Any) -> None:
    rows = learn.rows.ROWS
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in rows}
    row = rows["offline-cartpole-narrow-dqn"]
    known = {"row": row.name, "date": "2026-11-28 09:00 UTC", "machine": {"cpu": "AMD EPYC"}, "target_return": 475.0}
    data = {"name": NAME, "steps": 10_000, "mean_return": 480.04}
    results[row.name] = [
        {**known, "seed": seed, "data": data, "confirmed": False, "score": {"mean_return": score, "num_episodes": 100}}
        for seed, score in ((100, 9.0), (101, 477.0), (102, 12.0))
    ]
    head, _, line = learn.report.offline_table(results).splitlines()
    assert head.startswith("| environment | agent | data | its mean return | updates | target | score |")
    assert line == (
        f"| CartPole-v1 | cql, `conservative_weight=0` | {NAME} | 480.0 | 4,000 | 475 | 166.0 | 1 of 3 | 100 to 102;"
        " AMD EPYC; 2026-11-28 |"
    )


def test_every_row_from_data_has_one_next_to_it_that_lacks_what_the_paper_adds(learn: Any) -> None:
    offline = [row for row in learn.rows.ROWS.values() if row.group == learn.row.OFFLINE]
    assert {row.data for row in offline} == set(learn.recordings.RECORDINGS)
    assert all(row.name.startswith(f"offline-{row.data}") for row in offline)
    for row in offline:
        recording = learn.recordings.RECORDINGS[row.data]
        assert row.env_id == recording.env_id
        assert row.by > recording.steps
        assert "dataset=x.parquet" in row.arguments(1, "folder", "x.parquet")
