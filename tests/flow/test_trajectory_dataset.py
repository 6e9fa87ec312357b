"""Datasets over a table under dm-reverb's names."""

import functools
import itertools

import numpy as np
import pytest

from reverie import DeadlineExceededError, SignatureError, Table, TensorSpec, rate_limiters, selectors
from reverie.datasets.chain import Dataset
from reverie.trajectory_dataset import TimestepDataset, TrajectoryDataset
from reverie.types import ReplaySample

SIGNATURE = {"obs": TensorSpec((3, 2), np.float32), "reward": TensorSpec((3,), np.float64)}
DTYPES = {"obs": np.float32, "reward": np.float64}
SHAPES = {"obs": (3, 2), "reward": (3,)}
STEP_SHAPES = {"obs": (2,), "reward": ()}


def fill(client, count, table="t", length=3):
    """Items of `length` steps; the reward of a step is its number."""
    with client.trajectory_writer(num_keep_alive_refs=length) as writer:
        for step in range(count + length - 1):
            writer.append({"obs": np.full(2, step, np.float32), "reward": float(step)})
            if step >= length - 1:
                writer.create_item(table, 1.0 + step, {name: writer.history[name][-length:] for name in DTYPES})


@pytest.fixture
def fifo(connect, uniform):
    """A client of a table whose sampler is Fifo, with eight items."""
    client = connect(uniform("t", sampler=selectors.Fifo(), signature=SIGNATURE))
    fill(client, 8)
    return client


@pytest.fixture
def queue(connect):
    client = connect(Table.queue("t", 100, signature=SIGNATURE))
    fill(client, 8)
    return client


def test_elements_are_samples_with_scalar_info_and_the_data_in_the_structure_of_the_dtypes(fifo):
    sample = next(iter(TrajectoryDataset(fifo, "t", DTYPES, SHAPES, 4)))
    assert isinstance(sample, ReplaySample)
    assert [type(field) for field in sample.info] == [np.uint64, np.float64, np.int64, np.float64, np.int32]
    assert (sample.info.priority, sample.info.table_size, sample.info.probability) == (3.0, 8, 1.0)
    np.testing.assert_array_equal(sample.data["reward"], [0.0, 1.0, 2.0])
    assert sample.data["obs"].shape == (3, 2)


def test_lists_in_the_dtypes_come_back_as_tuples(fifo):
    sample = next(iter(TrajectoryDataset(fifo, "t", [np.float32, np.float64], [(3, 2), (3,)], 4)))
    assert isinstance(sample.data, tuple)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_one_worker_on_a_queue_keeps_exact_order_one_by_one_and_in_batches(queue, batch_size):
    dataset = TrajectoryDataset.from_table_signature(queue, "t", 10, max_samples=8, rate_limiter_timeout_ms=0)
    starts = [start for batch in dataset.batch(batch_size) for start in batch.data["reward"][:, 0].tolist()]
    assert starts == list(range(8))


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_loop_over_a_queue_that_ends_early_loses_nothing(queue):
    dataset = TrajectoryDataset.from_table_signature(queue, "t", 10, rate_limiter_timeout_ms=0)
    first = [sample.data["reward"][0] for sample in dataset.take(3)]
    rest = [sample.data["reward"][0] for sample in dataset]
    assert (first, rest) == ([0, 1, 2], [3, 4, 5, 6, 7])


def test_after_batch_the_info_has_the_batch_axis(fifo):
    batch = next(iter(TrajectoryDataset(fifo, "t", DTYPES, SHAPES, 12).batch(4)))
    assert [field.shape for field in batch.info] == [(4,)] * 5
    assert [field.dtype.name for field in batch.info] == ["uint64", "float64", "int64", "float64", "int32"]
    assert batch.data["obs"].shape == (4, 3, 2)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_the_limiters_timeout_ends_the_iterator_after_the_draws_made_so_far(queue):
    dataset = TrajectoryDataset.from_table_signature(queue, "t", 10, rate_limiter_timeout_ms=20)
    assert [len(batch.info.key) for batch in dataset.batch(5)] == [5, 3]
    assert list(dataset) == []


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_draws_before_the_limiters_timeout_are_dropped_with_drop_remainder(queue):
    dataset = TrajectoryDataset.from_table_signature(queue, "t", 10, rate_limiter_timeout_ms=20)
    assert [len(batch.info.key) for batch in dataset.batch(5, drop_remainder=True)] == [5]


def test_a_dropped_remainder_is_dropped(fifo):
    dataset = TrajectoryDataset(fifo, "t", DTYPES, SHAPES, 4, max_samples=7)
    assert [len(batch.info.key) for batch in dataset.batch(3)] == [3, 3, 1]
    assert [len(batch.info.key) for batch in dataset.batch(3, drop_remainder=True)] == [3, 3]


