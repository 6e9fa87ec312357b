"""Scores over seeds: a robust mean and its interval, for few runs with heavy tails (Agarwal et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def interquartile_mean(scores: Sequence[float] | NDArray[np.float64]) -> float:
    """The mean without the lowest and highest quarter, rounded down to whole runs: of five scores the middle three.

    Agarwal et al. 2021, *Deep Reinforcement Learning at the Edge of the Statistical Precipice*, section 4.3. Raises
    ValueError for no scores.
    """
    return float(_trimmed(np.asarray(scores, dtype=np.float64)[None])[0])


def bootstrap_interval(
    scores: Sequence[float] | NDArray[np.float64], *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of the interquartile mean, over runs drawn with replacement (section 4.1 there).

    With five runs it is rough, and narrower than the requested confidence. Raises ValueError for no scores and for a
    confidence outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}, and must lie between 0 and 1")
    values = np.asarray(scores, dtype=np.float64)
    if values.size == 0:
        raise ValueError("scores are empty: there is nothing to draw from")
    drawn = np.random.default_rng(seed).choice(values, size=(resamples, values.size))
    low, high = np.quantile(_trimmed(drawn), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _trimmed(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    size = rows.shape[1]
    if size == 0:
        raise ValueError("scores are empty: there is no mean")
    cut = size // 4
    means: NDArray[np.float64] = np.sort(rows, axis=1)[:, cut : size - cut].mean(axis=1)
    return means
