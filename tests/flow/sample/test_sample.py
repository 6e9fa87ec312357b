import copy
import dataclasses
import pickle
import re
import threading

import numpy as np
import pytest

import reverie
from reverie import Table, rate_limiters, selectors


@pytest.mark.emulated
def test_a_batch_is_one_contiguous_writable_array_per_column(connect):
    client = connect()
    client.insert_batch("t", {"obs": np.ones((50, 84, 84), np.float32), "n": np.arange(50)})
    batch = client.sample_batch("t", 32)
    assert batch.data["obs"].shape == (32, 84, 84)
    assert batch.data["obs"].flags.c_contiguous
    batch.data["obs"][:] = 0
    assert len(batch) == 32
    assert client.sample_batch("t", 32).data["obs"].any()


def test_large_arrays_keep_their_values_while_referenced(connect):
    client = connect()
    rows = np.random.default_rng(0).random((64, 5000))
    keys = client.insert_batch("t", {"x": rows})
    for _ in range(3):  # Storage that was released is used again, but never twice at once.
        client.get("t", keys[:32])
    held = [client.get("t", keys[i : i + 32]).data["x"][:, :10] for i in range(8)]
    for i, array in enumerate(held):
        np.testing.assert_array_equal(array, rows[i : i + 32, :10])


def test_infos_have_the_state_of_the_table_at_the_draw(connect, uniform):
    client = connect(uniform("t", sampler=selectors.Prioritized(1.0, seed=3)))
    keys = client.insert_batch("t", {"n": np.arange(4)}, priorities=[1.0, 2.0, 3.0, 4.0])
    info = client.sample_batch("t", 100).info
    assert set(info.key.tolist()) <= set(keys.tolist())
    np.testing.assert_allclose(info.probability, info.priority / 10)
    assert (info.table_size == 4).all()
    for key in keys:
        assert info.times_sampled[info.key == key].tolist() == list(range(1, (info.key == key).sum() + 1))
    assert (info.version == 0).all()
    assert (np.diff(client.get("t", keys).info.inserted_at) >= 0).all()


def test_an_info_made_late_is_a_dataclass_of_seven_arrays_like_one_made_by_hand(connect):
    client = connect()
    client.insert_batch("t", {"n": np.arange(4)})
    info = client.sample_batch("t", 3).info
    names = [field.name for field in dataclasses.fields(info)]
    assert names == ["key", "probability", "priority", "table_size", "times_sampled", "version", "inserted_at"]
    assert info.key is info.key
    assert info.key.flags.writeable
    assert len(info) == 3
    assert repr(info).startswith(f"BatchInfo(key={info.key!r}, probability=array([0.25, 0.25, 0.25]), ")
    by_hand = reverie.BatchInfo(**{name: getattr(info, name) for name in names})
    for other in (pickle.loads(pickle.dumps(info)), copy.copy(info), by_hand, dataclasses.replace(info)):
        assert all((getattr(other, name) == getattr(info, name)).all() for name in names)
        assert other != info
        assert [getattr(other, name).dtype for name in names] == [getattr(info, name).dtype for name in names]
    info.key = np.arange(3)
    assert info.key.tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="inserted_at"):
        reverie.BatchInfo(*[getattr(info, name) for name in names[:-1]])
    with pytest.raises(AttributeError, match="other"):
        info.other = 1


def test_weights_use_changed_arrays_of_an_info(connect, uniform):
    client = connect(uniform("t", sampler=selectors.Prioritized(1.0, seed=1)))
    client.insert_batch("t", {"n": np.arange(3)}, priorities=[1.0, 2.0, 5.0])
    batch = client.sample_batch("t", 4)
    drawn = batch.weights(1.0)
    batch.info.probability[:] = [0.5, 0.25, 0.25, 0.25]
    assert batch.weights(1.0).tolist() == [0.5, 1.0, 1.0, 1.0] != drawn.tolist()
    batch.info.table_size = np.array([1, 2, 4, 8])
    assert batch.weights(1.0).tolist() == [1.0, 1.0, 0.5, 0.25]


