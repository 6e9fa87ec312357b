"""Servers with a journal that are killed: what was confirmed is there at the next start, once."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest

import reverie
from reverie.testing import Host


@pytest.fixture
def lives(tmp_path, new_port):
    """Starts a server process with a journal on one port and in one folder, again and again: `lives(tables)`."""
    port, hosts, servers = new_port(), [], []

    def start(tables, sync="interval"):
        host = Host()
        hosts.append(host)
        journal = reverie.Journal(tmp_path / "journal", sync=sync)
        servers.append(host.serve(tables, journal=journal, port=port))
        return host, servers[-1].__enter__()

    yield start
    for host in hosts:
        host.process.kill()
        host.process.wait()


def kill(host):
    host.process.kill()
    host.process.wait()


@pytest.mark.long
@pytest.mark.parametrize("sync", ["os", "interval", "always"])
def test_every_confirmed_insert_is_there_once_after_kills_under_several_writers(lives, network, connect, fifo, sync):
    host, address = lives([fifo()], sync)
    stop, confirmed = threading.Event(), [[] for _ in range(4)]

    def write(number):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", reverie.ServerRestartedWarning)
            client = connect(address, transport=network)
            value = 0
            while not stop.is_set():
                client.insert_batch("t", {"x": np.array([number * 1_000_000 + value, number * 1_000_000 + value + 1])})
                confirmed[number] += [value, value + 1]
                value += 2

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for life in range(1, 4):
        while min(len(of) for of in confirmed) < 20 * life:
            assert all(writer.is_alive() for writer in writers)
        kill(host)
        host, _ = lives([fifo()], sync)
    stop.set()
    for writer in writers:
        writer.join()
    client = connect(address, transport=network)
    wanted = sorted(number * 1_000_000 + value for number in range(4) for value in confirmed[number])
    size = client.info().tables["t"].current_size
    drawn = client.sample_batch("t", size).data["x"]
    assert sorted(drawn.tolist()) == wanted


@pytest.mark.long
@pytest.mark.parametrize("ahead", [False, True])
def test_a_queue_delivers_each_item_once_when_its_server_is_killed_under_a_consumer(
    lives, network, connect, fifo, ahead
):
    host, address = lives([fifo()])
    received, wanted = [], 600

    def read():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", reverie.ServerRestartedWarning)
            client = connect(address, transport=network)
            if ahead:
                # Up to eight batches are drawn, and some received, before the reader asks for them.
                with client.batches("t", 2, prefetch=8) as batches:
                    while len(received) < wanted:
                        received.extend(next(batches).data["x"].tolist())
                return
            while len(received) < wanted:
                received.extend(client.sample_batch("t", 2).data["x"].tolist())

    reader = threading.Thread(target=read)
    reader.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", reverie.ServerRestartedWarning)
        client = connect(address, transport=network)
        for value in range(0, wanted, 2):
            client.insert_batch("t", {"x": np.array([value, value + 1])})
            if value % 200 == 100:
                kill(host)
                host, _ = lives([fifo()])
    reader.join(timeout=200)
    assert sorted(received) == list(range(wanted))


@pytest.mark.long
def test_deletions_priorities_and_keys_come_back(lives, connect):
    table = reverie.Table(
        "t", reverie.selectors.Prioritized(1.0), reverie.selectors.Fifo(), 100, reverie.rate_limiters.MinSize(1)
    )
    host, address = lives([table], "always")
    client = connect(address)
    keys = client.insert_batch("t", {"x": np.arange(6)}, priorities=np.arange(1.0, 7.0))
    client.delete("t", keys[:2])
    kill(host)
    lives([table], "always")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", reverie.ServerRestartedWarning)
        found = client.get("t", keys[2:])
    assert found.data["x"].tolist() == [2, 3, 4, 5]
    assert found.info.priority.tolist() == [3.0, 4.0, 5.0, 6.0]
    assert client.info().tables["t"].current_size == 4


def test_a_server_that_cannot_listen_releases_the_folder_of_its_journal(tmp_path):
    journal = reverie.Journal(tmp_path)
    with reverie.Server([reverie.Table.queue("queue", 10)], listen=True) as other:
        with pytest.raises(ValueError, match="cannot listen there") as caught:
            reverie.Server([reverie.Table.queue("queue", 10)], port=other.port, journal=journal)
        assert caught.value is not None  # its traceback holds the server that could not be made
        with reverie.Server([reverie.Table.queue("queue", 10)], journal=journal) as server:
            assert server.client().insert_batch("queue", {"n": np.ones(1)}).size == 1
