"""The legacy writer: items are the latest steps."""

import gc

import numpy as np
import pytest

import reverie
from reverie import Table, TensorSpec, rate_limiters, selectors

pytestmark = pytest.mark.one_table_only("its tables delete sampled items: shards refuse them")


def once(name, **options):
    return Table(name, selectors.Fifo(), selectors.Fifo(), 1000, rate_limiters.MinSize(1), 1, **options)


@pytest.fixture
def client(connect):
    return connect(once("t"), once("u"), Table.queue("q", 1))


def step(number):
    return {"o": np.full(2, number, np.float32), "r": number}


def read(client, count=1, table="t"):
    samples = client.sample(table, count, emit_timesteps=False, unpack_as_table_signature=True, timeout=200)
    return [sample.data["r"].tolist() for sample in samples]


def test_items_are_the_latest_steps_and_several_tables_share_them(client):
    with client.writer(3) as writer:
        for number in range(12):
            writer.append(step(number))
            if number >= 2:
                writer.create_item("t", 3, 1.0)
        writer.create_item("u", 1, 2.0)
    assert read(client, 10) == [[number, number + 1, number + 2] for number in range(10)]
    assert read(client, 1, "u") == [[11]]


def test_sampled_step_by_step_every_step_is_a_sample(client):
    with client.writer(3) as writer:
        writer.append_sequence({"o": np.ones((3, 2), np.float32), "r": np.arange(3)})
        writer.create_item("t", 2, 1.0)
    [steps] = client.sample("t", timeout=200)
    assert [[cell.tolist() for cell in sample.data] for sample in steps] == [[[1.0, 1.0], 1], [[1.0, 1.0], 2]]
    assert {sample.info.key for sample in steps} == {steps[0].info.key}


def test_a_sequence_is_appended_step_by_step(client):
    with client.writer(4) as writer:
        writer.append_sequence({"o": np.zeros((3, 2), np.float32), "r": np.arange(3)})
        writer.append(step(3))
        writer.create_item("t", 4, 1.0)
        with pytest.raises(ValueError, match=r"share a first axis, got 'o' \(2, 2\), 'r' \(3,\)"):
            writer.append_sequence({"o": np.zeros((2, 2), np.float32), "r": np.arange(3)})
        with pytest.raises(ValueError, match="share a first axis"):
            writer.append_sequence({"o": np.float32(1), "r": 3})
    assert read(client) == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("signature", "fits"),
    [
        (TensorSpec((2,), np.float32), True),
        (TensorSpec((3, 2), np.float32), True),
        (TensorSpec((None, 2), np.float32), True),
        (TensorSpec((2, 2), np.float32), False),
        (TensorSpec((3,), np.float32), False),
        (TensorSpec((2,), np.float64), False),
    ],
)
def test_a_signature_may_describe_the_step_or_the_item(connect, signature, fits):
    client = connect(once("t", signature={"o": signature}))
    writer = client.writer(3)
    for number in range(3):
        writer.append({"o": np.full(2, number, np.float32)})
    if not fits:
        with pytest.raises(reverie.SignatureError, match="'o'"):
            writer.create_item("t", 3, 1.0)
        return
    writer.create_item("t", 3, 1.0)
    writer.close()
    assert client.sample_batch("t", 1, timeout=200).data["o"][0, :, 0].tolist() == [0, 1, 2]


def test_a_trajectory_is_described_as_a_whole_even_where_its_columns_are_steps(connect):
    client = connect(once("t", signature={"o": TensorSpec((2,), np.float32)}))
    writer = client.trajectory_writer(3)
    writer.append({"o": np.zeros(2, np.float32)})
    with pytest.raises(reverie.SignatureError, match="'o'"):
        writer.create_item("t", 1.0, {"o": writer.history["o"][-1:]})


def test_a_step_unlike_the_first_is_refused_and_the_next_is_accepted(client):
    writer = client.writer(3)
    writer.append(step(0))
    for bad, path in (({"o": np.zeros(3, np.float32), "r": 1}, "o"), ({"o": None, "r": 1}, "o"), ({"r": 1}, "")):
        with pytest.raises(reverie.SignatureError) as raised:
            writer.append(bad)
        assert raised.value.path == path
    with pytest.raises(reverie.SignatureError, match="at least one array"):
        client.writer(1).append({})
    writer.append(step(1))
    writer.create_item("t", 2, 1.0)
    writer.flush(timeout=200)
    assert read(client) == [[0, 1]]


