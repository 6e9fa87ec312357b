"""`client.windows`: parts of a fixed length of stored episodes and sequences."""

import numpy as np
import pytest

import reverie
from reverie import Table, selectors


def write(client, lengths, per_item=None, period=None, table="t", **extra):
    """One episode after another, each an item (or items of `per_item` steps, one every `period`); x is 1000 e + t."""
    with client.trajectory_writer(max(lengths)) as writer:
        for episode, length in enumerate(lengths):
            for t in range(length):
                step = {"x": np.int64(1000 * episode + t), "e": np.int64(episode)}
                writer.append({**step, **{name: make(episode, t) for name, make in extra.items()}})
                if per_item and t + 1 >= per_item and (t + 1 - per_item) % period == 0:
                    writer.create_item(table, 1.0, {"x": writer.history["x"][-per_item:]})
            if not per_item:
                history = writer.history
                columns = {name: history[name][-length:] for name in ["x", *extra]}
                writer.create_item(table, 1.0, {**columns, "e": history["e"][-1]})
            writer.end_episode()


def take(client, count, length, *arguments, table="t", **options):
    """`count` windows as one batch."""
    with client.windows(table, count, length, *arguments, prefetch=0, **options) as batches:
        return next(batches)


def chi_square(counts):
    expected = counts.sum() / len(counts)
    return ((counts - expected) ** 2 / expected).sum()


def five_sigma(cells):
    return cells - 1 + 5 * (2 * (cells - 1)) ** 0.5


