"""A server with a journal and a disk that is killed: everything is there at the next start, most of it unread."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import reverie
from reverie.testing import ServerProcess

MEMORY, COUNT, WIDTH = 1 << 20, 400, 20_000


def rows(first, count):
    """Rows that differ from each other and do not compress."""
    noise = np.random.default_rng(1).integers(0, 2**32, WIDTH // 4, dtype=np.uint32)
    words = (np.arange(first, first + count, dtype=np.uint32)[:, None] * np.uint32(2_654_435_761)) ^ noise
    return (words * np.uint32(2_246_822_519)).view(np.uint8)


@pytest.fixture
def start(tmp_path, new_port):
    """Starts a server process with the journal and the disk of the one before."""
    port, hosts, servers = new_port(), [], []

    def begin(tables):
        hosts.append(ServerProcess())
        journal = reverie.Journal(tmp_path / "journal", sync="os")
        options = {"journal": journal, "port": port, "disk": tmp_path / "disk", "memory_bytes": MEMORY}
        servers.append(hosts[-1].serve(tables, **options))
        return hosts[-1], servers[-1].__enter__()

    yield begin
    for host in hosts:
        host.process.kill()
        host.process.wait()


@pytest.mark.long
def test_a_table_of_eight_times_the_memory_is_there_after_kills_and_was_written_once(start, connect, uniform, tmp_path):
    host, address = start([uniform()])
    client = connect(address)
    for first in range(0, COUNT, 4):
        client.insert_batch("t", {"obs": rows(first, 4), "at": np.arange(first, first + 4)}, timeout=60)
    # So that the client keeps nothing, which it would send again.
    client.flush(durable=True, timeout=60)
    for life in range(3):
        disk = client.info().disk
        assert disk.num_chunks > 0
        # Each byte is in the journal alone.
        assert (disk.file_bytes, disk.chunk_bytes) == (0, disk.shared_bytes)
        assert disk.memory_bytes <= 1.1 * MEMORY
        if life == 1:
            client.checkpoint(timeout=60)
        host.process.kill()
        host.process.wait()
        client.close()
        host, address = start([uniform()])
        client = connect(address)
        assert client.info().tables["t"].current_size == COUNT
    drawn = client.sample_batch("t", 600, timeout=60)
    assert len(set(drawn.data["at"].tolist())) > 100
    for obs, at in zip(drawn.data["obs"], drawn.data["at"], strict=True):
        assert (obs == rows(int(at), 1)[0]).all()
    client.reset("t")
    disk = client.info().disk
    assert (disk.num_chunks, disk.chunk_bytes, disk.shared_bytes) == (0, 0, 0)
    assert not list((tmp_path / "disk").glob("*.chunks"))


@pytest.mark.long
@pytest.mark.parametrize("asks", ["what there is", "now"])
def test_draws_that_were_answered_before_a_kill_are_not_delivered_again(start, connect, fifo, network, asks):
    host, address = start([fifo()])
    client = connect(address, transport=network)
    client.insert_batch("t", {"at": np.arange(20)})
    received = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", reverie.ServerRestartedWarning)
        for _ in range(3):
            if asks == "now":
                client.info(timeout=60)  # it is connected again
                received += client.sample_batch("t", 5, timeout=0).data["at"].tolist()
            else:
                # Each is a draw of what there is.
                samples = client.sample("t", 5, emit_timesteps=False, timeout=60)
                received += [sample.data[0].item() for sample in samples]
            host.process.kill()
            host.process.wait()
            host, _ = start([fifo()])
        received += client.sample_batch("t", 5, timeout=60).data["at"].tolist()
    assert sorted(received) == list(range(20))
    assert client.info().tables["t"].current_size == 0
