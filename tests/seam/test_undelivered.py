"""Draws of a consuming table that cannot become what was asked for: they are in the error, also in a copy of it."""

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import reverie
from reverie import Table, _carried, selectors
from reverie.types import Batch


def queue():
    """A client of a table that deletes what was sampled, with the numbers 0 to 5."""
    client = reverie.Server([Table("t", selectors.Fifo(), selectors.Fifo(), 100, max_times_sampled=1)], listen=False)
    client = client.client()
    client.insert_batch("t", {"n": np.arange(6), "x": np.zeros((6, 100))})
    return client


@pytest.fixture(name="queue")
def _queue():
    return queue()


@pytest.fixture
def lacking(monkeypatch):
    """A list of numbers: the batch of so many draws, or the first of them, finds no memory so often."""
    make, left = Batch.__init__, {}

    def init(self, info, *parts):
        size = len(parts[0]["n"])
        if left.get(size, 0) > 0:
            left[size] -= 1
            raise MemoryError("no room for the batch")
        make(self, info, *parts)

    monkeypatch.setattr(Batch, "__init__", init)
    return left


def numbers(batches):
    return [batch.data["n"].tolist() for batch in batches]


def test_draws_whose_batch_lacks_memory_after_its_arrays_are_in_the_error(queue, lacking):
    lacking[4] = 1
    with pytest.raises(MemoryError, match="no room") as raised:
        queue.sample_batch("t", 4)
    drawn = raised.value.drawn
    assert len(drawn) == 4
    singles = list(drawn)
    assert numbers(singles) == [[0], [1], [2], [3]]
    assert [batch.info.times_sampled.tolist() for batch in singles] == [[1]] * 4
    assert numbers([queue.sample_batch("t", 2)]) == [[4, 5]]


def test_a_single_draw_that_lacks_memory_again_and_again_stays_until_there_is_some(queue, lacking):
    lacking.update({3: 1, 1: 2})
    with pytest.raises(MemoryError) as raised:
        queue.sample_batch("t", 3)
    drawn = raised.value.drawn
    for _ in range(2):
        with pytest.raises(MemoryError, match="no room"):
            next(drawn)
        assert len(drawn) == 3
    assert numbers([next(drawn)]) == [[0]]
    lacking[1] = 1
    with pytest.raises(MemoryError):
        next(drawn)
    assert numbers(drawn) == [[1], [2]]


def test_an_item_that_is_sampled_alone_is_in_the_error_where_there_is_no_memory_for_it(queue, lacking):
    lacking[1] = 2
    samples = queue.sample("t", 3)
    with pytest.raises(MemoryError) as raised:
        next(samples)
    with pytest.raises(MemoryError):
        next(raised.value.drawn)
    assert numbers(raised.value.drawn) == [[0]]
    assert queue.info().tables["t"].current_size == 5


def test_an_item_without_the_timesteps_that_were_asked_for_is_in_the_error(queue):
    queue.reset("t")
    with queue.trajectory_writer(3) as writer:
        for step in range(3):
            writer.append({"n": step, "reward": 1.0})
        writer.create_item("t", 1.0, {"n": writer.history["n"][-3:], "reward": writer.history["reward"][-2:]})
    with pytest.raises(ValueError, match="emit_timesteps=False") as raised:
        next(queue.sample("t", 1))
    assert numbers(raised.value.drawn) == [[[0, 1, 2]]]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_draws_that_lack_a_column_that_was_asked_for_are_in_the_error_as_a_whole(queue, batch_size):
    with pytest.raises(ValueError, match="there is no 'y'") as raised:
        queue.sample_batch("t", batch_size, columns=["y"])
    assert numbers(raised.value.drawn) == [[n] for n in range(batch_size)]
    assert queue.info().tables["t"].current_size == 6 - batch_size


@pytest.mark.parametrize("transport", ["grpc", "shared-memory"])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_draws_that_lack_a_column_go_back_to_their_places_over_a_network(transport, batch_size, until):
    tables = [Table("t", selectors.Fifo(), selectors.Fifo(), 100, max_times_sampled=1)]
    with (
        reverie.Server(tables) as server,
        reverie.Client(server.address, transport=transport, patience=100.0) as client,
    ):
        client.insert_batch("t", {"n": np.arange(6)}, timeout=200)
        with pytest.raises(ValueError, match="there is no 'y'"):
            client.sample_batch("t", batch_size, columns=["y"], timeout=200)
        until(lambda: client.info().tables["t"].num_leased == 0)
        assert numbers([client.sample_batch("t", 6, timeout=200)]) == [list(range(6))]


def test_a_copy_of_an_error_has_the_draws_that_could_be_read_one_by_one_only(queue, lacking):
    lacking[4] = 1
    with pytest.raises(MemoryError) as raised:
        queue.sample_batch("t", 4)
    next(raised.value.drawn)
    copy = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(raised.value))))
    assert (type(copy), copy.args, copy.__notes__) == (MemoryError, raised.value.args, raised.value.__notes__)
    for drawn in (copy.drawn, raised.value.drawn):
        assert len(drawn) == 3
        assert numbers(drawn) == [[1], [2], [3]]
        assert len(drawn) == 0


@pytest.mark.parametrize(("fitting", "lacks"), [(2, 0), (0, 0), (2, 1)])
def test_a_copy_of_an_error_counts_the_draws_that_do_not_fit_into_it(queue, lacking, monkeypatch, fitting, lacks):
    monkeypatch.setattr(_carried, "CARRIED_BYTES", fitting * 808 + 807)
    lacking[5] = 1
    with pytest.raises(MemoryError) as raised:
        queue.sample_batch("t", 5)
    assert "a copy of this error in another process has only those that fit" in raised.value.__notes__[0]
    lacking[1] = lacks
    copy = pickle.loads(pickle.dumps(raised.value))
    carried = 0 if lacks else fitting
    assert numbers(next(copy.drawn) for _ in range(carried)) == [[n] for n in range(carried)]
    for _ in range(2):
        with pytest.raises(reverie.ReplayError, match=f"{5 - carried} more draws stayed in the process"):
            next(copy.drawn)
    assert numbers(raised.value.drawn) == [[n] for n in range(5)]


def fail(batch_size):
    """Draws a batch in a process of its own, for whose arrays memory runs out."""
    client = queue()
    client.configure("t", max_times_sampled=1 << 21)
    client.reset("t")
    client.insert_batch("t", {"n": np.full((1, 1 << 26), 7, np.uint8)})
    return client.sample_batch("t", batch_size)


def test_an_error_of_a_worker_process_arrives_with_its_draws_and_the_number_of_missing_ones():
    times = 1 << 21
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        error = pool.submit(fail, times).exception()
    assert type(error) is MemoryError
    assert "fewer samples" in str(error)
    assert "a copy of this error" in error.__notes__[0]
    assert next(error.drawn).data["n"].shape == (1, 1 << 26)
    with pytest.raises(reverie.ReplayError, match=f"{times - 1} more draws stayed in the process"):
        next(error.drawn)
