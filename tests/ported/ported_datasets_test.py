"""Datasets where this package stands in for dm-reverb next to TensorFlow: they are TensorFlow's, as programs expect."""

import gc
import threading

import numpy as np
import pytest
import reverb  # This package: see ported_reverb.py.
import tensorflow as tf
from reverb import pattern_dataset
from reverb import structured_writer as sw

SIGNATURE = {"o": tf.TensorSpec([3, 2], tf.float32), "r": tf.TensorSpec([3], tf.int64)}
DTYPES = {"o": tf.float32, "r": tf.int64}
SHAPES = {"o": tf.TensorShape([3, 2]), "r": tf.TensorShape([3])}
STEPS = {"a": [1, 2, 3, 4], "last": [False, False, True, False]}


@pytest.fixture
def server():
    fifo = reverb.selectors.Fifo()
    table = reverb.Table("t", fifo, fifo, 100, reverb.rate_limiters.MinSize(1), signature=SIGNATURE)
    server = reverb.Server([table, reverb.Table.queue("q", 100, signature=SIGNATURE)])
    with server.localhost_client().trajectory_writer(3) as writer:
        for step in range(12):
            writer.append({"o": np.full(2, step, np.float32), "r": step})
            if step >= 2:
                for name in ("t", "q"):
                    writer.create_item(name, 1.0, {key: writer.history[key][-3:] for key in ("o", "r")})
    yield server
    server.stop()


@pytest.fixture
def address(server):
    return f"localhost:{server.port}"


def read(address, table="t", **options):
    return reverb.TrajectoryDataset.from_table_signature(address, table, 10, **options)


def test_a_loop_gets_eager_tensors(address):
    dataset = read(address, max_samples=2)
    assert isinstance(dataset, tf.data.Dataset)
    sample = next(iter(dataset))
    assert isinstance(sample, reverb.ReplaySample)
    assert (sample.data["r"].numpy().tolist(), int(sample.info.table_size.numpy())) == ([0, 1, 2], 10)
    assert sample.data["o"].shape == tf.TensorShape([3, 2])
    assert [element.data["r"].tolist() for element in dataset.as_numpy_iterator()] == [[0, 1, 2]] * 2


def test_datasets_join_those_of_tensorflow(address):
    dataset, numbers = read(address), tf.data.Dataset.range(3)
    assert [int(number) for _, number in tf.data.Dataset.zip((dataset, numbers))] == [0, 1, 2]
    both = read(address, "q", max_samples=2).concatenate(read(address, "q", max_samples=2))
    assert [int(sample.data["r"][0]) for sample in both] == [0, 1, 2, 3]
    assert len(list(tf.data.Dataset.sample_from_datasets([dataset, dataset], [0.5, 0.5]).take(4))) == 4


def test_functions_of_graphs_read_them(address):
    @tf.function
    def total(dataset):
        sum_ = tf.constant(0, tf.int64)
        for sample in dataset:
            sum_ += tf.reduce_sum(sample.data["r"])
        return sum_

    assert int(total(read(address, "q", max_samples=3))) == 3 + 6 + 9
    doubled = read(address, max_samples=4).map(lambda sample: 2 * sample.data["r"], num_parallel_calls=tf.data.AUTOTUNE)
    assert [batch.numpy().tolist() for batch in doubled.batch(4, drop_remainder=True)] == [[[0, 2, 4]] * 4]


def test_an_interleave_may_take_addresses_and_tables_from_a_dataset(address):
    def one(where):
        return reverb.TrajectoryDataset(where, tf.constant("q"), DTYPES, SHAPES, 10, max_samples=2)

    dataset = tf.data.Dataset.from_tensors(address).repeat(2).interleave(one, cycle_length=2)
    assert sorted(int(sample.data["r"][0]) for sample in dataset) == [0, 1, 2, 3]
    assert [int(sample.data["r"][0]) for sample in one(tf.constant(address))] == [4, 5]


def test_items_that_a_queue_was_not_asked_for_stay_there(address):
    assert len(list(read(address, "q", max_samples=4, num_workers_per_iterator=3))) == 4
    assert reverb.Client(address).server_info()["q"].current_size == 6
    assert len(list(read(address, "q", rate_limiter_timeout_ms=0))) == 6


def test_timesteps_and_refusals_are_theirs(address):
    steps = reverb.TimestepDataset(address, "t", DTYPES, {"o": tf.TensorShape([2]), "r": tf.TensorShape([])}, 10)
    assert [step.data["r"].numpy() for step in steps.take(4)] == [0, 1, 2, 0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="column 'o'"):
        next(iter(reverb.TrajectoryDataset(address, "t", {**DTYPES, "o": tf.int32}, SHAPES, 10)))
    with pytest.raises(ValueError, match="max_in_flight_samples_per_worker"):
        reverb.TrajectoryDataset(address, "t", DTYPES, SHAPES, 0)


