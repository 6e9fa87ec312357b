"""Batches that a thread sends to a device before they are read, with a device of the CPU's."""

import gc
import threading
import weakref

import numpy as np
import pytest

import reverie
from reverie import Table, adapters, selectors
from reverie.datasets.sending import BatchSender
from reverie.errors import DeadlineExceededError

pytestmark = pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")


@pytest.fixture
def device(monkeypatch):
    """A device to which batches are sent by a thread: the threads that sent, and a gate that stops a send."""

    class Device:
        def __init__(self):
            self.sent, self.arrived, self.refuses = [], [], set()

        def send(self, batch):
            first = int(batch.data["n"][0])
            if first in self.refuses:
                self.refuses.discard(first)
                raise MemoryError("as of a GPU that is full")
            self.sent.append((threading.current_thread().name, first))
            batch_there = type(batch)(info=batch.info, data={"n": batch.data["n"] + 1000}, mask=batch.mask)

            def arrive():
                self.arrived.append(threading.current_thread().name)
                return batch_there

            return batch, arrive

    device = Device()
    monkeypatch.setattr(adapters, "sender", lambda *_: device.send)
    return device


@pytest.fixture
def fifo(connect):
    """A client of a table that gives each of some items once, in their order."""

    def make(items):
        client = connect(Table("t", selectors.Fifo(), selectors.Fifo(), 1_000, max_times_sampled=1))
        client.insert_batch("t", {"n": np.arange(items)})
        return client

    return make


def rows(batches):
    return [batch.data["n"].tolist() for batch in batches]


@pytest.mark.parametrize("ahead", [1, 2, 5])
def test_batches_are_those_of_the_plain_iterator_in_its_order_and_end_with_it(fifo, device, ahead):
    client = fifo(50)
    with client.batches("t", 8, prefetch=2, sent_ahead=ahead, max_samples=44) as batches:
        assert rows(batches) == [(np.arange(first, min(first + 8, 44)) + 1000).tolist() for first in range(0, 44, 8)]
        assert next(batches, None) is None
    assert batches.leftover == []
    assert {name for name, _ in device.sent} == {"reverie-sender"}
    assert set(device.arrived) == {threading.current_thread().name}
    assert client.info().tables["t"].current_size == 6


def test_so_many_are_sent_before_they_are_read_and_the_rest_is_left_as_it_was_drawn(fifo, device, until):
    client = fifo(40)
    batches = client.batches("t", 4, prefetch=2, sent_ahead=3)
    until(lambda: client.info().tables["t"].current_size == 40 - 4 * 5 and len(device.sent) == 3)
    assert rows([next(batches)]) == [[1000, 1001, 1002, 1003]]
    until(lambda: len(device.sent) == 4)
    batches.close()
    batches.close()
    left = [n for batch in batches.leftover for n in batch.data["n"].tolist()]
    assert left == list(range(4, 40 - client.info().tables["t"].current_size))
    with pytest.raises(reverie.ClosedError):
        next(batches)
    assert not [thread for thread in threading.enumerate() if thread.name == "reverie-sender"]


def test_an_error_of_sending_is_raised_in_its_place_and_its_batch_is_left(fifo, device):
    device.refuses = {4}
    with fifo(12).batches("t", 4, prefetch=2, sent_ahead=2, max_samples=12) as batches:
        assert rows([next(batches)]) == [[1000, 1001, 1002, 1003]]
        with pytest.raises(MemoryError, match="full"):
            next(batches)
        assert rows(batches.leftover) == [[4, 5, 6, 7]]
        assert rows(batches) == [[1008, 1009, 1010, 1011]]
    assert rows(batches.leftover) == [[4, 5, 6, 7]]


def test_a_batch_that_is_not_there_in_time_is_an_error_and_comes_later(fifo, device):
    client = fifo(2)
    with client.batches("t", 4, prefetch=1, sent_ahead=1, timeout=0) as batches:
        with pytest.raises(DeadlineExceededError, match="no batch was sent within 0 s"):
            next(batches)
        client.insert_batch("t", {"n": np.arange(2, 4)})
        batches._timeout = None
        assert rows([next(batches)]) == [[1000, 1001, 1002, 1003]]


def test_a_reader_that_is_dropped_ends_its_thread(fifo, device, until):
    batches = fifo(40).batches("t", 4, prefetch=2, sent_ahead=2)
    next(batches)
    thread, gone = batches._sender._thread, weakref.ref(batches)
    del batches
    gc.collect()
    assert gone() is None
    until(lambda: not thread.is_alive())


def test_an_error_of_drawing_comes_after_the_batches_before_it_and_each_call_draws_again():
    found = iter([1, 2, OSError("the shard is gone"), 3, None])

    def draw(timeout):
        one = next(found)
        if isinstance(one, Exception):
            raise one
        return one

    sender = BatchSender(draw, lambda batch: (batch, lambda: -batch), 2)
    assert [sender.next(None), sender.next(None)] == [-1, -2]
    with pytest.raises(OSError, match="gone"):
        sender.next(None)
    assert [sender.next(None), sender.next(None), sender.next(0)] == [-3, None, None]
    assert sender.close() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sent_ahead": 1}, "is for tensors on a CUDA device"),
        ({"sent_ahead": 1, "as_": "torch"}, "is for tensors on a CUDA device"),
        ({"sent_ahead": -1}, "sent_ahead"),
    ],
)
def test_batches_that_cannot_be_sent_ahead_are_refused(fifo, options, words):
    if options.get("as_") == "torch":
        pytest.importorskip("torch")
    with pytest.raises(ValueError, match=words):
        fifo(4).batches("t", 4, prefetch=1, **options)


def test_nothing_is_sent_ahead_where_nothing_is_drawn_ahead(fifo, device):
    client = fifo(4)
    with pytest.raises(ValueError, match="prefetch is 0"):
        client.batches("t", 4, prefetch=0, sent_ahead=1)
    assert client.batches("t", 4, prefetch=0)._sender is None
    with client.batches("t", 4, prefetch=1, sent_ahead=1) as batches:
        assert batches._sender is not None


@pytest.mark.parametrize("consumes", [False, True])
def test_by_default_only_draws_of_tables_that_keep_their_items_are_sent_ahead(connect, device, consumes):
    pytest.importorskip("torch")
    client = connect(
        Table("t", selectors.Fifo(), selectors.Fifo(), 1_000, max_times_sampled=int(consumes)),
    )
    client.insert_batch("t", {"n": np.arange(4)})
    with client.batches("t", 2, prefetch=1, as_="torch") as batches:
        next(batches)
    assert bool(device.sent) != consumes
