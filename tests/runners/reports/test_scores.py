import numpy as np
import pytest

pytest.importorskip("torch")

from reverie.runners.reports.scores import bootstrap_interval, interquartile_mean


@pytest.mark.parametrize(
    ("scores", "mean"),
    [
        ([7.0], 7.0),
        ([1.0, 3.0], 2.0),
        ([5.0, 1.0, 3.0], 3.0),
        ([5.0, 1.0, 6.0], 4.0),  # of three runs none is a quarter
        ([-9.0, 1.0, 3.0, 90.0], 2.0),
        ([100.0, 2.0, 1.0, 3.0, -100.0], 2.0),
        ([100.0, 1.0, 2.0, 3.0, 4.0, 8.0, -100.0], 3.6),  # of seven one is left out at either end
    ],
)
def test_the_interquartile_mean_leaves_a_quarter_out_at_either_end(scores, mean):
    assert interquartile_mean(scores) == mean


def test_the_middle_four_of_eight_scores_count():
    assert interquartile_mean([0, 0, 1, 2, 3, 4, 90, 90]) == 2.5


def covered(size, draws, confidence=0.95):
    """The number of intervals, of samples from a normal distribution, that contain its centre."""
    rng = np.random.default_rng(3)
    hits = 0
    for k in range(draws):
        low, high = bootstrap_interval(rng.normal(5.0, 2.0, size), confidence=confidence, resamples=400, seed=k)
        hits += low <= 5.0 <= high
    return hits


@pytest.mark.long
def test_an_interval_of_many_runs_contains_the_centre_as_often_as_its_confidence():
    draws = 400
    # Five sigma of a binomial, and what the percentile bootstrap of 40 runs lacks (below one in fifty).
    slack = 5 * (0.95 * 0.05 / draws) ** 0.5 + 0.02
    assert abs(covered(40, draws) / draws - 0.95) < slack
    assert abs(covered(40, draws, confidence=0.5) / draws - 0.95) > slack  # the twin, an interval too narrow


def test_the_interval_is_the_same_for_the_same_scores_and_closes_on_equal_ones():
    assert bootstrap_interval([1.0, 2.0, 9.0, 4.0, 5.0]) == bootstrap_interval([1.0, 2.0, 9.0, 4.0, 5.0])
    assert bootstrap_interval([3.0] * 5) == (3.0, 3.0)


def test_no_scores_and_impossible_confidence_are_refused():
    with pytest.raises(ValueError, match="scores are empty"):
        interquartile_mean([])
    with pytest.raises(ValueError, match="scores are empty"):
        bootstrap_interval([])
    with pytest.raises(ValueError, match=r"confidence is 1.0, and must lie between 0 and 1"):
        bootstrap_interval([1.0], confidence=1.0)
