"""Windows of items over several shards: an item that a window fits into is drawn as from one table."""

import itertools

import numpy as np
import pytest

from reverie import RaggedError, selectors

STEPS = 3


def episodes(client, of_shards):
    """Items `(length, priority)` of each shard; step t of item number i is 100 i + t."""
    number = 0
    for shard, items in enumerate(of_shards):
        for length, priority in items:
            with client.trajectory_writer(max(length, 1), shard=shard) as writer:
                for step in range(length):
                    writer.append({"x": np.int64(100 * number + step)})
                writer.create_item("t", priority, {"x": writer.history["x"][-length:]})
            number += 1


def starts(client, draws, **options):
    """The number of windows that began at each (item, step)."""
    found = {}
    with client.windows("t", 100, STEPS, max_samples=draws, prefetch=0, **options) as batches:
        for batch in batches:
            for first in batch.data["x"][:, 0].tolist():
                found[first] = found.get(first, 0) + 1
    return found


def surprise(observed, expected):
    assert set(observed) <= set(expected)
    statistic = sum((observed.get(one, 0) - count) ** 2 / count for one, count in expected.items())
    degrees = len(expected) - 1
    return (statistic - degrees) / np.sqrt(2 * degrees)


#: In the first shard nearly all of the weight is an item that no window fits into.
ITEMS = [[(2, 30.0), (5, 1.0)], [(4, 2.0), (1, 3.0), (3, 1.0)]]


def expected(draws, items):
    """An item in proportion to its priority among those that are long enough, then any of its windows."""
    fit = {number: one for number, one in enumerate(itertools.chain(*items)) if one[0] >= STEPS}
    total = sum(priority for _, priority in fit.values())
    return {
        100 * number + start: draws * priority / total / (length - STEPS + 1)
        for number, (length, priority) in fit.items()
        for start in range(length - STEPS + 1)
    }


def test_short_items_take_no_chance_from_other_shards(sharded, prioritized):
    draws = 10_000
    two = sharded([prioritized(sampler=selectors.Prioritized(1.0, seed=i)) for i in range(2)])
    episodes(two, ITEMS)
    one = sharded([prioritized(sampler=selectors.Prioritized(1.0, seed=5))])
    episodes(one, [list(itertools.chain(*ITEMS))])
    observed = starts(two, draws)
    assert surprise(observed, expected(draws, ITEMS)) < 5
    assert surprise(starts(one, draws), expected(draws, ITEMS)) < 5
    # The twin, a shard that makes such draws again by itself: its one item would have the chance of its whole mass.
    by_itself = [[(5, 31.0)], [(4, 4.0), (3, 2.0)]]
    twin = dict(zip(expected(draws, ITEMS), expected(draws, by_itself).values(), strict=True))
    assert surprise(observed, twin) > 5


def test_windows_are_the_steps_of_their_items_over_every_way(everywhere, prioritized):
    client = everywhere([prioritized(sampler=selectors.Prioritized(1.0, seed=i)) for i in range(2)])
    episodes(client, ITEMS)
    assert surprise(starts(client, 1_000), expected(1_000, ITEMS)) < 5
    with client.windows("t", 32, 2, burn_in=1, max_samples=64) as batches:
        for batch in batches:
            assert batch.data["x"].shape == (32, 3)
            assert (np.diff(batch.data["x"], axis=1) == 1).all()
            np.testing.assert_array_equal(batch.start, batch.data["x"][:, 0] % 100)
            assert batch.loss_mask.tolist() == [[False, True, True]] * 32
            assert batch.is_first[:, 0].all()
            # The items of both shards, in one batch.
            assert len(set(batch.info.key >> 57)) == 2
    with client.windows("t", 64, 4, borders="pad", max_samples=64) as batches:
        padded = next(batches)
    assert not padded.mask.all()
    for steps, there in zip(padded.data["x"], padded.mask, strict=True):
        assert not steps[~there].any()
        assert (np.diff(steps[there]) == 1).all()


def test_items_too_short_everywhere_are_refused_and_an_empty_replay_waits(everywhere, prioritized):
    client = everywhere([prioritized() for _ in range(2)])
    with (
        client.windows("t", 2, 4, timeout=0, prefetch=0) as batches,
        pytest.raises(TimeoutError, match="1 more insert"),
    ):
        next(batches)
    episodes(client, [[(2, 1.0)], [(3, 1.0)]])
    for prefetch in (0, 2):
        with (
            client.windows("t", 50, 4, prefetch=prefetch) as batches,
            pytest.raises(RaggedError, match=r"over 2 shards: none of the last 10.. draws holds a window of 4 steps"),
        ):
            next(batches)
    with pytest.raises(ValueError, match='borders must be "drop", "pad" or "cross"'):
        client.windows("t", 2, 4, borders="both")