@pytest.mark.parametrize("chain", [lambda d: d, lambda d: d.batch(2)])
def test_max_samples_is_the_number_of_draws(fifo, chain):
    dataset = TrajectoryDataset(fifo, "t", DTYPES, SHAPES, 4, max_samples=4)
    assert sum(np.size(sample.info.key) for sample in chain(dataset)) == 4
    assert fifo.info().tables["t"].num_samples == 4


def test_a_request_has_no_more_draws_than_a_stream_allows(fifo, monkeypatch):
    asked = []
    native = type(fifo)._sample_available
    monkeypatch.setattr(
        type(fifo),
        "_sample_available",
        lambda self, table, n, **rest: asked.append(n) or native(self, table, n, **rest),
    )
    for options, most in (({}, 6), ({"num_workers_per_iterator": 2}, 12), ({"max_samples_per_stream": 5}, 5)):
        asked.clear()
        next(iter(TrajectoryDataset(fifo, "t", DTYPES, SHAPES, 6, **options)))
        assert asked == [most]


def test_timesteps_come_one_by_one_all_of_an_item_before_the_next(fifo):
    dataset = TimestepDataset(fifo, "t", DTYPES, STEP_SHAPES, 4, max_samples=2)
    samples = list(dataset)
    assert [sample.data["reward"].item() for sample in samples] == [0, 1, 2, 0, 1, 2]
    assert [sample.info.key for sample in samples[:3]] == [samples[0].info.key] * 3
    assert samples[0].data["obs"].shape == (2,)


def test_the_spec_describes_the_elements(fifo):
    dataset = TrajectoryDataset(fifo, "t", DTYPES, SHAPES, 4)
    assert dataset.element_spec.data["obs"] == TensorSpec((3, 2), np.float32)
    assert dataset.element_spec.info.key == TensorSpec((), np.uint64)
    assert dataset.batch(4).element_spec.data["reward"] == TensorSpec((None, 3), np.float64)
    assert dataset.batch(4, drop_remainder=True).element_spec.info.priority == TensorSpec((4,), np.float64)


def test_steps_inserted_alone_have_a_time_axis_of_one(connect, uniform):
    client = connect(uniform("t"))
    client.insert({"obs": np.zeros(2, np.float32)}, {"t": 1.0})
    dataset = TrajectoryDataset(client, "t", {"obs": np.float32}, {"obs": (1, 2)}, 4)
    assert next(iter(dataset)).data["obs"].shape == (1, 2)
    assert next(iter(dataset.batch(3))).data["obs"].shape == (3, 1, 2)


@pytest.mark.parametrize("chain", [lambda d: d, lambda d: d.batch(2)])
@pytest.mark.parametrize(
    ("dtypes", "shapes", "path"),
    [
        ({"obs": np.float64, "reward": np.float64}, SHAPES, "obs"),
        (DTYPES, {"obs": (3, 2), "reward": (4,)}, "reward"),
        ({"obs": np.float32}, {"obs": (3, 2)}, ""),
    ],
)
def test_items_that_do_not_fit_are_refused_with_the_column_got_and_wanted(fifo, chain, dtypes, shapes, path):
    with pytest.raises(SignatureError) as caught:
        next(iter(chain(TrajectoryDataset(fifo, "t", dtypes, shapes, 4))))
    assert caught.value.path == path
    assert caught.value.got
    assert caught.value.want


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_in_flight_samples_per_worker": 0}, "max_in_flight_samples_per_worker"),
        ({"num_workers_per_iterator": 0}, "num_workers_per_iterator must be at least 1, or -1, got 0"),
        ({"max_samples_per_stream": -2}, "max_samples_per_stream"),
        ({"rate_limiter_timeout_ms": -2}, "rate_limiter_timeout_ms must be an integer >= -1, got -2"),
        ({"max_samples": 0}, "max_samples"),
        ({"shapes": {"obs": (3, 2)}}, "dtypes and shapes differ at 'the top'"),
        ({"shapes": {"obs": (3, 2), "reward": 3}}, "differ at '/reward'"),
    ],
)
def test_invalid_arguments_are_refused_when_given(fifo, arguments, words):
    given = {"dtypes": DTYPES, "shapes": SHAPES, "max_in_flight_samples_per_worker": 4} | arguments
    with pytest.raises(ValueError, match=words):
        TrajectoryDataset(fifo, "t", **given)


def test_a_table_without_signature_or_that_is_not_there_has_none_to_take(connect, uniform):
    client = connect(uniform("t"))
    with pytest.raises(ValueError, match="table 't' has no signature"):
        TrajectoryDataset.from_table_signature(client, "t", 4)
    with pytest.raises(ValueError, match="no table 'u'; it has 't'"):
        TimestepDataset.from_table_signature(client, "u", 4)


def test_requesting_the_signature_has_its_own_timeout(fifo, monkeypatch):
    asked, tell = [], type(fifo).server_info
    monkeypatch.setattr(type(fifo), "server_info", lambda self, timeout=None: (asked.append(timeout), tell(self))[1])
    for seconds in (None, 150.0):
        with pytest.raises(ValueError, match="no table"):
            TrajectoryDataset.from_table_signature(fifo, "u", 4, get_signature_timeout_secs=seconds)
    assert asked == [None, 150.0]


