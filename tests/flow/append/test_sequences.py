"""Writers of overlapping sequences and of whole episodes."""

import pickle

import numpy as np
import pytest

import reverie
from reverie import SignatureError, Table, rate_limiters, selectors

pytestmark = pytest.mark.one_table_only("its tables delete sampled items: shards refuse them")


@pytest.fixture
def client(connect):
    fifo = Table("t", selectors.Fifo(), selectors.Fifo(), 1000, rate_limiters.MinSize(1), max_times_sampled=1)
    return connect(fifo, fifo.replace(name="kept", max_times_sampled=0), Table.queue("q", 1))


def stored(client):
    size = client.server_info()["t"].current_size
    samples = client.sample("t", size, emit_timesteps=False) if size else ()
    return [sample.data[0].tolist() for sample in samples]


def sequences(client, lengths, *arguments, **options):
    """The steps of every item of episodes of these lengths; steps count on from episode to episode."""
    step, dropped = 0, 0
    with client.sequence_writer("t", *arguments, **options) as writer:
        for length in lengths:
            for _ in range(length):
                writer.append({"x": step})
                step += 1
            writer.end_episode(timeout=200)
        dropped = writer.num_dropped
    return stored(client), dropped


def test_a_sequence_begins_with_the_episode_and_every_period_steps(client):
    assert sequences(client, [8], 4, 2) == ([[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7]], 0)
    assert sequences(client, [4, 4], 2, 2) == ([[0, 1], [2, 3], [4, 5], [6, 7]], 0)
    assert sequences(client, [5], 3, 1, 1, head="drop") == ([[0, 1, 2, 3], [1, 2, 3, 4]], 0)


@pytest.mark.parametrize(
    ("tail", "want", "dropped"),
    [
        ("short", [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6], [7, 8]], 0),
        ("shift", [[0, 1, 2, 3], [2, 3, 4, 5], [3, 4, 5, 6]], 2),
        ("drop", [[0, 1, 2, 3], [2, 3, 4, 5]], 3),
    ],
)
def test_the_end_of_an_episode_is_short_shifted_or_dropped(client, tail, want, dropped):
    assert sequences(client, [7, 2], 4, 2, tail=tail) == (want, dropped)


@pytest.mark.parametrize("tail", ["short", "shift"])
@pytest.mark.parametrize(("length", "period", "burn_in"), [(3, 1, 0), (3, 3, 0), (4, 2, 2), (2, 2, 3), (1, 1, 4)])
def test_every_step_behind_the_burn_in_is_learnt_from(client, tail, length, period, burn_in):
    for steps in range(burn_in + length, burn_in + 3 * length + 2):
        items, dropped = sequences(client, [steps], length, period, burn_in, head="drop", tail=tail)
        learnt = {step for item in items for step in item[burn_in:]}
        assert (learnt, dropped) == (set(range(burn_in, steps)), 0)
        assert all(item == list(range(item[0], item[-1] + 1)) and len(item) > burn_in for item in items)
        assert len({tuple(item) for item in items}) == len(items)


def test_an_episode_with_nothing_but_burn_in_is_dropped_and_counted(client):
    assert sequences(client, [3, 4], 2, 2, 3, head="drop") == ([[3, 4, 5, 6]], 3)
    assert sequences(client, [0, 0], 2, 2) == ([], 0)


def padded(client, lengths, length, period, burn_in, **options):
    """The steps of every item as its batch has them, None for padding; steps count on from episode to episode."""
    step = 1
    with client.sequence_writer("t", length, period, burn_in, **options) as writer:
        for steps in lengths:
            for count in range(steps):
                writer.append({"x": step})
                step += 1
                assert writer.episode_steps == count + 1
            writer.end_episode(timeout=200)
    size = client.server_info()["t"].current_size
    data = client.sample_batch("t", size, ragged="pad").data
    assert (data["x"][~data["mask"]] == 0).all()
    pairs = zip(data["x"].tolist(), data["mask"].tolist(), strict=True)
    return [[x if real else None for x, real in zip(xs, mask, strict=True)] for xs, mask in pairs], writer.num_dropped


def test_the_first_steps_of_an_episode_are_learnt_from_behind_padding(client):
    assert padded(client, [5], 2, 1, 2) == (
        [[None, None, 1, 2], [None, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]],
        0,
    )
    assert padded(client, [3, 1], 2, 2, 1) == ([[None, 1, 2], [2, 3, None], [None, 4, None]], 0)
    items, dropped = padded(client, [40], 20, 20, 40)
    assert dropped == 0
    assert [item[40:] for item in items] == [list(range(1, 21)), list(range(21, 41))]
    assert [sum(step is None for step in item) for item in items] == [40, 20]


