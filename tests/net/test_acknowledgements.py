"""Lost messages: each request is done once, and each draw reaches its caller or returns to the table."""

import threading

import numpy as np
import pytest

import reverie


@pytest.fixture
def served(own_host, connect, proxy, fifo):
    """A client whose way can be cut, one with a way of its own, and the proxy between."""
    with own_host.serve([fifo()]) as address:
        way = proxy(address)
        yield connect(way.address, transport="grpc"), connect(address, transport="grpc"), way


def test_inserts_whose_acknowledgement_was_lost_are_in_once(served, until):
    client, direct, way = served
    writer = client.trajectory_writer(1)
    writer.append({"n": -1})
    writer.create_item("t", 1.0, writer.history["n"][-1])
    writer.flush(timeout=200)
    way.answers = False
    for n in range(50):
        writer.append({"n": n})
        writer.create_item("t", 1.0, writer.history["n"][-1])
    until(lambda: direct.info().tables["t"].num_inserts == 51)
    assert writer.num_in_flight == 50
    way.cut()
    way.answers = True
    writer.flush(timeout=200)
    info = direct.info().tables["t"]
    assert (info.num_inserts, info.current_size) == (51, 51)
    assert direct.sample_batch("t", 51, timeout=200).data.tolist() == list(range(-1, 50))
    assert way.accepted >= 2


def test_draws_of_a_consuming_table_that_were_lost_on_the_way_come_again(served, until):
    client, direct, way = served
    rows = np.random.default_rng(0).random((40, 300))
    client.insert_batch("t", rows, timeout=200)
    way.answers = False
    got = []
    thread = threading.Thread(target=lambda: got.append(client.sample_batch("t", 30, timeout=120)))
    thread.start()
    until(lambda: direct.info().tables["t"].current_size == 10)
    way.cut()
    way.answers = True
    thread.join(200)
    [batch] = got
    np.testing.assert_array_equal(batch.data, rows[:30])
    np.testing.assert_array_equal(direct.sample_batch("t", 10, timeout=200).data, rows[30:])


def test_updates_that_were_lost_on_the_way_are_applied(served, until):
    client, direct, way = served
    keys = client.insert_batch("t", {"n": np.arange(5)}, timeout=200)
    way.answers = False
    done = []
    thread = threading.Thread(target=lambda: done.append(client.update_priorities("t", keys, np.full(5, 3.0))))
    thread.start()
    until(lambda: direct.info().tables["t"].num_updates == 5)
    way.cut()
    way.answers = True
    thread.join(200)
    assert done == [reverie.UpdateResult(applied=5, stale=0)]
    info = direct.get("t", keys).info
    assert info.priority.tolist() == [3.0] * 5
    assert info.version.tolist() == [1] * 5


@pytest.mark.parametrize("cut_after", [0, 1, 7])
def test_a_way_that_is_cut_again_and_again_loses_nothing_and_doubles_nothing(served, cut_after):
    client, direct, way = served
    writer = client.trajectory_writer(1)
    for n in range(60):
        writer.append({"n": n, "x": np.full(5000, n, np.uint8)})
        writer.create_item("t", 1.0, {"n": writer.history["n"][-1], "x": writer.history["x"][-1]})
        if n % 10 == cut_after:
            way.cut()
    writer.flush(timeout=200)
    data = direct.sample_batch("t", 60, timeout=200).data
    assert data["n"].tolist() == list(range(60))
    np.testing.assert_array_equal(data["x"][:, 0], np.arange(60))
    np.testing.assert_array_equal(data["x"].min(1), data["x"].max(1))
    assert direct.info().tables["t"].num_inserts == 60