def test_windows_are_consecutive_steps_within_their_item(connect):
    client = connect()
    write(client, [5, 9, 6])
    batch = take(client, 200, 4)
    x, e = batch.data["x"], batch.data["e"]
    assert (x.shape, e.shape) == ((200, 4), (200,))
    assert (np.diff(x, axis=1) == 1).all()
    assert (x // 1000 == e[:, None]).all()
    assert x[:, 0].tolist() == (1000 * e + batch.start).tolist()
    assert set(e.tolist()) == {0, 1, 2}
    assert batch.mask is None
    assert batch.is_first.tolist() == [[True, False, False, False]] * 200
    assert batch.loss_mask.all()
    assert (batch.info.times_sampled > 0).all()


def test_every_window_of_an_item_is_equally_likely_and_a_five_percent_error_would_show(connect):
    client = connect()
    write(client, [12])
    counts = np.bincount(take(client, 40_000, 5).start, minlength=8).astype(float)
    assert len(counts) == 8
    assert chi_square(counts) < five_sigma(8)
    assert chi_square(counts * (1 + 0.05 * np.array([1, -1] * 4))) > five_sigma(8)


@pytest.mark.parametrize("borders", ["pad", "cross"])
def test_every_step_of_an_item_begins_as_many_windows_as_any_other(connect, borders):
    client = connect()
    write(client, [4, 40])
    client.delete("t", client.query("t").key[1:] if borders == "pad" else [])
    batch = take(client, 40_000, 6, borders=borders)
    starts = batch.start[batch.data["e"] == 0]
    counts = np.bincount(starts, minlength=4).astype(float)
    assert len(counts) == 4
    assert chi_square(counts) < five_sigma(4)
    assert chi_square(counts * (1 + 0.05 * np.array([1, -1] * 2))) > five_sigma(4)


def test_burn_in_precedes_the_steps_to_learn_from(connect):
    client = connect()
    write(client, [10])
    batch = take(client, 100, 3, 2)
    assert batch.data["x"].shape == (100, 5)
    assert batch.burn_in == 2
    assert batch.loss_mask.tolist() == [[False, False, True, True, True]] * 100
    assert set(batch.start.tolist()) == set(range(6))


def test_padding_is_zeros_and_masked_before_and_after_the_item(connect):
    client = connect()
    write(client, [4])
    batch = take(client, 200, 3, 2, borders="pad")
    assert set(batch.start.tolist()) == {-2, -1, 0, 1}
    for start, x, mask, learned in zip(batch.start, batch.data["x"], batch.mask, batch.loss_mask, strict=True):
        steps = np.arange(start, start + 5)
        there = (steps >= 0) & (steps < 4)
        assert mask.tolist() == there.tolist()
        assert x.tolist() == np.where(there, steps, 0).tolist()
        assert learned.tolist() == (there & (np.arange(5) >= 2)).tolist()
    assert batch.loss_mask.any(axis=1).all()


def test_crossing_windows_continue_in_the_next_episode_of_the_same_writer(connect):
    client = connect()
    write(client, [3, 2, 4])
    batch = take(client, 300, 5, borders="cross")
    stream = [0, 1, 2, 1000, 1001, 2000, 2001, 2002, 2003]
    seen = set()
    for x, first in zip(batch.data["x"].tolist(), batch.is_first.tolist(), strict=True):
        at = stream.index(x[0])
        assert x == stream[at : at + 5]
        assert first == [step == 0 or step % 1000 == 0 for step in x] or first[0]
        assert first[1:] == [step % 1000 == 0 for step in x[1:]]
        seen.add(at)
    assert seen == {0, 1, 2, 3, 4}, "and none begins where a window would not be full"
    assert batch.mask is None


def test_crossing_windows_do_not_continue_in_another_writers_steps(connect):
    client = connect()
    write(client, [4])
    write(client, [4, 4])
    batch = take(client, 100, 6, borders="cross")
    first = client.query("t").key[0]
    assert first not in batch.info.key, "its writer wrote nothing behind it"
    assert set(batch.start.tolist()) == {0, 1, 2}


def test_crossing_windows_take_steps_that_sequences_share_once(connect):
    client = connect()
    write(client, [12], per_item=4, period=2)
    batch = take(client, 200, 7, borders="cross")
    assert (np.diff(batch.data["x"], axis=1) == 1).all()
    assert batch.is_first[:, 1:].sum() == 0
    assert set(batch.data["x"][:, 0].tolist()) == set(range(6))


@pytest.mark.one_table_only("the error of shards does not know the longest item")
def test_too_short_items_give_no_window_and_a_table_of_them_is_refused(connect):
    client = connect()
    write(client, [3, 8])
    assert set(take(client, 100, 5).data["e"].tolist()) == {1}
    assert client.info().tables["t"].rate_limiter_info.sample_stats.completed > 150, "draws passed over count"
    with pytest.raises(reverie.RaggedError, match=r"none of the last 1000 draws holds a window of 9 steps .* has 8\)"):
        take(client, 1, 9)
    with pytest.raises(reverie.RaggedError, match="borders"):
        take(client, 1, 12, borders="cross")
    assert take(client, 1, 9, borders="pad").data["x"].shape == (1, 9)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_windows_need_items_with_one_time_axis_and_a_table_that_keeps_them(connect, uniform):
    client = connect(uniform("t"), Table.queue("q", 10), uniform("rows"))
    with client.trajectory_writer(4) as writer:
        for t in range(4):
            writer.append({"x": t, "y": t})
        writer.create_item("t", 1.0, {"x": writer.history["x"][-4:], "y": writer.history["y"][-3:]})
    with pytest.raises(reverie.RaggedError, match="'x' has 4 steps, 'y' has 3 steps"):
        take(client, 1, 2)
    client.insert_batch("rows", {"x": np.arange(3)})
    with pytest.raises(reverie.RaggedError, match="'x' has none"):
        take(client, 1, 1, table="rows")
    write(client, [5], table="q")
    with pytest.raises(ValueError, match=r'gives items away .* borders="pad"'):
        take(client, 1, 2, table="q")
    assert client.info().tables["q"].current_size == 1
    assert take(client, 1, 2, table="q", borders="pad").data["x"].shape == (1, 2)
    assert client.info().tables["q"].current_size == 0


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_items_of_a_queue_that_cannot_be_windows_are_handed_out_whole(connect):
    client = connect(Table.queue("q", 10))
    client.insert_batch("q", {"x": np.arange(2)})
    with pytest.raises(reverie.RaggedError) as raised:
        take(client, 2, 1, table="q", borders="pad")
    assert [batch.data["x"].tolist() for batch in raised.value.drawn] == [[0], [1]]


def test_wrong_sizes_and_borders_are_refused_where_they_are_given(connect):
    client = connect()
    for arguments, words in (
        ((0, 4), "batch_size must be at least 1"),
        ((1, 0), "length must be at least 1"),
        ((1, 1, -1), "burn_in must be at least 0"),
        ((1, 1, 0, "wrap"), 'borders must be "drop"'),
    ):
        with pytest.raises(ValueError, match=words):
            client.windows("t", *arguments)
    write(client, [4])
    with pytest.raises(ValueError, match="at most 16777216 steps"):
        take(client, 1, 1 << 24, 1)


def test_only_the_windows_are_copied_and_sent(connect):
    client = connect()
    rows = 2_000
    with client.trajectory_writer(rows) as writer:
        for t in range(rows):
            writer.append({"frame": np.full(1000, t % 251, np.uint8)})
        writer.create_item("t", 1.0, {"frame": writer.history["frame"][-rows:]})
    take(client, 1, 1)
    before = client.info().bytes_received
    batch = take(client, 4, 8)
    received = client.info().bytes_received - before
    assert batch.data["frame"].nbytes == 4 * 8 * 1000
    assert received < 4 * 8 * 1000 + 20_000
    for frame, start in zip(batch.data["frame"], batch.start, strict=True):
        assert frame[:, 0].tolist() == [t % 251 for t in range(start, start + 8)]


def test_windows_of_text_and_of_few_columns(connect):
    client = connect()
    write(client, [6, 7], name=lambda episode, t: np.array("ab" * (episode + 1)), y=lambda episode, t: float(t))
    batch = take(client, 50, 3, borders="cross")
    assert batch.data["name"].shape == (50, 3)
    assert set(batch.data["name"].ravel().tolist()) == {"ab", "abab"}
    only = take(client, 5, 3, columns=["y"])
    assert only.data.keys() == {"y"}


@pytest.mark.one_table_only("which server a draw uses has a generator of its own: the order is another")
def test_the_same_seed_gives_the_same_windows_and_whole_draws_stay_as_they_are(connect, uniform):
    def windows():
        client = connect(uniform("t", sampler=selectors.Prioritized(0.5, seed=7)))
        write(client, [30, 20, 10])
        batch = take(client, 32, 5, borders="pad")
        return batch.start.tolist(), batch.data["e"].tolist()

    first = windows()
    assert first == windows()
    assert len(set(first[0])) > 5


def test_windows_are_prefetched_from_mixtures_and_as_tensors(connect, uniform):
    pytest.importorskip("torch")
    client = connect(uniform("t"), uniform("other"))
    write(client, [8])
    write(client, [9, 9], table="other")
    with client.windows({"t": 0.5, "other": 0.5}, 6, 2, 1, max_samples=15, as_="torch") as batches:
        shapes = [tuple(batch.data["x"].shape) for batch in batches]
    assert shapes == [(6, 3), (6, 3), (3, 3)]
    with client.windows("t", 4, 2, 1, "pad", as_="torch", prefetch=3) as batches:
        batch = next(batches)
    assert batch.mask.shape == batch.is_first.shape == batch.loss_mask.shape == (4, 3)
    assert batch.burn_in == 1
    assert all(left.burn_in == 1 and left.loss_mask.shape == (4, 3) for left in batches.leftover)