@pytest.mark.parametrize(("length", "period", "burn_in"), [(3, 1, 1), (4, 2, 2), (2, 2, 3), (1, 1, 4), (20, 7, 40)])
def test_with_padding_every_step_of_every_episode_is_learnt_from(client, length, period, burn_in):
    for steps in range(1, burn_in + 3 * length):
        items, dropped = padded(client, [steps], length, period, burn_in)
        learnt = {step for item in items for step in item[burn_in:]} - {None}
        assert (learnt, dropped) == (set(range(1, steps + 1)), 0)
        for item in items:
            first = item[burn_in]
            before = [step if step > 0 else None for step in range(first - burn_in, first)]
            assert item[:burn_in] == before


def test_the_padding_of_a_column_is_zeros_of_its_dtype_and_shape(client):
    step = {"obs": {"pixels": np.full((2, 2), 7, np.uint8)}, "reward": 1.5, "done": True, "text": "abc"}
    with client.sequence_writer("t", 1, 1, 1) as writer:
        writer.append(step)
    data = client.sample_batch("t", 1).data
    assert data["mask"].tolist() == [[False, True]]
    assert (data["obs"]["pixels"].dtype, data["obs"]["pixels"].tolist()) == (np.uint8, [[[[0] * 2] * 2, [[7] * 2] * 2]])
    assert (data["reward"].tolist(), data["done"].tolist()) == ([[0.0, 1.5]], [[False, True]])
    assert data["text"].tolist() == [["", "abc"]]


@pytest.mark.parametrize("step", [np.zeros(2), [1, 2], {"x": 1, "mask": True}])
def test_a_step_that_cannot_have_a_mask_is_refused_with_the_way_out(client, step):
    writer = client.sequence_writer("t", 2, 1, 1)
    with pytest.raises(SignatureError, match=r"column 'mask'.*head=\"drop\""):
        writer.append(step)
    assert writer.episode_steps == 0
    client.sequence_writer("t", 2, 1, 1, head="drop").append(step)
    client.sequence_writer("t", 2, 1).append(step)


def test_the_first_episode_that_is_in_no_item_is_logged_with_the_way_to_keep_it(client, caplog):
    for options, remedy in (
        ({"burn_in": 40, "head": "drop"}, 'head="pad" and tail="short"'),
        ({"burn_in": 40, "tail": "drop"}, 'tail="short"'),
        ({"tail": "shift"}, 'tail="short"'),
    ):
        caplog.clear()
        writer = client.sequence_writer("t", 20, 20, **options)
        for steps in (0, 10, 10):
            for step in range(steps):
                writer.append({"x": step})
            writer.end_episode(timeout=200)
        assert writer.num_dropped == 20
        (line,) = [one for one in caplog.messages if "in no item" in one]
        assert "an episode of 10 steps is in no item of table 't'" in line
        assert f"; {remedy} keeps every step" in line


def test_a_step_behind_padding_whose_append_timed_out_is_in_its_sequence(client):
    writer = client.sequence_writer("q", 1, 1, 1, max_in_flight_bytes=8, timeout=0.02)
    writer.append({"x": 1})
    writer.flush(timeout=200)
    for step in range(2, 4):
        with pytest.raises(reverie.DeadlineExceededError):
            writer.append({"x": step})
    assert client.sample_batch("q", 3, timeout=200).data["x"].tolist() == [[0, 1], [1, 2], [2, 3]]


def test_short_tails_are_read_padded_and_masked(client):
    with client.sequence_writer("t", 3, 3) as writer:
        for step in range(4):
            done = writer.append({"obs": np.full(2, step, np.float32), "deep": [step]})
            assert done == (step == 2)
        writer.end_episode(timeout=200)
    batch = client.sample_batch("t", 2, ragged="pad")
    assert batch.data["obs"][:, :, 0].tolist() == [[0, 1, 2], [3, 0, 0]]
    assert batch.data["deep"][0].tolist() == [[0, 1, 2], [3, 0, 0]]
    assert batch.mask.tolist() == [[True] * 3, [True, False, False]]


def test_overlapping_sequences_share_their_bytes(client):
    noise = np.random.default_rng(0).normal(size=(400, 500)).astype(np.float32)
    with client.sequence_writer("kept", 40, 10, 10, tail="drop") as writer:
        for cell in noise:
            writer.append({"obs": cell})
    info = client.info()
    assert info.tables["kept"].current_size == 37
    # 400 steps of 2 kB; apart, 37 items of 50 steps would take 4.5 times as much.
    assert noise.nbytes <= info.size_bytes < 1.3 * noise.nbytes