@pytest.mark.emulated
@pytest.mark.one_table_only("which server an insert uses differs from client to client")
def test_the_same_seed_gives_the_same_draws(connect, uniform):
    def draws():
        client = connect(uniform("t", sampler=selectors.Prioritized(0.5, seed=7)))
        client.insert_batch("t", {"n": np.arange(100)}, priorities=np.arange(100))
        return client.sample_batch("t", 64).data["n"].tolist()

    assert draws() == draws()


def test_columns_reads_only_some(connect):
    client = connect()
    client.insert({"obs": {"a": 1, "b": 2}, "reward": 1.0}, {"t": 1.0})
    assert client.sample_batch("t", 1, columns=["obs/b"]).data.keys() == {"obs"}
    assert client.sample_batch("t", 1, columns=["obs"]).data["obs"].keys() == {"a", "b"}
    with pytest.raises(ValueError, match="nope"):
        client.sample_batch("t", 1, columns=["nope"])


def test_without_replacement_gives_no_item_twice(connect):
    client = connect()
    client.insert_batch("t", {"n": np.arange(50)})
    assert sorted(client.sample_batch("t", 50, without_replacement=True).data["n"].tolist()) == list(range(50))


@pytest.mark.emulated
def test_importance_weights_follow_the_formula(connect, uniform):
    client = connect(uniform("t", sampler=selectors.Prioritized(1.0, seed=1)))
    client.insert_batch("t", {"n": np.arange(3)}, priorities=[1.0, 2.0, 5.0])
    batch = client.sample_batch("t", 200)
    n, p = 3, batch.info.priority / 8
    raw = (n * p) ** -0.4
    np.testing.assert_allclose(batch.weights(0.4), raw / raw.max())
    np.testing.assert_allclose(batch.weights(0.4, normalise="table"), raw / (n * 1 / 8) ** -0.4)
    with pytest.raises(ValueError, match="not drawn"):
        client.get("t", batch.info.key[:1]).weights(1.0)
    with pytest.raises(ValueError, match="beta"):
        batch.weights(1.5)
    with pytest.raises(ValueError, match="normalise"):
        batch.weights(0.5, normalise="sum")


@pytest.mark.emulated
@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_timeout_zero_tries_once_and_the_error_has_the_reason(connect):
    client = connect(Table.queue("q", 5))
    with pytest.raises(reverie.DeadlineExceededError, match="min_size_to_sample") as raised:
        client.sample_batch("q", 2, timeout=0)
    assert raised.value.partial is None
    assert "table 'q'" in raised.value.why
    assert isinstance(raised.value, TimeoutError)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_draws_of_a_consuming_table_are_not_lost_at_the_deadline(connect):
    client = connect(Table.queue("q", 5))
    client.insert_batch("q", {"n": np.arange(3)})
    with pytest.raises(reverie.DeadlineExceededError) as raised:
        client.sample_batch("q", 5, timeout=0.05)
    assert raised.value.partial.data["n"].tolist() == [0, 1, 2]
    assert re.search(r"1 sample waiting, the first for \d+\.\d s with 3 of 5 done", raised.value.why)
    assert client.info().tables["q"].current_size == 0


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_the_error_of_late_inserts_names_those_that_went_in(connect):
    client = connect(Table.queue("q", 3))
    with pytest.raises(reverie.DeadlineExceededError, match=r"max_diff|insert") as raised:
        client.insert_batch("q", {"n": np.arange(5)}, timeout=0)
    assert len(raised.value.partial) == 3
    assert client.sample_batch("q", 3, timeout=0).data["n"].tolist() == [0, 1, 2]
    assert client.why("q").inserts == ()


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_timeouts_below_zero_are_refused(connect, timeout):
    with pytest.raises(ValueError, match="timeout"):
        connect().sample_batch("t", 1, timeout=timeout)


@pytest.mark.emulated
def test_a_sample_waits_for_the_insert_of_another_thread(connect):
    client = connect()
    threading.Timer(0.05, lambda: client.insert({"n": 7}, {"t": 1.0})).start()
    assert client.sample_batch("t", 1, timeout=200).data["n"].tolist() == [7]


