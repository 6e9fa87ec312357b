"""Calls that return TensorFlow's tensors if TensorFlow is installed."""

import pickle
import sys

import numpy as np
import pytest
import reverb  # This package: see ported_reverb.py.
import tensorflow as tf

SIGNATURE = {"o": reverb.TensorSpec((3, 2), np.float32), "r": reverb.TensorSpec((3,), np.int64)}


@pytest.fixture(autouse=True)
def as_a_package_of_its_own(monkeypatch):
    """Datasets are ours unless this package goes by another name, too; `ported_datasets_test.py` has the others."""
    monkeypatch.delitem(sys.modules, "reverb")


@pytest.fixture
def server():
    def table(name, **options):
        fifo, limiter = reverb.selectors.Fifo(), reverb.rate_limiters.MinSize(1)
        return reverb.Table(name, fifo, fifo, 100, limiter, **options)

    server = reverb.Server(
        [table("t", signature=SIGNATURE), table("u"), reverb.Table.queue("q", 100, signature=SIGNATURE)]
    )
    with reverb.Client(f"localhost:{server.port}").trajectory_writer(3) as writer:
        for step in range(12):
            writer.append({"o": np.full(2, step, np.float32), "r": step})
            if step >= 2:
                for name in ("t", "q"):
                    writer.create_item(name, 1.0, {key: writer.history[key][-3:] for key in ("o", "r")})
    yield server
    server.stop()


def address(server):
    return f"localhost:{server.port}"


@pytest.mark.parametrize("workers", [-1, 1])
def test_a_trajectory_dataset_is_a_dataset_of_tensorflow_and_batches_there(server, workers):
    ours = reverb.TrajectoryDataset.from_table_signature(address(server), "t", 10, workers, max_samples=6)
    dataset = ours.as_tf()
    assert isinstance(dataset, tf.data.Dataset)
    assert dataset.element_spec.info.key == tf.TensorSpec((), tf.uint64)
    assert dataset.element_spec.data["o"] == tf.TensorSpec((3, 2), tf.float32)
    batches = list(dataset.batch(4))
    assert [batch.data["r"].shape for batch in batches] == [(4, 3), (2, 3)]
    assert isinstance(batches[0], reverb.ReplaySample)
    assert batches[0].info.times_sampled.dtype == tf.int32
    np.testing.assert_array_equal(batches[0].data["r"][0], [0, 1, 2])


def test_batches_made_by_the_engine_are_the_same_elements(server):
    ours = reverb.TrajectoryDataset.from_table_signature(address(server), "q", 10, max_samples=10)
    [batch] = ours.batch(10).as_tf()
    np.testing.assert_array_equal(batch.data["r"][:, 0], np.arange(10))
    assert batch.info.key.shape == (10,)


def test_an_interleave_of_datasets_reads_like_one(server):
    def one(_):
        ours = reverb.TimestepDataset(
            address(server),
            "t",
            {"o": tf.float32, "r": tf.int64},
            {"o": tf.TensorShape([2]), "r": ()},
            4,
            max_samples=2,
        )
        return ours.as_tf()

    steps = list(tf.data.Dataset.range(3).interleave(one, cycle_length=2).prefetch(2))
    assert len(steps) == 3 * 2 * 3
    assert {int(step.data["r"]) for step in steps} == {0, 1, 2}


def test_a_mapped_dataset_is_one_too_and_the_end_of_the_limiters_patience_ends_it(server):
    ours = reverb.TrajectoryDataset.from_table_signature(address(server), "q", 4, rate_limiter_timeout_ms=0)
    assert [int(number) for number in ours.map(lambda sample: sample.data["r"][0]).as_tf().take(3)] == [1, 2, 3]


def test_text_becomes_strings(server):
    reverb.Client(address(server)).insert({"s": b"ab"}, {"u": 1.0})
    ours = reverb.TrajectoryDataset(address(server), "u", {"s": np.dtype("S2")}, {"s": (1,)}, 1, max_samples=1)
    [sample] = ours.as_tf()
    assert sample.data["s"].numpy().tolist() == [b"ab"]


@pytest.mark.parametrize("graph", [False, True])
def test_the_tf_client_samples_inserts_and_updates(server, graph):
    client = reverb.TFClient(address(server))
    call = tf.function if graph else lambda function: function

    @call
    def insert():
        client.insert([tf.ones([2]), tf.constant(3)], tf.constant(["u"]), tf.constant([2.0], tf.float64))

    @call
    def update(key):
        client.update_priorities("u", [key], tf.constant([5.0], tf.float64))

    insert()
    sample = call(lambda: client.sample("u", [tf.float32, tf.int32]))()
    assert isinstance(sample, reverb.ReplaySample)
    assert [tensor.dtype for tensor in sample.info] == list(reverb.SampleInfo.tf_dtypes())
    assert (sample.data[0].numpy().tolist(), int(sample.data[1]), float(sample.info.priority)) == ([1.0, 1.0], 3, 2.0)
    update(sample.info.key)
    assert float(client.sample("u", (tf.float32, tf.int32)).info.priority) == 5.0