def test_sessions_of_tensorflow_1_have_iterators_of_them(address):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        rows = lambda dataset: dataset.map(lambda sample: sample.data["r"])  # noqa: E731
        once = rows(read(address, "q", max_samples=2)).make_one_shot_iterator().get_next()
        assert [session.run(once).tolist() for _ in range(2)] == [[0, 1, 2], [1, 2, 3]]
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(once)
        where, table = tf.constant(address), tf.constant("q")
        dataset = reverb.TrajectoryDataset(where, table, DTYPES, SHAPES, 10, rate_limiter_timeout_ms=0).batch(4)
        again = dataset.make_initializable_iterator()
        session.run(again.initializer)
        sample = session.run(again.get_next())
        assert isinstance(sample, reverb.ReplaySample)
        assert (sample.data["r"][:, 0].tolist(), sample.info.key.dtype) == ([2, 3, 4, 5], np.uint64)


def test_signatures_of_configs_are_of_tensorflows_specs():
    step = sw.create_reference_step(SIGNATURE)
    config = sw.create_config({"last": step["r"][-1], "two": {"o": step["o"][-2:]}}, "t")
    assert sw.infer_signature([config], SIGNATURE) == {
        "last": tf.TensorSpec([3], tf.int64, "last"), "two": {"o": tf.TensorSpec([2, 3, 2], tf.float32, "two/o")}
    }  # fmt: skip


def test_patterns_of_a_dataset_are_a_dataset():
    steps = tf.data.Dataset.from_tensor_slices(STEPS)
    step = sw.create_reference_step(steps.element_spec)
    pairs = [sw.create_config({"pair": step["a"][-2:]}, "none")]
    dataset = reverb.PatternDataset(steps, pairs, True, lambda step: step["last"])
    assert [window["pair"].numpy().tolist() for window in dataset] == [[1, 2], [2, 3]]
    firsts = [sw.create_config(sw.pattern_from_transform(None, lambda step: step[-1]), "none")]
    single = tf.data.Dataset.from_tensor_slices({"a": STEPS["a"]})
    assert [int(a) for a in reverb.PatternDataset(single, firsts, False, lambda step: False)] == STEPS["a"]
    samples = pattern_dataset.pattern_dataset_with_info(steps, firsts, False, lambda step: False)
    zipped = list(tf.data.Dataset.zip((samples, steps)))
    assert [(int(sample.data), int(step["a"])) for sample, step in zipped] == [(a, a) for a in STEPS["a"]]
    assert zipped[0][0].info == reverb.SampleInfo.zeros()


def test_patterns_of_episodes_that_are_datasets_in_a_dataset():
    episodes = tf.data.Dataset.range(2).map(lambda at: {"steps": tf.data.Dataset.from_tensor_slices(STEPS), "at": at})
    step = sw.create_reference_step({"a": None, "last": None})
    pairs = [sw.create_config({"pair": step["a"][-2:], "last": step["last"][-1]}, "none")]
    dataset = episodes.flat_map(
        lambda episode: reverb.PatternDataset(episode["steps"], pairs, True, lambda step: step["last"])
    )
    windows = [(window["pair"].numpy().tolist(), bool(window["last"])) for window in dataset]
    assert windows == [([1, 2], False), ([2, 3], True)] * 2


def test_acmes_dataset_of_many_readers_is_one_of_tensorflow(address):
    from acme.datasets import make_reverb_dataset

    double = lambda sample: sample._replace(data={**sample.data, "r": sample.data["r"] * 2})  # noqa: E731
    for postprocess, rows in ((None, [0, 1, 2]), (double, [0, 2, 4])):
        dataset = make_reverb_dataset(
            address, batch_size=3, prefetch_size=2, table="t", num_parallel_calls=2, postprocess=postprocess
        )
        assert dataset.element_spec.data["o"] == tf.TensorSpec((3, 3, 2), tf.float32)
        batch = next(dataset.as_numpy_iterator())
        assert batch.data["o"].shape == (3, 3, 2)
        np.testing.assert_array_equal(batch.data["r"][0], rows)


@pytest.mark.parametrize("kind", ["prefetch", "interleave"])
def test_an_iterator_that_is_let_go_of_while_it_waits_ends_and_takes_nothing_more(address, kind):
    dataset = read(address, "q")
    if kind == "prefetch":
        dataset = dataset.prefetch(20)
    else:
        two = tf.data.Dataset.range(2)
        dataset = two.interleave(lambda _: read(address, "q"), 2, num_parallel_calls=2, deterministic=False).prefetch(
            20
        )
    iterator = iter(dataset)
    assert sorted(int(next(iterator).data["r"][0]) for _ in range(10)) == list(range(10))
    client = reverb.Client(address)
    del iterator, dataset
    gc.collect()
    client.insert({"o": np.zeros((3, 2), np.float32), "r": np.arange(3)}, {"q": 1.0})
    assert client.server_info()["q"].current_size == 1


def test_an_iterator_that_waits_beyond_the_limiters_timeout_ends(address):
    assert [int(sample.data["r"][0]) for sample in read(address, "q", rate_limiter_timeout_ms=300)] == list(range(10))


def test_a_server_that_is_gone_ends_a_waiting_iterator_with_an_error(server, address):
    iterator = iter(read(address, "q"))
    for _ in range(10):
        next(iterator)
    threading.Timer(0.3, server.stop).start()
    with pytest.raises(tf.errors.OpError):
        next(iterator)