def test_a_server_that_stops_ends_the_waits():
    server = reverie.Server([Table.queue("q", 5)], listen=False)
    client = server.client()
    threading.Timer(0.05, server.stop).start()
    with pytest.raises(reverie.ClosedError) as raised:
        client.sample_batch("q", 1)
    assert raised.value.name == "q"
    with pytest.raises(reverie.ClosedError):
        client.insert({"n": 1}, {"q": 1.0})
    server.stop()


@pytest.mark.one_table_only("samples of several servers are shuffled: the first is not the first draw")
def test_sample_gives_one_list_of_timesteps_per_item(connect):
    client = connect()
    client.insert({"a": np.arange(3), "b": 2.0}, {"t": 1.0})
    samples = list(client.sample("t", 150))
    assert len(samples) == 150
    [step] = samples[0]
    key, probability, table_size, priority, times_sampled = step.info
    assert (probability, table_size, priority, times_sampled) == (1.0, 1, 1.0, 1)
    assert [leaf.tolist() for leaf in step.data] == [[0, 1, 2], 2.0]
    [sample] = client.sample("t", 1, emit_timesteps=False, unpack_as_table_signature=True)
    assert sample.data["a"].shape == (1, 3)
    assert sample.info.key == key


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_sample_of_a_queue_takes_only_the_requested_items(connect):
    client = connect(Table.queue("q", 10))
    client.insert_batch("q", {"n": np.arange(10)})
    assert [int(s.data[0][0]) for s in client.sample("q", 4, emit_timesteps=False)] == [0, 1, 2, 3]
    assert client.info().tables["q"].current_size == 6
    with pytest.raises(reverie.DeadlineExceededError):
        list(client.sample("q", 7, timeout=0))
    with pytest.raises(ValueError, match="num_samples"):
        client.sample("q", 0)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_loop_over_a_queue_that_ends_early_loses_nothing(connect):
    client = connect(Table.queue("q", 100))
    client.insert_batch("q", {"n": np.arange(100)})
    for sample in client.sample("q", 100, emit_timesteps=False):
        if sample.data[0].tolist() == [4]:
            break
    assert client.info().tables["q"].current_size == 95
    assert client.sample_batch("q", 1).data["n"].tolist() == [5]


@pytest.mark.emulated
def test_sampling_threads_do_not_dead_lock(connect):
    client = connect(
        Table("t", selectors.Prioritized(0.6), selectors.Fifo(), 1000, rate_limiters.SampleToInsertRatio(4.0, 10, 50.0))
    )
    errors = []

    def run(work):
        try:
            for _ in range(300):
                work()
        except BaseException as error:
            errors.append(error)

    def sample():
        batch = client.sample_batch("t", 8, timeout=200)
        client.update_priorities("t", batch.info.key, np.abs(batch.data["x"][:, 0]))

    inserts = [
        threading.Thread(target=run, args=(lambda: client.insert_batch("t", {"x": np.ones((4, 100))}, timeout=200),))
        for _ in range(2)
    ]
    samples = [threading.Thread(target=run, args=(sample,)) for _ in range(2)]
    for thread in inserts + samples:
        thread.start()
    for thread in samples:
        thread.join(200)
    client.configure("t", rate_limiter=rate_limiters.MinSize(1))
    for thread in inserts:
        thread.join(200)
    assert not errors
    assert not any(thread.is_alive() for thread in inserts + samples)


def counts_of_batches(client, batches=50):
    client.insert_batch("t", {"n": np.arange(8)})
    return [np.bincount(client.sample_batch("t", 64).data["n"], minlength=8) for _ in range(batches)]


def test_stratified_batches_are_spread_over_the_items(connect, uniform):
    spread = counts_of_batches(connect(uniform("t", sampler=selectors.Prioritized(1.0, seed=1, stratified=True))))
    loose = counts_of_batches(connect(uniform("t", sampler=selectors.Prioritized(1.0, seed=1))))
    assert np.ptp(spread) <= 2
    assert np.ptp(loose) > 8


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_stratified_draws_are_refused_without_effect(connect, uniform):
    with pytest.raises(ValueError, match="stratified"):
        connect(uniform("t", remover=selectors.Prioritized(1.0, stratified=True)))
    with pytest.raises(ValueError, match="stratified"):
        connect(uniform("t", sampler=selectors.Prioritized(1.0, stratified=True), max_times_sampled=1))
