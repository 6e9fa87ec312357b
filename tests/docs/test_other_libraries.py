"""Runs of other libraries, next to which results are shown, go on where they were interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("stable_baselines3")

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
ENV, SEED, EVERY = "Pendulum-v1", 3, 60


def drawn() -> list[float]:
    """Numbers of the two generators that the library draws from."""
    return [np.random.random(), *torch.rand(3).tolist()]  # noqa: NPY002


@pytest.fixture
def walkers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.workers import walkers_sb3

    monkeypatch.setattr(walkers_sb3, "LEARNING_STARTS", 50)
    monkeypatch.setattr(walkers_sb3, "SCREENING", range(1))
    return walkers_sb3


def test_a_run_of_stable_baselines3_goes_on_with_its_model_its_buffer_and_its_random_numbers(
    walkers: Any, tmp_path: Path
) -> None:
    first, before = walkers.train(ENV, SEED, 2 * EVERY, tmp_path, EVERY)
    weights = {name: value.clone() for name, value in first.policy.state_dict().items()}
    expected = drawn()

    class Interrupted(Exception):
        pass

    def interrupt(model: Any, steps: int, **_: Any) -> None:
        assert drawn() == expected
        assert all(torch.equal(value, weights[name]) for name, value in model.policy.state_dict().items())
        assert model._n_updates == first._n_updates > 0
        assert model.env.reset().tolist() != walkers._new(ENV, SEED).env.reset().tolist(), "it begins elsewhere"
        raise Interrupted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walkers.SAC, "learn", interrupt)
        with pytest.raises(Interrupted):
            walkers.train(ENV, SEED, 3 * EVERY, tmp_path, EVERY)
    last, progress = walkers.train(ENV, SEED, 3 * EVERY, tmp_path, EVERY)
    assert [point[0] for point in progress.curve] == [EVERY, 2 * EVERY, 3 * EVERY]
    assert progress.curve[:2] == before.curve
    assert progress.seconds > before.seconds > before.seconds_of_evaluations > 0
    assert progress.cpu_seconds > before.cpu_seconds > 0
    assert last.replay_buffer.pos == last.num_timesteps == 3 * EVERY
    assert last._n_updates - first._n_updates == EVERY
    assert [state.name for state in tmp_path.iterdir()] == [f"{3 * EVERY}-steps"]


def test_a_state_that_was_not_written_to_its_end_is_not_read(walkers: Any, tmp_path: Path) -> None:
    def cut(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    walkers.train(ENV, SEED, EVERY, tmp_path, EVERY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walkers.SAC, "save_replay_buffer", cut)
        with pytest.raises(OSError, match="no space left"):
            walkers.train(ENV, SEED, 2 * EVERY, tmp_path, EVERY)
    model, progress = walkers.train(ENV, SEED, EVERY, tmp_path, EVERY)
    assert model.num_timesteps == progress.steps == EVERY


def test_a_run_without_a_folder_begins_at_its_first_step(walkers: Any) -> None:
    model, progress = walkers.train(ENV, SEED, EVERY, None, EVERY)
    assert model.num_timesteps == progress.steps == EVERY