def test_priorities_of_sequences_and_episodes_are_given(client):
    with client.sequence_writer("t", 1, 1, priority=2.5) as writer:
        writer.append({"x": 1})
    with client.episode_writer("t", priority=3.5) as writer:
        for priority in (None, 4.5):
            writer.append({"x": 1})
            writer.end_episode(timeout=200, priority=priority)
    assert client.sample_batch("t", 3).info.priority.tolist() == [2.5, 3.5, 4.5]


def test_an_episode_is_one_item(client):
    with client.episode_writer("t") as writer:
        for length in (3, 0, 1, 200):
            for step in range(length):
                writer.append({"x": step})
            assert writer.episode_steps == length
            writer.end_episode(timeout=200)
        writer.append({"x": -1})
    assert stored(client) == [[0, 1, 2], [0], list(range(200))]


def test_an_episode_beyond_its_bound_is_refused_and_can_be_ended(client):
    writer = client.episode_writer("t", max_length=2)
    for step in range(2):
        writer.append({"x": step})
    with pytest.raises(ValueError, match="max_length"):
        writer.append({"x": 2})
    writer.end_episode(timeout=200)
    assert stored(client) == [[0, 1]]


def test_an_episode_ends_even_if_its_item_is_refused(client):
    writer = client.episode_writer("t")
    writer.append({"x": 1, "y": None})
    writer.append({"x": 1, "y": 2})
    with pytest.raises(ValueError, match=r"'y'.*None"):
        writer.end_episode()
    assert writer.episode_steps == 0
    writer = client.sequence_writer("t", 3, 1)
    writer.append({"x": 1, "y": None})
    writer.append({"x": 1, "y": 2})
    with pytest.raises(ValueError, match=r"'y'.*None"):
        writer.end_episode()
    for step in range(2):
        writer.append({"x": step, "y": 0})
    writer.end_episode(timeout=200)
    assert stored(client) == [[0, 1]]


def test_a_step_whose_append_timed_out_still_completes_its_sequence(client):
    writer = client.sequence_writer("q", 1, 1, max_in_flight_bytes=8, timeout=0.02)
    writer.append({"x": 0})
    # The queue is full with it; what follows waits there.
    writer.flush(timeout=200)
    writer.append({"x": 1})
    for step in range(2, 4):
        with pytest.raises(reverie.DeadlineExceededError):
            writer.append({"x": step})
    assert client.sample_batch("q", 4, timeout=200).data["x"].tolist() == [[0], [1], [2], [3]]


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        ((0, 1), {}, "length must be at least 1"),
        ((3, 0), {}, "period must be at least 1"),
        ((3, 4), {}, r"at most length \(3\)"),
        ((3, 1, -1), {}, "burn_in must be at least 0"),
        ((3, 1), {"tail": "pad"}, "'short', 'shift', 'drop'"),
        ((3, 1), {"head": "short"}, "'pad', 'drop'"),
    ],
)
def test_invalid_arguments_are_refused(client, arguments, options, says):
    with pytest.raises(ValueError, match=says):
        client.sequence_writer("t", *arguments, **options)


@pytest.mark.parametrize(
    ("priority", "kind", "says"),
    [
        ("min", TypeError, "'min'"),
        ([1.0], TypeError, r"\[1.0\]"),
        (float("nan"), ValueError, "(?i)finite number, got nan"),
    ],
)
def test_a_priority_that_no_table_takes_is_refused_where_the_writer_is_made(client, priority, kind, says):
    for make in (
        lambda: client.sequence_writer("t", 2, 1, priority=priority),
        lambda: client.episode_writer("t", priority=priority),
        lambda: client.episode_writer("t", num_envs=2, priority=priority),
        lambda: client.transition_writer("t", priority=priority),
    ):
        with pytest.raises(kind, match=says):
            make()


def test_unknown_tables_and_closed_writers_refuse(client):
    with pytest.raises(reverie.UnknownTableError):
        client.sequence_writer("nope", 2, 1)
    with pytest.raises(reverie.UnknownTableError):
        client.episode_writer("nope")
    with pytest.raises(ValueError, match="max_length"):
        client.episode_writer("t", max_length=0)
    for writer in (client.sequence_writer("t", 2, 1), client.episode_writer("t")):
        writer.close()
        writer.close()
        with pytest.raises(reverie.ClosedError):
            writer.append({"x": 1})
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(writer)
