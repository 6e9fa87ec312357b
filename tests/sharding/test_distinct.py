"""Draws without replacement over several shards: those of one table."""

import itertools

import numpy as np
import pytest

from reverie import DeadlineExceededError, rate_limiters, selectors
from reverie.sharding import shard_table

#: Items of each of three shards; one weighs as much as all others together, and one shard is a single item.
PRIORITIES = [np.array([1.0, 2.0, 0.5]), np.array([8.0]), np.array([3.0, 1.5])]
TAKEN = 3


def fill(client, priorities=PRIORITIES):
    first = 0
    for shard, some in enumerate(priorities):
        client.insert_batch("t", {"x": np.arange(first, first + len(some))}, priorities=some, shard=shard)
        first += len(some)
    return np.concatenate(priorities)


def chances(weights):
    """The probability of every set of `TAKEN` items, each drawn from what those before it left."""
    found = dict.fromkeys(itertools.combinations(range(len(weights)), TAKEN), 0.0)
    for order in itertools.permutations(range(len(weights)), TAKEN):
        probability, left = 1.0, weights.sum()
        for item in order:
            probability *= weights[item] / left
            left -= weights[item]
        found[tuple(sorted(order))] += probability
    return found


def surprise(observed, expected):
    """The distance of the chi-square statistic of sets above its mean, in standard deviations."""
    total = sum(observed.values())
    statistic = sum((observed.get(one, 0) - total * p) ** 2 / (total * p) for one, p in expected.items())
    degrees = len(expected) - 1
    return (statistic - degrees) / np.sqrt(2 * degrees)


def drawn(client, batches):
    observed = {}
    for _ in range(batches):
        taken = tuple(sorted(client.sample_batch("t", TAKEN, without_replacement=True).data["x"].tolist()))
        observed[taken] = observed.get(taken, 0) + 1
    return observed


def test_sets_of_items_are_drawn_as_from_one_table(sharded, prioritized):
    client = sharded([prioritized(sampler=selectors.Prioritized(1.0, seed=i)) for i in range(3)])
    weights = fill(client)
    observed = drawn(client, 10_000)
    assert surprise(observed, chances(weights)) < 5
    # The twin: one item weighs a fifth more. And the twin of a split by masses before the draws: all alike.
    wrong = weights * np.where(np.arange(len(weights)) == 1, 1.2, 1.0)
    assert surprise(observed, chances(wrong)) > 5
    one = sharded([prioritized(sampler=selectors.Prioritized(1.0, seed=7))])
    fill(one, [weights])
    assert surprise(drawn(one, 10_000), chances(weights)) < 5


def test_the_same_over_every_way_and_with_the_probabilities_of_one_table(everywhere, prioritized):
    client = everywhere([prioritized(sampler=selectors.Prioritized(1.0, seed=i)) for i in range(3)])
    weights = fill(client)
    assert surprise(drawn(client, 1_000), chances(weights)) < 5
    batch = client.sample_batch("t", len(weights), without_replacement=True)
    assert sorted(batch.data["x"]) == list(range(len(weights)))
    np.testing.assert_allclose(batch.info.probability, (weights / weights.sum())[batch.data["x"]], rtol=1e-12)
    np.testing.assert_array_equal(batch.info.table_size, np.full(len(weights), len(weights)))
    np.testing.assert_array_equal(batch.info.priority, weights[batch.data["x"]])
    # Draws of shards that no caller received do not count.
    assert client.info().tables["t"].num_samples == 1_000 * TAKEN + len(weights)
    client.update_priorities("t", batch.info.key[batch.data["x"] != 3], np.zeros(5))
    assert 3 in client.sample_batch("t", 1, without_replacement=True).data["x"]


def test_items_that_weigh_nothing_come_after_all_others_whatever_their_shard(sharded, prioritized):
    client = sharded([prioritized() for _ in range(2)])
    fill(client, [np.array([0.0, 1.0]), np.array([0.0, 0.0, 2.0])])
    for _ in range(50):
        taken = client.sample_batch("t", 3, without_replacement=True).data["x"].tolist()
        assert {1, 4} < set(taken)
    assert sorted(client.sample_batch("t", 5, without_replacement=True).data["x"]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_ahead_have_no_item_twice_and_keep_the_ratio(everywhere, prioritized, prefetch):
    limits = rate_limiters.SampleToInsertRatio(4.0, 10, 60.0)
    tables, limiter = shard_table(prioritized(rate_limiter=limits), 2)
    client = everywhere(tables, rate_limiter=limiter)
    for shard in range(2):
        client.insert_batch("t", {"x": np.arange(10) + 10 * shard}, np.linspace(0.1, 1.0, 10), shard=shard)
    with client.batches("t", 10, prefetch=prefetch, without_replacement=True, max_samples=95) as batches:
        sizes = [len(set(batch.info.key)) for batch in batches]
    assert sizes == [10] * 9 + [5]
    # 20 * 4 - n >= -20: five more.
    assert len(client.sample_batch("t", 5, without_replacement=True)) == 5
    with pytest.raises(DeadlineExceededError, match="below -20"):
        client.sample_batch("t", 1, timeout=0, without_replacement=True)


def test_more_than_there_are_is_waited_for_and_values_without_rows_are_refused(sharded, prioritized):
    client = sharded([prioritized() for _ in range(2)])
    fill(client, [np.ones(2), np.ones(3)])
    with pytest.raises(DeadlineExceededError, match="There are 5 items, and 6 were asked for without replacement") as e:
        client.sample_batch("t", 6, timeout=0, without_replacement=True)
    assert e.value.partial is None
    with pytest.raises(ValueError, match='pass ragged="pad", or draw with replacement'):
        client.sample_batch("t", 2, ragged="values", without_replacement=True)
    queue = sharded([prioritized(sampler=selectors.Fifo())])
    fill(queue, [np.ones(3)])
    with pytest.raises(ValueError, match="without replacement needs a random sampler"):
        queue.sample_batch("t", 2, without_replacement=True)