def test_each_method_of_a_chain_has_its_effect(fifo):
    numbers = TrajectoryDataset(fifo, "t", DTYPES, SHAPES, 4, max_samples=3).map(
        lambda sample: sample.data["reward"][0]
    )
    assert list(numbers) == [0.0] * 3
    assert list(numbers.repeat(2).take(4)) == [0.0] * 4
    assert list(numbers.enumerate().map(lambda index, value: index + value)) == [0.0, 1.0, 2.0]
    assert list(numbers.enumerate().filter(lambda index, value: index != 1).skip(1)) == [(2, 0.0)]
    assert [batch.tolist() for batch in numbers.batch(2)] == [[0.0, 0.0], [0.0]]
    assert list(numbers.batch(2).unbatch()) == [0.0] * 3
    assert sorted(index for index, _ in numbers.enumerate().shuffle(2, seed=1)) == [0, 1, 2]
    assert list(numbers.prefetch(2)) == [0.0] * 3
    assert list(itertools.islice(numbers.repeat().prefetch(-1), 7)) == [0.0] * 7


def test_a_shuffle_is_the_same_for_the_same_seed_and_another_for_another(fifo):
    numbers = TrajectoryDataset(fifo, "t", DTYPES, SHAPES, 4, max_samples=8).enumerate()
    orders = [[number for number, _ in numbers.shuffle(8, seed=seed)] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert [sorted(order) for order in orders] == [list(range(8))] * 3


@pytest.mark.parametrize(("options", "alike"), [({}, True), ({"reshuffle_each_iteration": True}, False)])
def test_iterators_of_a_shuffle_with_a_seed_differ_only_where_it_reshuffles(options, alike):
    shuffled = Dataset(lambda: iter(range(20))).shuffle(20, seed=1, **options)
    first, second = list(shuffled), list(shuffled)
    assert (first == second) is alike
    assert sorted(first) == sorted(second) == list(range(20))


@pytest.mark.parametrize(("options", "alike"), [({}, False), ({"reshuffle_each_iteration": False}, True)])
def test_iterators_of_a_shuffle_without_a_seed_are_alike_only_where_it_does_not_reshuffle(options, alike):
    shuffled = Dataset(lambda: iter(range(20))).shuffle(20, **options)
    assert (list(shuffled) == list(shuffled)) is alike


@pytest.mark.parametrize("method", ["batch", "map", "shuffle", "TrajectoryDataset.batch"])
def test_a_misspelt_option_of_a_chain_is_refused_and_those_of_tensorflow_are_not(fifo, method):
    plain, given = Dataset(lambda: iter(range(4))), {"name": "step"}
    if method == "shuffle":
        call, given["reshuffle_each_iteration"] = functools.partial(plain.shuffle, 2), False
    elif method == "map":
        call, given["num_parallel_calls"] = functools.partial(plain.map, abs), -1
    else:
        of = plain if method == "batch" else TrajectoryDataset(fifo, "t", DTYPES, SHAPES, 4)
        call, given["deterministic"] = functools.partial(of.batch, 2), True
    call(**given)
    with pytest.raises(TypeError, match="drop_remaninder"):
        call(**given, drop_remaninder=True)


def test_an_error_in_a_prefetched_chain_reaches_the_reader(fifo):
    def refuse(sample):
        raise RuntimeError("no")

    elements = iter(TrajectoryDataset(fifo, "t", DTYPES, SHAPES, 4).map(refuse).prefetch(2))
    with pytest.raises(RuntimeError, match="no"):
        next(elements)
    with pytest.raises(StopIteration):
        next(elements)


def test_torch_gets_tensors_and_signed_keys(fifo):
    torch = pytest.importorskip("torch")
    batch = next(iter(TrajectoryDataset(fifo, "t", DTYPES, SHAPES, 4).batch(2).torch()))
    assert batch.data["obs"].dtype == torch.float32
    assert batch.info.key.dtype == torch.int64
    loader = torch.utils.data.DataLoader(
        TrajectoryDataset(fifo, "t", DTYPES, SHAPES, 4, max_samples=4).batch(2).torch(), batch_size=None
    )
    assert [len(batch.info.key) for batch in loader] == [2, 2]


def test_a_dataset_ends_at_its_timeout_if_the_limiter_never_opens(connect, uniform):
    client = connect(uniform("t", rate_limiter=rate_limiters.MinSize(10)))
    fill(client, 2)
    dataset = TrajectoryDataset(client, "t", DTYPES, SHAPES, 4, rate_limiter_timeout_ms=10)
    assert list(dataset) == []
    with pytest.raises(DeadlineExceededError):
        client.sample_batch("t", 1, timeout=0)
