"""Many clients of a server with little memory for connections: none is ended while it keeps to its credit."""

from collections import Counter

import numpy as np
import pytest

import reverie

CLIENTS, BATCHES = 128, 12


@pytest.fixture
def address():
    """The address of a server with 4 MiB, in addition to the tables, for its connections."""
    fifo, least = reverie.selectors.Fifo(), reverie.rate_limiters.MinSize(1)
    tables = [
        reverie.Table("free", sampler=fifo, remover=fifo, max_size=1_000, rate_limiter=least),
        reverie.Table.queue("full", 64),
    ]
    with reverie.Server(tables, max_bytes=64 << 20, max_memory=80 << 20) as server:
        yield f"127.0.0.1:{server.port}"


def rows(seed, width=51):
    """64 rows, of 26 kB unless said otherwise, that no compression makes smaller."""
    return {"x": np.random.default_rng(seed).integers(1 << 62, size=(64, width))}


@pytest.mark.long
def test_inserts_that_are_in_their_table_do_not_count_against_connections(address, connect, network):
    clients = [connect(address, transport=network) for _ in range(CLIENTS)]
    for batch in range(BATCHES):
        for number, client in enumerate(clients):
            client.insert_batch("free", rows((number, batch)), wait=False, timeout=100)
    for client in clients:
        client.flush(timeout=100)
    assert [client.info().reconnects for client in clients] == [0] * CLIENTS
    assert clients[0].info().tables["free"].num_inserts == CLIENTS * BATCHES * 64


@pytest.mark.long
def test_clients_that_all_wait_for_a_full_table_lose_neither_their_connection_nor_an_insert(address, connect, network):
    clients = [connect(address, transport=network) for _ in range(CLIENTS)]
    given = [rows(number, 102)["x"] for number in range(CLIENTS)]
    for client, of_client in zip(clients, given, strict=True):
        client.insert_batch("full", {"x": of_client}, wait=False, timeout=100)  # 6.7 MB of all
    reader = connect(address, transport=network)
    drawn = Counter()
    while drawn.total() < CLIENTS * 64:
        drawn.update(row.tobytes() for row in reader.sample_batch("full", 64, timeout=100).data["x"])
    assert drawn == Counter(row.tobytes() for row in np.concatenate(given))
    assert [client.info().reconnects for client in clients] == [0] * CLIENTS
