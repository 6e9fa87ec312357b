"""Mixtures whose shares change from batch to batch."""

import numpy as np
import pytest

from reverie import Table, selectors
from reverie.datasets import Annealed
from reverie.datasets.shares import annealed_shares


@pytest.fixture
def two(connect):
    """A client of the tables "offline" and "online", whose rows hold 0 and 1."""
    tables = [Table(name, selectors.Uniform(), selectors.Fifo(), 100) for name in ("offline", "online")]
    client = connect(*tables)
    for number, table in enumerate(("offline", "online")):
        client.insert_batch(table, {"from": np.full(4, number)})
    return client


def counts(client, shares, batches, batch_size=20, **options):
    """The draws of "online" in each batch; those of "offline" come first."""
    with client.batches(shares, batch_size, max_samples=batches * batch_size, **options) as drawn:
        found = [batch.data["from"] for batch in drawn]
    assert [len(of) for of in found] == [batch_size] * batches
    assert all((np.diff(of) >= 0).all() for of in found)
    return np.array([of.sum() for of in found])


@pytest.mark.parametrize("prefetch", [0, 3])
def test_shares_change_from_batch_to_batch_and_each_count_is_rounded_down_or_up(two, prefetch):
    shares = {"offline": Annealed(1, 0, 10), "online": Annealed(0, 1, 10)}
    found = counts(two, shares, 13, prefetch=prefetch, seed=1)
    assert found.tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 20, 20]
    found = counts(two, {"offline": Annealed(0.9, 0.25, 7), "online": 1}, 12, prefetch=prefetch, seed=2)
    line = Annealed(0.9, 0.25, 7)
    exact = np.array([20 / (line.at(batch) + 1) for batch in range(12)])
    assert (np.abs(found - exact) < 1).all()


def test_the_same_seed_gives_the_same_counts_however_far_ahead_batches_are_drawn(two):
    shares = {"offline": Annealed(0.731, 0.733, 1000), "online": Annealed(0.269, 0.267, 1000)}
    one, other = (counts(two, shares, 60, prefetch=prefetch, seed=5) for prefetch in (0, 4))
    assert one.tolist() == other.tolist()
    assert len(set(one.tolist())) == 2
    assert counts(two, shares, 60, seed=6).tolist() != one.tolist()


def far_off(found, exact):
    """True where counts that are rounded to either side add up to more than five deviations from the exact ones."""
    fraction = exact % 1
    return abs(found.sum() - exact.sum()) > 5 * np.sqrt((fraction * (1 - fraction)).sum())


def test_the_expected_counts_are_exact_and_those_of_plain_rounding_would_be_noticed(two):
    line = Annealed(0.29, 0.31, 1000)
    found = counts(two, {"offline": Annealed(0.71, 0.69, 1000), "online": line}, 1000, batch_size=4, seed=3)
    exact = np.array([4 * line.at(batch) for batch in range(1000)])
    assert not far_off(found, exact)
    assert far_off(np.round(exact), exact), "the twin: counts that are rounded to the nearest"


def test_a_resumed_loop_continues_on_the_line(two):
    shares = {"offline": Annealed(1, 0, 10, start=-5), "online": Annealed(0, 1, 10, start=-5)}
    assert counts(two, shares, 7).tolist() == [10, 12, 14, 16, 18, 20, 20]


def test_a_table_without_a_share_is_not_waited_for(connect):
    tables = [Table(name, selectors.Uniform(), selectors.Fifo(), 100) for name in ("offline", "online")]
    client = connect(*tables)
    client.insert_batch("offline", {"from": np.zeros(4, np.int64)})
    shares = {"offline": 1.0, "online": Annealed(0, 1, 10, start=5)}
    with client.batches(shares, 8, prefetch=0, timeout=200.0) as batches:
        assert [int(next(batches).data["from"].sum()) for _ in range(5)] == [0] * 5


def test_windows_can_be_mixed_by_shares_that_change(connect):
    tables = [Table(name, selectors.Uniform(), selectors.Fifo(), 100) for name in ("offline", "online")]
    client = connect(*tables)
    for number, table in enumerate(("offline", "online")):
        with client.episode_writer(table) as writer:
            for _ in range(6):
                writer.append({"from": np.int64(number)})
            writer.end_episode()
    shares = {"offline": Annealed(1, 0, 2), "online": Annealed(0, 1, 2)}
    with client.windows(shares, 4, 3, max_samples=12) as batches:
        assert [batch.data["from"][:, 0].tolist() for batch in batches] == [[0] * 4, [0, 0, 1, 1], [1] * 4]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Annealed(-0.1, 1, 5), "first must be a share of at least 0"),
        (lambda: Annealed(0, float("nan"), 5), "last must be a share of at least 0"),
        (lambda: Annealed(0, 1, 0), "batches must be at least 1"),
        (lambda: annealed_shares({"a": Annealed(0, 1, 5), "b": 0}), "no table has a share of batch 0"),
        (lambda: annealed_shares({"a": Annealed(1, 0, 5), "b": Annealed(1, 0, 3)}), "no table has a share of batch 5"),
    ],
)
def test_shares_that_can_never_work_are_refused(make, reason):
    with pytest.raises(ValueError, match=reason):
        make()


@pytest.mark.parametrize("shares", [{}, {"online": 1.0, "offline": 0.0}, {"online": -1.0}, {"online": float("inf")}])
def test_constant_shares_that_are_not_above_0_are_refused(two, shares):
    with pytest.raises(ValueError, match="shares must be of at least one table, and each a finite number above 0, got"):
        two.batches(shares, 4)


def test_a_seed_without_shares_that_change_is_refused(two):
    for tables in ("online", {"online": 1, "offline": 1}):
        with pytest.raises(ValueError, match="seed is for annealed shares"):
            two.batches(tables, 4, seed=1)
