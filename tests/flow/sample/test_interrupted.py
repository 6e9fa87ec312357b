"""Ctrl-C while a sample waits, and requests for very many draws: no draw is lost."""

import os
import signal
import threading

import numpy as np
import pytest

from reverie import Table, selectors


@pytest.fixture
def interrupt(until):
    """Sends this process a Ctrl-C once something is true: `interrupt(lambda: ...)`."""
    threads = []
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt(when):
        def run():
            until(when)
            os.kill(os.getpid(), signal.SIGINT)

        threads.append(threading.Thread(target=run))
        threads[-1].start()

    yield interrupt
    for thread in threads:
        thread.join()
    signal.signal(signal.SIGINT, handler)


def waits_with(client, done):
    """True once a sample waits at the queue that has got so many of its draws."""
    return lambda: [waiting.done for waiting in client.why("q").samples] == [done]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_ctrl_c_in_a_sample_of_a_queue_hands_out_what_was_drawn(connect, interrupt):
    client = connect(Table.queue("q", 10))
    client.insert_batch("q", {"n": np.arange(3)})
    interrupt(waits_with(client, 3))
    with pytest.raises(KeyboardInterrupt) as raised:
        client.sample_batch("q", 5, timeout=200)
    assert raised.value.partial.data["n"].tolist() == [0, 1, 2]
    assert client.info().tables["q"].current_size == 0
    client.insert_batch("q", {"n": np.arange(3, 5)})
    assert client.sample_batch("q", 2).data["n"].tolist() == [3, 4]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_ctrl_c_before_the_first_draw_reports_no_draws(connect, interrupt):
    client = connect(Table.queue("q", 10))
    interrupt(waits_with(client, 0))
    with pytest.raises(KeyboardInterrupt) as raised:
        client.sample_batch("q", 5, timeout=200)
    assert raised.value.partial is None


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_ctrl_c_in_a_training_loop_over_a_queue_leaves_the_draws_in_leftover(connect, interrupt):
    client = connect(Table.queue("q", 10))
    client.insert_batch("q", {"n": np.arange(6)})
    with client.batches("q", 4, timeout=200) as batches:
        assert next(batches).data["n"].tolist() == [0, 1, 2, 3]
        interrupt(waits_with(client, 2))
        with pytest.raises(KeyboardInterrupt):
            next(batches)
    assert [batch.data["n"].tolist() for batch in batches.leftover] == [[4, 5]]


@pytest.mark.one_table_only("which server an insert uses differs from client to client")
def test_a_request_for_very_many_draws_is_the_same_as_many_small_ones(connect, uniform):
    draws = []
    for sizes in ([50_000], [1_000] * 50):
        client = connect(uniform("t", sampler=selectors.Prioritized(1.0, seed=5)))
        client.insert_batch("t", {"n": np.arange(100)}, priorities=np.arange(100))
        infos = [client.sample_batch("t", size).info for size in sizes]
        draws.append(np.concatenate([info.key & 0xFFF_FFFF for info in infos]).tolist())
        assert np.concatenate([info.times_sampled for info in infos]).max() > 900
    assert draws[0] == draws[1]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_request_for_very_many_draws_of_a_queue_keeps_its_place_and_its_order(connect):
    client = connect(Table.queue("q", 100_000))
    client.insert_batch("q", {"n": np.arange(60_000)})
    assert client.sample_batch("q", 40_000).data["n"].tolist() == list(range(40_000))
    assert client.sample_batch("q", 20_000).data["n"].tolist() == list(range(40_000, 60_000))
