"""Calls that end before the response: draws return to the table, and the outcome of inserts can be resolved."""

import contextlib
import os
import pickle
import signal
import threading

import numpy as np
import pytest

import reverie


def test_draws_are_leased_until_the_client_has_them(network, own_host, connect, fifo, until):
    with own_host.serve([fifo()]) as address:
        client = connect(address, transport=network)
        client.insert_batch("t", np.arange(4))
        assert client.sample_batch("t", 3, timeout=200).data.tolist() == [0, 1, 2]
        until(lambda: client.info().tables["t"].num_leased == 0)
        assert client.info().tables["t"].num_deletes == 3
        assert client.why("t").num_leased == 0


def test_draws_that_arrive_after_the_deadline_return_to_the_table_in_their_order(
    network, own_host, connect, fifo, until
):
    with own_host.serve([fifo()]) as address:
        client = connect(address, transport=network, grace=0.01)
        client.insert_batch("t", np.arange(6), timeout=200)
        client.sample_batch("t", 1, timeout=200)
        with own_host.suspended():
            for _ in range(3):
                with pytest.raises(reverie.DeadlineExceededError) as raised:
                    client.sample_batch("t", 2, timeout=0.05)
                assert raised.value.partial is None
        other = connect(address, transport=network)
        until(lambda: (info := other.info().tables["t"]).current_size == 5 and info.num_leased == 0)
        assert other.sample_batch("t", 5, timeout=200).data.tolist() == [1, 2, 3, 4, 5]


def test_draws_of_a_killed_client_go_to_the_next(own_host, connect, fifo):
    with own_host.serve([fifo()], session_timeout=0.05) as address:
        client = connect(address, transport="grpc")
        client.insert_batch("t", np.arange(3))
        dead = os.fork()
        if dead == 0:
            # A client that waits for more than there is, and is killed.
            with contextlib.suppress(BaseException):
                reverie.Client(address, transport="grpc").sample_batch("t", 100)
            os._exit(0)
        try:
            while client.info().tables["t"].num_leased < 3:
                pass
            assert client.why("t").num_leased == 3
        finally:
            os.kill(dead, signal.SIGKILL)
            os.waitpid(dead, 0)
        assert client.sample_batch("t", 3, timeout=200).data.tolist() == [0, 1, 2]


def test_late_draws_that_cannot_be_one_batch_come_with_the_error_and_travel_with_it(network, own_host, connect, fifo):
    with own_host.serve([fifo()]) as address:
        client = connect(address, transport=network)
        for length in (1, 2):
            client.insert({"x": np.zeros(length)}, {"t": 1.0}, timeout=200)
        with pytest.raises(reverie.DeadlineExceededError) as raised:
            client.sample_batch("t", 3, timeout=0.05)
        for error in (raised.value, pickle.loads(pickle.dumps(raised.value))):
            assert error.partial is None
            assert [batch.data["x"].shape for batch in error.drawn] == [(1, 1), (1, 2)]


def test_undelivered_batches_of_a_closed_iterator_return_to_the_table(network, own_host, connect, fifo, until):
    with own_host.serve([fifo()]) as address:
        client, other = connect(address, transport=network, grace=0.01), connect(address, transport=network)
        other.insert_batch("t", np.arange(20), timeout=200)
        batches = client.batches("t", 2, prefetch=3, timeout=200)
        given = [next(batches)]
        with own_host.suspended():
            batches.close()
        # Behind all that it asked for before.
        client.info(timeout=200)
        until(lambda: other.info().tables["t"].num_leased == 0)
        size = other.info().tables["t"].current_size
        handed_out = [number for batch in given + batches.leftover for number in batch.data.tolist()]
        assert handed_out + other.sample_batch("t", size, timeout=200).data.tolist() == list(range(20))


