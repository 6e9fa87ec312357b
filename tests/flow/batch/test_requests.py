"""The requests about tables that a call makes before its draws: one, however many tables and defaults it has."""

import numpy as np
import pytest

import reverie
from reverie import Table, TensorSpec, _native, adapters
from reverie.client.table import TableCalls

SIGNATURE = {"x": TensorSpec((), np.int64)}


@pytest.fixture
def asked(monkeypatch):
    """The names of the requests about tables that clients make."""
    names = []

    def counted(name):
        ask = getattr(_native.Client, name)

        def request(self, *args, **kwargs):
            names.append(name)
            return ask(self, *args, **kwargs)

        monkeypatch.setattr(TableCalls, name, request, raising=False)

    for name in ("_info", "_describe"):
        counted(name)
    return names


@pytest.fixture
def client(connect, uniform):
    client = connect(*(uniform(name, signature=SIGNATURE) for name in "abc"))
    client.insert_batch("a", {"x": np.arange(8)})
    return client


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(adapters, "sender", lambda *_: lambda batch: (batch, lambda: batch))


@pytest.mark.parametrize("given", [{}, {"prefetch": 2}, {"sent_ahead": 1}])
@pytest.mark.parametrize("call", ["batches", "windows"])
def test_one_request_sets_all_defaults_of_an_iterator_over_several_tables(client, asked, gpu, call, given):
    length = {"length": 1} if call == "windows" else {}
    getattr(client, call)(dict.fromkeys("abc", 1.0), 3, **length, **given).close()
    assert asked == ["_info"]


def test_no_request_is_made_where_no_default_depends_on_the_table(client, asked):
    client.batches("a", 2, prefetch=2).close()
    assert asked == []


@pytest.mark.parametrize("unpack", [False, True])
def test_samples_one_by_one_take_one_request_before_the_draws(client, asked, unpack):
    [[step]] = client.sample("a", unpack_as_table_signature=unpack)
    assert asked == ["_info"]
    assert (step.data if unpack else step.data[0]) == ({"x": step.data["x"]} if unpack else step.data[0])


def test_a_table_that_deletes_sampled_items_among_others_makes_nothing_ahead(gpu):
    tables = [Table.queue("q", 10), Table("a", *2 * [reverie.selectors.Fifo()], 10)]
    client = reverie.Server(tables, listen=False).client()
    for name in "qa":
        client.insert_batch(name, {"x": np.arange(4)})
    with client.batches({"a": 1.0, "q": 1.0}, 2) as batches:
        assert batches._sender is None
    with client.batches("a", 2) as batches:
        assert batches._sender is not None
    with client.batches("q", 2) as batches:
        assert batches._ahead is None
