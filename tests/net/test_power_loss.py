"""A machine that loses power under a server: writers that live send again what its journal had not on the disk."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest

import reverie
from reverie.testing import ServerProcess


class Machine:
    """A server process with a journal, whose files lose what was written after a moment."""

    def __init__(self, folder, table, sync, port):
        self._port = port
        self._folder, self._table, self._sync = folder, table, sync
        self.hosts = []
        self.start()

    def start(self):
        # Data is synced only for a caller that asks for it.
        journal = reverie.Journal(self._folder, sync=self._sync, interval=3600.0)
        self.hosts.append(ServerProcess())
        self._served = self.hosts[-1].serve([self._table], journal=journal, port=self._port)
        self.address = self._served.__enter__()

    def written(self):
        """The sizes of the files; all that was synced before is in them."""
        return {path: path.stat().st_size for path in self._folder.iterdir()}

    def lose_power(self, sizes):
        """Ends the server, and what was written after `sizes` were read."""
        process = self.hosts[-1].process
        process.kill()
        process.wait()
        for path in self._folder.iterdir():
            if path in sizes:
                with path.open("r+b") as file:
                    file.truncate(min(sizes[path], path.stat().st_size))
            else:
                path.unlink()


@pytest.fixture
def machine(tmp_path, fifo, new_port):
    """Starts a machine: `machine(sync)`."""
    made = []

    def start(sync="interval"):
        made.append(Machine(tmp_path / "journal", fifo(), sync, new_port()))
        return made[-1]

    yield start
    for host in (host for one in made for host in one.hosts):
        host.process.kill()
        host.process.wait()


@pytest.fixture(autouse=True)
def restarts_are_expected():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", reverie.ServerRestartedWarning)
        yield


def values(client):
    size = client.info().tables["t"].current_size
    return sorted(client.sample_batch("t", size).data["x"].tolist()) if size else []


@pytest.mark.long
@pytest.mark.parametrize("sync", ["os", "interval"])
def test_every_confirmed_insert_is_there_once_after_losses_of_power_under_several_writers(
    machine, network, connect, until, sync
):
    one = machine(sync)
    stop, confirmed, failed = threading.Event(), [[] for _ in range(4)], []

    def write(number):
        try:
            client = connect(one.address, transport=network)
            value = number * 1_000_000
            while not stop.is_set():
                client.insert_batch("t", {"x": np.array([value, value + 1])})
                confirmed[number] += [value, value + 1]
                value += 2
        except BaseException as error:
            failed.append(error)
            raise

    def each_writes(count):
        wanted = [len(of) + count for of in confirmed]
        until(lambda: failed or all(len(of) >= want for of, want in zip(confirmed, wanted, strict=True)))
        assert not failed

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    watcher = connect(one.address, transport=network)
    for _ in range(3):
        each_writes(10)
        watcher.flush(durable=True)
        sizes = one.written()
        each_writes(20)
        one.lose_power(sizes)
        one.start()
        # Kept inserts are sent before later ones.
        each_writes(2)
    stop.set()
    for writer in writers:
        writer.join()
    assert values(watcher) == sorted(value for of in confirmed for value in of)


@pytest.mark.long
def test_kept_inserts_are_shown_and_released_once_they_are_on_the_disk(machine, network, connect, until):
    one = machine()
    client = connect(one.address, transport=network, max_kept_bytes=1 << 20)
    client.insert_batch("t", {"x": np.arange(100)})
    info = client.info()
    assert 800 <= info.kept_bytes < 100_000
    assert info.max_kept_bytes == 1 << 20
    client.flush(durable=True)
    until(lambda: client.info().kept_bytes == 0)
    for _ in range(4):
        client.insert_batch("t", {"x": np.arange(10_000)})
    assert client.info().kept_bytes <= 1 << 20


def test_a_journal_that_syncs_always_lets_clients_keep_nothing(machine, network, connect):
    client = connect(machine("always").address, transport=network)
    client.insert_batch("t", {"x": np.arange(100)})
    assert client.info().kept_bytes == 0


@pytest.mark.long
def test_a_durable_flush_waits_for_what_was_sent_again_and_fails_if_more_is_lost_than_was_kept(
    machine, network, connect
):
    one = machine()
    keeps = connect(one.address, transport=network)
    forgets = connect(one.address, transport=network, max_kept_bytes=0)
    sizes = one.written()
    keeps.insert_batch("t", {"x": np.array([1])})
    forgets.insert_batch("t", {"x": np.array([2])})
    one.lose_power(sizes)
    one.start()
    with pytest.raises(reverie.UnavailableError, match=r"restarted.*max_kept_bytes"):
        forgets.flush(durable=True)
    forgets.flush(durable=True)
    keeps.flush(durable=True)
    sizes = one.written()
    one.lose_power(sizes)
    one.start()
    assert values(keeps) == [1]