def test_an_insert_without_a_response_has_an_unknown_outcome_that_can_be_resolved(network, own_host, connect, uniform):
    with own_host.serve([uniform()]) as address:
        client = connect(address, transport=network, grace=0.01)
        client.insert_batch("t", np.arange(2), timeout=200)
        with own_host.suspended():
            with pytest.raises(reverie.UnknownOutcomeError) as raised:
                client.insert_batch("t", np.arange(2, 5), timeout=0.05)
            error = raised.value
            assert isinstance(error, reverie.DeadlineExceededError)
            assert error.partial.tolist() == []
            with pytest.raises(reverie.UnknownOutcomeError):
                error.outcome.wait(timeout=0.01)
            copy = pickle.loads(pickle.dumps(error))
            assert (copy.number, copy.outcome, str(copy)) == (error.number, None, str(error))
        keys = error.outcome.wait(timeout=200)
        assert (keys.dtype, len(keys)) == (np.int64, client.info().tables["t"].current_size - 2)


def test_the_error_of_a_step_for_several_tables_names_those_that_have_it(network, own_host, connect, uniform):
    with own_host.serve([uniform("a"), uniform("b")]) as address:
        client = connect(address, transport=network, grace=0.01)
        client.insert({"n": 1}, {"a": 1.0, "b": 1.0}, timeout=200)
        with own_host.suspended(), pytest.raises(reverie.UnknownOutcomeError) as raised:
            client.insert({"n": 2}, {"a": 1.0, "b": 1.0}, timeout=0.05)
        assert raised.value.partial == []
        raised.value.outcome.wait(timeout=200)


def test_a_server_restored_from_a_checkpoint_returns_leased_draws_to_the_table(
    network, own_host, connect, fifo, until, tmp_path
):
    checkpointer = reverie.checkpointers.DefaultCheckpointer(tmp_path)
    with own_host.serve([fifo()], checkpointer=checkpointer) as address:
        client, other = connect(address, transport=network), connect(address, transport=network)
        other.insert_batch("t", np.arange(3), timeout=200)
        given = []
        waiting = threading.Thread(target=lambda: given.append(client.sample_batch("t", 4, timeout=200)))
        waiting.start()
        until(lambda: other.info().tables["t"].num_leased == 3)
        other.checkpoint(timeout=200)
        with reverie.Server([fifo()], checkpointer=checkpointer, listen=False) as restored:
            assert restored.client().sample_batch("t", 3, timeout=0).data.tolist() == [0, 1, 2]
        other.insert_batch("t", np.arange(3, 4), timeout=200)
        waiting.join(200)
        assert [batch.data.tolist() for batch in given] == [[0, 1, 2, 3]]


def test_an_invalid_session_timeout_is_refused_by_name(uniform):
    with pytest.raises(ValueError, match="session_timeout"):
        reverie.Server([uniform()], session_timeout=-1.0)


def test_draws_of_a_killed_client_return_though_a_child_that_it_forked_lives_on(
    network, own_host, connect, fifo, until
):
    with own_host.serve([fifo()], session_timeout=0.05) as address:
        client = connect(address, transport="grpc")
        client.insert_batch("t", np.arange(3))
        (forked, says_forked), (ended, ends) = os.pipe(), os.pipe()
        dead = os.fork()
        if dead == 0:
            with contextlib.suppress(BaseException):
                mine = reverie.Client(address, transport=network)
                waiting = threading.Thread(target=lambda: mine.sample_batch("t", 100), daemon=True)
                waiting.start()
                until(lambda: mine.why("t").num_leased == 3)
                if os.fork() == 0:
                    os.close(ends)
                    os.write(says_forked, b"x")
                    os.read(ended, 1)
                    os._exit(0)
                waiting.join()
            os._exit(0)
        os.close(says_forked)
        try:
            assert os.read(forked, 1) == b"x"
        finally:
            os.kill(dead, signal.SIGKILL)
            os.waitpid(dead, 0)
        assert client.sample_batch("t", 3, timeout=200).data.tolist() == [0, 1, 2]
        os.close(ends)