def test_the_tf_client_gives_the_first_step_of_a_trajectory_and_refuses_other_dtypes(server):
    client = reverb.TFClient(address(server))
    assert client.sample("t", {"o": tf.float32, "r": tf.int64}).data["o"].shape == (2,)
    for error in (reverb.SignatureError, tf.errors.InvalidArgumentError):
        with pytest.raises(error, match="data_dtypes") as raised:
            client.sample("t", {"o": tf.float32, "r": tf.int32})
    assert raised.value.want == "['float32', 'int32']"
    assert type(pickle.loads(pickle.dumps(raised.value))) is reverb.SignatureError
    with pytest.raises(tf.errors.OpError, match="data_dtypes"):
        tf.function(lambda: client.sample("t", {"o": tf.float32, "r": tf.int32}))()


def test_errors_of_calls_that_run_at_once_are_tensorflows_and_ours(server):
    client = reverb.TFClient(address(server))
    for error in (tf.errors.NotFoundError, reverb.errors.UnknownTableError):
        with pytest.raises(error, match="there is no table 'x'"):
            client.sample("x", [tf.float32])
    priority = tf.constant([1.0], tf.float64)
    for error in (tf.errors.InvalidArgumentError, reverb.SignatureError):
        with pytest.raises(error, match="columns"):
            client.insert([tf.ones([2])], tf.constant(["t"]), priority)
    for error in (tf.errors.InvalidArgumentError, ValueError):
        with pytest.raises(error, match=r"nan|NaN"):
            client.update_priorities("t", tf.constant([1], tf.uint64), priority * np.nan)


def test_the_tf_client_takes_a_table_that_is_a_tensor_also_of_a_session(server):
    reverb.Client(address(server)).insert([np.int32(7)], {"u": 1.0})
    client = reverb.TFClient(address(server))
    sample = client.sample(tf.constant("u"), [tf.int32])
    assert int(sample.data[0]) == 7
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        keys = tf.constant([int(sample.info.key)], tf.uint64)
        update = client.update_priorities(tf.constant("u"), keys, tf.constant([3.0], tf.float64))
        assert session.run(update) is None
        assert session.run(client.sample(tf.constant("u"), [tf.int32])).info.priority == 3.0


@pytest.mark.parametrize(
    ("tables", "priorities"),
    [(["u"], tf.constant([1.0])), ("u", tf.constant(1.0, tf.float64)), (["u", "t"], tf.constant([1.0], tf.float64))],
)
def test_the_tf_client_refuses_what_names_no_tables(server, tables, priorities):
    with pytest.raises(ValueError, match=r"tables|priorities"):
        reverb.TFClient(address(server)).insert([tf.ones([2])], tf.constant(tables), priorities)


def test_dtypes_and_shapes_of_an_info_are_tensorflows():
    assert reverb.SampleInfo.tf_dtypes() == (tf.uint64, tf.float64, tf.int64, tf.float64, tf.int32)
    assert reverb.SampleInfo.tf_shapes() == (tf.TensorShape([]),) * 5


def test_flat_tensors_are_inserted_in_the_structure_of_the_tables_signature():
    nested = {"a": (reverb.TensorSpec((), np.int64),), "b": [reverb.TensorSpec((2,), np.float32)]}
    tables = [
        reverb.Table(name, reverb.selectors.Fifo(), reverb.selectors.Fifo(), 10, signature=signature)
        for name, signature in (("nested", nested), ("bare", None))
    ]
    server = reverb.Server(tables)
    client = reverb.TFClient(address(server))
    flat = tf.nest.flatten({"a": (tf.constant(3, tf.int64),), "b": [tf.ones([2])]})
    client.insert(flat, tf.constant(["nested", "bare"]), tf.constant([1.0, 2.0], tf.float64))
    sample = client.sample("nested", [{"a": [tf.int64], "b": [tf.float32]}])
    assert int(sample.data[0]["a"][0]) == 3
    assert [int(column) for column in client.sample("bare", [tf.int64, tf.float32]).data[:1]] == [3]
    server.stop()


def test_specs_of_tensorflow_are_compared_with_those_that_a_server_tells(server):
    reported = reverb.Client(address(server)).server_info()["t"].signature
    assert reported == {"o": tf.TensorSpec((3, 2), tf.float32), "r": tf.TensorSpec((3,), tf.int64)}
    assert reported["o"] != tf.TensorSpec((3, 2), tf.float64)
    assert reported["o"] != tf.TensorSpec((3, 3), tf.float32)
    assert reported["o"] != tf.TensorSpec(None, tf.float32)
