"""Servers with a journal that are killed: what was confirmed is there at the next start, once."""

from __future__ import annotations

import functools
import threading
import warnings

import numpy as np
import pytest

import reverie
from reverie.testing import ServerProcess


@pytest.fixture
def lives(tmp_path, new_port):
    """Starts a server process with a journal on one port and in one folder, again and again: `lives(tables)`."""
    port, hosts, servers = new_port(), [], []

    def start(tables, sync="interval"):
        host = ServerProcess()
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
@pytest.mark.filterwarnings("ignore::reverie.ServerRestartedWarning")
@pytest.mark.parametrize("sync", ["os", "interval", "always"])
def test_a_queue_under_twenty_writers_and_a_consumer_loses_and_repeats_nothing_over_kills(
    lives, network, connect, fifo, until, sync
):
    """The test compares the results of the callers' own calls: the journal and the server are not asked."""
    host, address = lives([fifo()], sync)
    stop, confirmed, received, failed = threading.Event(), [[] for _ in range(20)], [], []

    def apart(work):
        try:
            work(connect(address, transport=network))
        except BaseException as error:
            failed.append(error)
            raise

    def write(number, client):
        while not stop.is_set():
            first = number * 1_000_000 + len(confirmed[number])
            client.insert_batch("t", {"x": np.array([first, first + 1])})
            confirmed[number] += [first, first + 1]

    def read(client):
        while (value := client.sample_batch("t", 1).data["x"].tolist()[0]) >= 0:
            received.append(value)

    writers = [threading.Thread(target=apart, args=(functools.partial(write, number),)) for number in range(20)]
    reader = threading.Thread(target=apart, args=(read,))
    for thread in (*writers, reader):
        thread.start()
    for life in range(1, 6):
        least, most = 4 * life, 40 * life
        until(lambda: failed or (min(map(len, confirmed)) >= least and len(received) >= most))  # noqa: B023
        assert not failed
        kill(host)
        host, _ = lives([fifo()], sync)
    stop.set()
    for writer in writers:
        writer.join()
    connect(address, transport=network).insert_batch("t", {"x": np.array([-1])})
    reader.join()
    assert not failed
    assert sorted(received) == sorted(value for of in confirmed for value in of)


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