def test_an_item_has_at_least_one_step_and_no_more_than_are_kept(client):
    writer = client.writer(2)
    with pytest.raises(ValueError, match="the 0 steps"):
        writer.create_item("t", 1, 1.0)
    for number in range(5):
        writer.append(step(number))
    with pytest.raises(ValueError, match=r"the 2 steps that are kept \(max_sequence_length=2\), got 3"):
        writer.create_item("t", 3, 1.0)
    with pytest.raises(ValueError, match="num_timesteps must be at least 1"):
        writer.create_item("t", 0, 1.0)
    with pytest.raises(ValueError, match="nope"):
        writer.create_item("nope", 1, 1.0)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"max_sequence_length": 0}, "max_sequence_length"),
        ({"max_sequence_length": 3, "chunk_length": 0}, "chunk_length"),
        ({"max_sequence_length": 3, "chunk_length": 4}, "max_sequence_length=3"),
        ({"max_sequence_length": 3, "max_in_flight_items": 0}, "max_in_flight_items"),
    ],
)
def test_invalid_counts_are_refused(client, arguments, name):
    with pytest.raises(ValueError, match=name):
        client.writer(**arguments)


def test_making_an_item_waits_while_as_many_as_allowed_are_unconfirmed(client):
    writer = client.writer(1, max_in_flight_items=2, timeout=0.05)
    writer.append(step(7))
    for _ in range(3):  # The queue takes one.
        writer.create_item("q", 1, 1.0)
        writer._steps._flush(2, 30)
    with pytest.raises(reverie.DeadlineExceededError, match="'q'"):
        writer.create_item("q", 1, 1.0)
    assert read(client, 3, "q") == [[7], [7], [7]]
    writer._steps._flush(0, 30)  # confirmed by now, and the confirmation has arrived
    writer.create_item("q", 1, 1.0)
    assert read(client, 1, "q") == [[7]]
    free = client.writer(1, max_in_flight_items=None, timeout=0.05)
    free.append(step(1))
    for _ in range(50):
        free.create_item("q", 1, 1.0)
    assert free.num_in_flight >= 49


def test_a_writer_is_closed_once_and_refuses_everything_after(client):
    with client.writer(2) as writer:
        writer.append(step(0))
    for use in (lambda: writer.append(step(1)), lambda: writer.create_item("t", 1, 1.0), writer.flush):
        with pytest.raises(reverie.ClosedError) as raised:
            use()
        assert isinstance(raised.value, RuntimeError)  # What ported code expects.
    with pytest.raises(ValueError, match="already closed"):
        writer.close()
    with pytest.raises(ValueError, match="cannot be entered"):
        writer.__enter__()
    with client.writer(2) as writer:
        writer.close()


def test_leaving_the_block_flushes_unless_the_replay_itself_failed(client):
    def leave(error, tables, **options):
        with client.writer(1, **options) as writer:
            writer.append(step(3))
            for table in tables:
                writer.create_item(table, 1, 1.0)
            raise error

    with pytest.raises(KeyError):
        leave(KeyError(), ["t"])
    assert read(client) == [[3]]
    with pytest.raises(reverie.DeadlineExceededError, match="the first"):
        leave(reverie.DeadlineExceededError("the first"), ["q", "q"], timeout=0.05)
    writer = client.writer(1)
    writer.append(step(3))
    writer.create_item("q", 1, 1.0)
    with pytest.raises(reverie.DeadlineExceededError, match="'q'"):
        writer.close(retry_on_unavailable=False)


def test_delta_encoding_stores_steps_that_change_little_in_less(connect):
    client = connect(once("t"))

    def stored(**options):
        writer = client.writer(10, chunk_length=10, **options)
        rng = np.random.default_rng(0)
        frame = rng.integers(0, 256, 500, dtype=np.uint8)
        for number in range(10):
            frame = frame.copy()
            frame[number] += 1
            writer.append({"o": frame, "r": number})
        writer.create_item("t", 10, 1.0)
        writer.flush(timeout=200)
        size = client.info().size_bytes
        [sample] = client.sample("t", 1, emit_timesteps=False, timeout=200)
        assert (sample.data[0][-1] == frame).all()
        writer.close()
        return size

    plain = stored()
    client.reset("t")
    gc.collect()
    assert stored(delta_encoded=True) < plain / 4
