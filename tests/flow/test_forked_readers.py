"""Iterators with a thread of their own, in a forked child process, which has no such thread."""

import os
import signal
import threading
import weakref

import numpy as np
import pytest

import reverie
from reverie.datasets.chain import Dataset
from reverie.datasets.sending import BatchSender


def in_child(call):
    """The error that a call raises in a forked child, which a deadline ends without a text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        text = "no error"
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(300)
        try:
            call()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading) as pipe:
        return pipe.read()


@pytest.fixture
def sender():
    sender = BatchSender(lambda timeout: 1, lambda batch: (batch, lambda: -batch), 2)
    yield sender
    sender.close()


def test_elements_that_a_thread_of_the_parent_makes_ahead_are_refused():
    elements = iter(Dataset(lambda: iter(range(4))).prefetch(1))
    assert next(elements) == 0
    for _ in range(2):
        assert in_child(lambda: next(elements)).startswith("ForkedError: this iterator of a prefetched dataset lives")
    assert list(elements) == [1, 2, 3]


def test_a_dataset_that_makes_elements_ahead_is_iterated_in_a_child():
    dataset = Dataset(lambda: iter(range(4))).prefetch(1)
    next(iter(dataset))

    def read():
        raise ValueError(list(dataset))

    assert in_child(read) == "ValueError: [0, 1, 2, 3]"


def test_batches_that_a_thread_of_the_parent_sends_are_refused(sender):
    assert sender.next(None) == -1
    assert in_child(lambda: sender.next(None)).startswith("ForkedError: this iterator of batches lives in the parent")
    assert in_child(sender.close).startswith("ForkedError: this iterator of batches lives in the parent")
    assert sender.next(None) == -1


def test_a_child_drops_a_reader_whose_lock_another_thread_held():
    readers = [BatchSender(lambda timeout: 1, lambda batch: (batch, lambda: -batch), 2)]
    sender, held, done = weakref.ref(readers[0]), threading.Event(), threading.Event()

    def hold(changed):
        with changed:
            held.set()
            done.wait()

    holder = threading.Thread(target=hold, args=(readers[0]._shared._changed,))
    holder.start()
    held.wait()
    outcome = in_child(readers.clear)
    done.set()
    holder.join()
    assert outcome == "no error"
    readers.pop().close()
    assert sender() is None


def test_a_child_that_leaves_a_block_of_its_parents_ends_with_its_own_exit():
    with reverie.Server([reverie.Table.queue("q", 10)], listen=False) as server:
        client = server.client()
        client.insert_batch("q", {"x": np.arange(4)})
        with client.batches("q", 2, prefetch=1) as batches:
            next(batches)

            def leave(entered):
                with entered:
                    raise SystemExit(3)

            assert in_child(lambda: leave(batches)) == "SystemExit: 3"
            assert in_child(lambda: leave(server)) == "SystemExit: 3"
            assert in_child(server.wait).startswith("ForkedError: this server lives in the parent process")
            assert len(next(batches)) == 2
