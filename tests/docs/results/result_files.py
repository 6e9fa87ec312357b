"""Results as their files have them."""

from __future__ import annotations

from typing import Any


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
