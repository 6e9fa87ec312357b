"""The calls of a stopped server's client: with a journal and without, each that needs its items raises ClosedError."""

import numpy as np
import pytest

import reverie
from reverie import Client, Journal, Server, Table, rate_limiters, selectors

STEPS = {"x": np.arange(3)}

REFUSED = {
    "insert": lambda client: client.insert({"x": 1}, {"t": 1.0}),
    "insert_batch": lambda client: client.insert_batch("t", STEPS),
    "sample": lambda client: next(iter(client.sample("t", 1))),
    "sample_batch": lambda client: client.sample_batch("t", 1),
    "batches": lambda client: next(client.batches("t", 1)),
    "get": lambda client: client.get("t", [1]),
    "query": lambda client: client.query("t"),
    "update_priorities": lambda client: client.update_priorities("t", [1], [2.0]),
    "mutate_priorities": lambda client: client.mutate_priorities("t", {1: 2.0}),
    "delete": lambda client: client.delete("t", [1]),
    "reset": lambda client: client.reset("t"),
    "configure": lambda client: client.configure("t", max_size=50),
    "checkpoint": lambda client: client.checkpoint(),
}
#: Methods with which a stopped server still reports, and those that make objects whose calls are refused.
REPORTS = {"can_insert", "can_sample", "close", "info", "server_info", "why"}
MAKES = {"episode_writer", "sequence_writer", "structured_writer", "trajectory_writer", "transition_writer", "writer"}


@pytest.fixture(params=["without a journal", "journal"])
def stopped(request, tmp_path):
    """A client of a server that has stopped."""
    journal = Journal(tmp_path) if request.param == "journal" else None
    table = Table("t", selectors.Uniform(), selectors.Fifo(), 100, rate_limiters.MinSize(1))
    with Server([table], journal=journal, listen=False) as server:
        client = server.client()
        client.insert_batch("t", STEPS)
    return client


@pytest.mark.parametrize("call", REFUSED)
def test_each_call_that_needs_the_items_of_a_stopped_server_raises_closed_error(stopped, call):
    with pytest.raises(reverie.ClosedError, match="the table 't' is closed"):
        REFUSED[call](stopped)


def test_nothing_becomes_durable_at_a_stopped_server(stopped):
    stopped.flush()
    has_journal = stopped.info().journal is not None
    with pytest.raises(reverie.ClosedError if has_journal else ValueError):
        stopped.flush(durable=True)


def test_no_call_of_a_client_is_missing_here():
    public = {name for name in dir(Client) if callable(getattr(Client, name)) and not name.startswith("_")}
    assert public - {"flush", "windows"} == {*REFUSED, *REPORTS, *MAKES}
