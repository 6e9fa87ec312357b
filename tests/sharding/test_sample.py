"""Draws over several shards: the distribution of one table, its weights, and one batch."""

import numpy as np
import pytest

from reverie import Client, DeadlineExceededError, RaggedError, Server, selectors

#: Items of each of three shards: of unequal sizes and masses.
PRIORITIES = [np.linspace(1.0, 2.0, 5), np.linspace(0.1, 4.0, 20), np.array([30.0])]


def fill(client, priorities=PRIORITIES):
    """Puts items 0, 1, ... into the shards; their priorities in order."""
    first = 0
    for shard, some in enumerate(priorities):
        client.insert_batch("t", {"x": np.arange(first, first + len(some))}, priorities=some, shard=shard)
        first += len(some)
    return np.concatenate(priorities)


def counts(client, draws, num_items):
    found = [client.sample_batch("t", 500).data["x"] for _ in range(draws // 500)]
    return np.bincount(np.concatenate(found), minlength=num_items)


def surprise(observed, expected):
    """The distance of a chi-square statistic above its mean, in standard deviations (k - 1, variance 2 (k - 1))."""
    drawn = expected > 0
    assert not observed[~drawn].any()
    statistic = ((observed - expected)[drawn] ** 2 / expected[drawn]).sum()
    degrees = drawn.sum() - 1
    return (statistic - degrees) / np.sqrt(2 * degrees)


def test_items_of_all_shards_are_drawn_as_from_one_table(everywhere, prioritized):
    client = everywhere([prioritized(sampler=selectors.Prioritized(1.0, seed=i)) for i in range(3)])
    priorities = fill(client)
    draws = 20_000
    observed = counts(client, draws, len(priorities))
    expected = draws * priorities / priorities.sum()
    assert surprise(observed, expected) < 5
    # The twin: one item weighs 5 % of everything more than it should. And what RLlib did: a shard at random.
    wrong = expected * 0.95
    wrong[-1] += 0.05 * draws
    assert surprise(observed, wrong) > 5
    a_shard_at_random = np.concatenate([draws / 3 * some / some.sum() for some in PRIORITIES])
    assert surprise(observed, a_shard_at_random) > 5


def test_one_shard_and_three_give_the_same_distribution(sharded, prioritized):
    draws, both = 50_000, []
    for parts in ([np.concatenate(PRIORITIES)], PRIORITIES):
        client = sharded([prioritized(sampler=selectors.Prioritized(1.0, seed=i)) for i in range(len(parts))])
        both.append(counts(client, draws, len(fill(client, parts))))
    one, three = both
    # Two samples of one distribution: sum of (a - b)^2 / (a + b) is chi-square with k - 1 degrees.
    degrees = len(one) - 1
    difference = (((one - three) ** 2 / (one + three)).sum() - degrees) / np.sqrt(2 * degrees)
    assert difference < 5
    twin = three.copy()
    moved = int(0.05 * draws)
    twin[-1] -= moved
    twin[:25] += moved // 25
    assert (((one - twin) ** 2 / (one + twin)).sum() - degrees) / np.sqrt(2 * degrees) > 5


def test_uniform_shards_of_unequal_sizes_draw_every_item_alike(sharded, prioritized):
    client = sharded([prioritized(sampler=selectors.Uniform(seed=i)) for i in range(2)])
    fill(client, [np.ones(3), np.ones(17)])
    observed, expected = counts(client, 20_000, 20), np.full(20, 1000.0)
    assert surprise(observed, expected) < 5
    assert surprise(observed, np.repeat([10_000 / 3, 10_000 / 17], [3, 17])) > 5


@pytest.mark.parametrize("normalise", ["batch", "table"])
def test_probabilities_and_weights_are_those_of_one_big_table(everywhere, prioritized, normalise):
    client = everywhere([prioritized() for _ in range(3)])
    priorities = fill(client)
    batch = client.sample_batch("t", 64)
    items = batch.data["x"]
    chances = priorities / priorities.sum()
    np.testing.assert_allclose(batch.info.probability, chances[items], rtol=1e-12)
    np.testing.assert_array_equal(batch.info.table_size, np.full(64, len(priorities)))
    np.testing.assert_array_equal(batch.info.priority, priorities[items])
    raw = (len(priorities) * chances) ** -0.4
    largest = raw[items].max() if normalise == "batch" else raw.max()
    np.testing.assert_allclose(batch.weights(0.4, normalise), raw[items] / largest, rtol=1e-9)


def test_a_new_priority_moves_the_mass_of_its_shard_at_the_next_batch(everywhere, prioritized):
    client = everywhere([prioritized() for _ in range(2)])
    first = client.insert_batch("t", {"x": np.arange(4)}, priorities=np.ones(4), shard=0)
    second = client.insert_batch("t", {"x": np.arange(4, 8)}, priorities=np.ones(4), shard=1)
    assert set(client.sample_batch("t", 200).data["x"]) == set(range(8))
    result = client.update_priorities("t", np.concatenate([first, second]), np.r_[np.zeros(4), np.ones(4)])
    assert tuple(result) == (8, 0)
    # Weights of zero are drawn only where there is no other: nowhere, not in their own shard.
    assert set(client.sample_batch("t", 200).data["x"]) == {4, 5, 6, 7}
    client.update_priorities("t", second, np.zeros(4))
    assert set(client.sample_batch("t", 400).data["x"]) == set(range(8))


def test_columns_are_contiguous_and_rows_belong_together(everywhere, prioritized):
    client = everywhere([prioritized() for _ in range(2)])
    for shard in range(2):
        x = np.arange(6) + 10 * shard
        rows = {"x": x, "obs": {"frame": np.stack([x] * 6, 1).reshape(6, 2, 3).astype(np.uint8)}}
        keys = client.insert_batch("t", rows, priorities=np.ones(6), shard=shard)
        assert len(set(keys)) == 6
    batch = client.sample_batch("t", 50)
    frame = batch.data["obs"]["frame"]
    assert frame.shape == (50, 2, 3)
    assert frame.dtype == np.uint8
    assert frame.flags.c_contiguous
    assert frame.flags.writeable
    np.testing.assert_array_equal(frame, np.broadcast_to(batch.data["x"][:, None, None], (50, 2, 3)))
    read = client.get("t", batch.info.key[::-1])
    np.testing.assert_array_equal(read.data["x"], batch.data["x"][::-1])
    np.testing.assert_array_equal(read.info.key, batch.info.key[::-1])
    assert set(client.sample_batch("t", 5, columns=["x"]).data) == {"x"}


def trajectories(client):
    """Items of two cells in shard 0, of four in shard 1."""
    for shard, cells in enumerate([2, 4]):
        with client.trajectory_writer(4, shard=shard) as writer:
            for step in range(4):
                writer.append({"x": np.int64(10 * shard + step)})
            writer.create_item("t", 1.0, {"x": writer.history["x"][:cells]})


def test_items_of_unequal_lengths_are_refused_padded_or_given_as_values(everywhere, prioritized):
    client = everywhere([prioritized() for _ in range(2)])
    trajectories(client)
    with pytest.raises(RaggedError, match="x"):
        client.sample_batch("t", 50)
    padded = client.sample_batch("t", 50, ragged="pad")
    assert padded.data["x"].shape == (50, 4)
    short = np.array([0, 1, 0, 0])
    for row, mask in zip(padded.data["x"], padded.mask, strict=True):
        np.testing.assert_array_equal(row, short if row[0] == 0 else [10, 11, 12, 13])
        assert mask.tolist() == [True, True, row[0] != 0, row[0] != 0]
    values = client.sample_batch("t", 50, ragged="values")
    assert values.lengths.sum() == len(values.data["x"])
    assert set(values.lengths) == {2, 4}


def test_text_is_as_wide_as_the_widest_of_all_shards(everywhere, prioritized):
    client = everywhere([prioritized() for _ in range(2)])
    client.insert_batch("t", {"s": np.array(["a", "b"])}, shard=0)
    client.insert_batch("t", {"s": np.array(["longer"])}, shard=1)
    assert set(client.sample_batch("t", 50).data["s"]) == {"a", "b", "longer"}


def test_servers_of_this_process_and_others_give_one_batch(stack, prioritized):
    from reverie.testing import serve

    here = stack.enter_context(Server([prioritized()], listen=False, shard=0)).client()
    there = stack.enter_context(serve([prioritized()], "grpc", shard=1))
    client = stack.enter_context(Client([here, there], seed=1, timeout=200))
    priorities = fill(client, [np.ones(4), np.ones(4)])
    batch = client.sample_batch("t", 100)
    assert set(batch.data["x"]) == set(range(8))
    np.testing.assert_allclose(batch.info.probability, np.full(100, 1 / len(priorities)))
    trajectory = client.get("t", batch.info.key)
    np.testing.assert_array_equal(trajectory.data["x"], batch.data["x"])


def test_a_seed_fixes_which_shards_are_drawn_from(sharded, prioritized):
    def drawn(seed):
        tables = [prioritized(sampler=selectors.Prioritized(1.0, seed=i)) for i in range(2)]
        client = sharded(tables, seed=seed)
        fill(client, [np.ones(10), np.ones(10)])
        return client.sample_batch("t", 50).data["x"].tolist()

    assert drawn(1) == drawn(1)
    assert any(drawn(1) != drawn(seed) for seed in (2, 3, 4))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_come_ahead_and_end_at_their_limits(everywhere, prioritized, prefetch):
    client = everywhere([prioritized() for _ in range(2)])
    fill(client, [np.ones(4), np.ones(4)])
    with client.batches("t", 16, prefetch=prefetch, max_samples=40, columns=["x"]) as batches:
        assert [len(batch) for batch in batches] == [16, 16, 8]
    assert client.info().tables["t"].num_samples == 40
    assert batches.leftover == []


def test_batches_that_were_made_and_not_read_are_left_over(sharded, prioritized):
    client = sharded([prioritized() for _ in range(2)])
    fill(client, [np.ones(4), np.ones(4)])
    with client.batches("t", 16, prefetch=2) as batches:
        next(batches)
    drawn = client.info().tables["t"].num_samples
    assert drawn == 16 + sum(map(len, batches.leftover))


def test_a_mixture_draws_its_shares_from_all_shards(stack, prioritized):
    def tables():
        return [prioritized("a"), prioritized("b")]

    servers = [stack.enter_context(Server(tables(), listen=False, shard=i)) for i in range(2)]
    client = stack.enter_context(Client([server.client() for server in servers], timeout=200))
    for shard in range(2):
        for table, value in (("a", 0), ("b", 1)):
            client.insert_batch(table, {"x": np.full(3, value + 10 * shard)}, shard=shard)
    with client.batches({"a": 1, "b": 3}, 40) as batches:
        batch = next(batches)
    assert (batch.data["x"] % 10).tolist() == [0] * 10 + [1] * 30
    assert set(batch.data["x"]) == {0, 1, 10, 11}
    assert batch.smallest_probability is None


def test_an_empty_replay_waits_and_reports_its_reason(everywhere, prioritized):
    client = everywhere([prioritized() for _ in range(2)])
    with pytest.raises(DeadlineExceededError, match=r"over 2 of 2 shards: 0 items.*1 more insert is needed") as late:
        client.sample_batch("t", 4, timeout=0)
    assert late.value.partial is None
    with (
        client.batches("t", 4, timeout=0.05) as batches,
        pytest.raises(DeadlineExceededError, match="1 more insert is needed"),
    ):
        next(batches)
