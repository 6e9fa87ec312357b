"""The clients of a server, as `/api/clients` lists them."""

import json
import urllib.request

import numpy as np
import pytest

from reverie import Client, Server, Table

#: A wait that ends only where something is broken.
PATIENT = 100
MEGABYTE = np.zeros(1 << 20, np.uint8)


def clients(server):
    with urllib.request.urlopen(f"http://{server.http_address}/api/clients", timeout=PATIENT) as response:
        return json.load(response)


@pytest.fixture
def server():
    with Server([Table.queue("q", 1)], http=0) as server:
        yield server


def test_a_client_is_listed_with_its_transport_until_it_leaves(server, network, connect, until):
    client = connect(server.address, transport=network)
    client.info()
    found = clients(server)
    (one,) = found["clients"]
    assert found["total"] == 1
    assert (one["transport"], one["requests"], one["reconnects"]) == (network, 0, 0)
    assert len(one["name"]) == 8
    assert one["peer"]
    assert 0 <= one["silent_seconds"] <= one["seconds"] < PATIENT
    client.close()
    until(lambda: clients(server) == {"total": 0, "clients": []})


def test_inserts_that_wait_are_bytes_in_flight_and_requests_of_their_client(server, network, connect, until):
    client, other = (connect(server.address, transport=network) for _ in range(2))
    other.insert(MEGABYTE[:1], {"q": 1.0})
    noise = np.random.default_rng(1).integers(0, 256, 1 << 20, np.uint8)  # cannot be packed
    client.insert_batch("q", noise[None], wait=False)
    until(lambda: client.why("q").num_waiting_inserts == 1)
    first, second = clients(server)["clients"]
    assert first["bytes_in_flight"] > 1 << 20 > second["bytes_in_flight"]
    assert (first["requests"], second["requests"]) == (1, 0)
    other.sample_batch("q", 1)
    until(lambda: client.info().tables["q"].num_inserts == 2)
    other.sample_batch("q", 1)

    def released():
        other.info()  # its message has the release of the batch, if the batch's acknowledgement was sent before
        return max(one["bytes_in_flight"] for one in clients(server)["clients"]) < 1 << 20

    until(released)


def test_a_batch_in_shared_memory_is_in_flight_until_its_client_has_released_it(server, until):
    with Client(server.address, transport="shared-memory") as client:
        client.insert(MEGABYTE, {"q": 1.0})
        batch = client.sample_batch("q", 1)
        client.info()
        (one,) = clients(server)["clients"]
        assert one["bytes_in_flight"] >= 1 << 20
        del batch

        def released():
            client.info()  # its message has the release
            return clients(server)["clients"][0]["bytes_in_flight"] < 1 << 20

        until(released)


def test_a_client_that_lost_its_connection_stays_in_the_list_while_it_may_come_back(server, proxy, until):
    far = proxy(server.address)
    with Client(far.address, transport="grpc", patience=PATIENT) as client:
        client.insert(MEGABYTE[:1], {"q": 1.0})
        client.insert_batch("q", MEGABYTE[None, :1], wait=False)
        until(lambda: client.why("q").num_waiting_inserts == 1)
        far.cut()
        until(lambda: clients(server)["clients"][0]["reconnects"] == 1)
        found = clients(server)
    assert (found["total"], found["clients"][0]["transport"]) == (1, "grpc")


def test_a_server_that_does_not_listen_has_no_clients():
    with Server([Table.queue("q", 1)], http=0, listen=False) as server:
        server.client().info()
        assert clients(server) == {"total": 0, "clients": []}
