"""The layout of a table's first insert, after a restart."""

import numpy as np
import pytest

import reverie
from reverie import Journal, Server, Table, rate_limiters, selectors
from reverie.checkpointers import DefaultCheckpointer


def table():
    return Table("t", selectors.Fifo(), selectors.Fifo(), 100, rate_limiters.MinSize(1))


@pytest.fixture(params=["checkpoint", "journal"])
def begin(request, tmp_path):
    """Starts a server that restores what the one before saved."""
    if request.param == "journal":
        return lambda: Server([table()], listen=False, journal=Journal(tmp_path))
    return lambda: Server([table()], None, DefaultCheckpointer(tmp_path / "saved"), listen=False)


def end(server):
    server.client().checkpoint()
    server.stop()


def test_a_restored_table_keeps_the_layout_of_its_items(begin):
    server = begin()
    server.client().insert({"x": np.zeros(7)}, {"t": 1.0})
    server.client().insert_batch("t", {"x": np.zeros((2, 3), np.float32)})
    end(server)
    server = begin()
    client = server.client()
    with pytest.raises(reverie.SignatureError, match="float64 \\[3\\], want float32 \\[3\\]"):
        client.insert_batch("t", {"x": np.zeros((2, 3))})
    client.insert_batch("t", {"x": np.zeros((1, 3), np.float32)})
    client.insert({"x": np.zeros(5)}, {"t": 1.0})
    assert client.info().tables["t"].current_size == 5
    end(server)


def test_restored_items_of_dm_reverbs_names_set_no_layout(begin):
    server = begin()
    server.client().insert({"x": np.zeros(7)}, {"t": 1.0})
    end(server)
    server = begin()
    server.client().insert_batch("t", {"x": np.zeros((2, 3), np.float32)})
    assert server.client().info().tables["t"].current_size == 3
    end(server)
