"""`flush(durable=True)`: afterwards the caller's items are on the disk, with each transport."""

import contextlib

import numpy as np
import pytest

import reverie
from reverie import Client, Journal, Server, Table, rate_limiters, selectors
from reverie.structured import create_config, create_reference_step


def table(name="t"):
    return Table(name, selectors.Uniform(), selectors.Fifo(), 1000, rate_limiters.MinSize(1))


# A table takes the layout of its first insert.
TABLES = ("t", "trajectory", "legacy", "sequence", "vector", "structured")
WAYS = ("in-process", "shared-memory", "grpc", "two shards")


@pytest.fixture(params=WAYS)
def reach(request, tmp_path):
    """A client of a server, or of two, whose journals wait for the disk only if they are asked to."""
    with contextlib.ExitStack() as stack:

        def begin(**options):
            journals = [
                Journal(tmp_path / str(number), **{"sync": "interval", "interval": 3600.0, **options})
                for number in range(2 if request.param == "two shards" else 1)
            ]
            if request.param == "in-process":
                return stack.enter_context(
                    Server([table(name) for name in TABLES], listen=False, journal=journals[0])
                ).client()
            servers = [
                stack.enter_context(Server([table(name) for name in TABLES], port=0, journal=journal, shard=number))
                for number, journal in enumerate(journals)
            ]
            addresses = [server.address for server in servers]
            if len(servers) == 2:
                return stack.enter_context(Client(addresses))
            return stack.enter_context(Client(addresses[0], transport=request.param))

        yield begin


def journals(client):
    info = client.info()
    return [info.journal] if info.journal is not None else [shard.info.journal for shard in info.shards]


def is_on_the_disk(client):
    return all(journal.unsynced_bytes == 0 for journal in journals(client))


def test_a_client_and_its_writers_wait_for_the_disk_if_they_are_asked_to(reach):
    client = reach()
    step = {"x": np.zeros(3, np.float32)}

    def check(flush):
        before = [journal.syncs for journal in journals(client)]
        flush(durable=False)
        assert not is_on_the_disk(client)
        assert [journal.syncs for journal in journals(client)] == before
        flush(durable=True, timeout=100.0)
        assert sum(journal.syncs for journal in journals(client)) > sum(before)

    for _ in range(4):
        client.insert_batch("t", {"x": np.zeros((2, 3), np.float32)}, wait=False)
    check(client.flush)
    assert is_on_the_disk(client)
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        writer.append(step)
        writer.create_item("trajectory", 1.0, {"x": writer.history["x"][-1:]})
        check(writer.flush)
    with client.writer(1) as writer:
        writer.append(step)
        writer.create_item("legacy", 1, 1.0)
        check(writer.flush)
    with client.sequence_writer("sequence", length=1, period=1) as writer:
        writer.append(step)
        check(writer.flush)
    with client.sequence_writer("vector", length=1, period=1, num_envs=2) as writer:
        writer.append({"x": np.zeros((2, 3), np.float32)})
        check(writer.flush)
    config = create_config({"x": create_reference_step(step)["x"][-1:]}, "structured")
    with client.structured_writer([config]) as writer:
        writer.append(step)
        check(writer.flush)


def test_new_priorities_are_on_the_disk_after_a_durable_flush(tmp_path):
    table = Table("t", selectors.Prioritized(1.0), selectors.Fifo(), 10, rate_limiters.MinSize(1))
    server = Server([table], listen=False, journal=Journal(tmp_path, sync="os", interval=3600.0))
    client = server.client()
    keys = client.insert_batch("t", {"x": np.arange(2)})
    client.update_priorities("t", keys, [3.0, 4.0], wait=False)
    client.flush(durable=True, timeout=100.0)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    server.stop()
    for path in tmp_path.iterdir():
        # As the folder was before the end of the server.
        if path.name in files:
            path.write_bytes(files[path.name])
        else:
            path.unlink()
    with Server([table.replace()], listen=False, journal=Journal(tmp_path)) as server:
        assert server.client().get("t", keys).info.priority.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("way", ["in-process", "shared-memory", "grpc"])
def test_without_a_journal_the_error_explains_how_to_get_one(way):
    listens = way != "in-process"
    with Server([table()], listen=listens) as server:
        client = Client(server.address, transport=way) if listens else server.client()
        with pytest.raises(ValueError, match=r"no journal; start it with .*reverie\.Journal.*--journal"):
            client.flush(durable=True)
        client.flush()


def test_a_late_disk_is_the_reason_of_a_durable_flush_that_ends_at_its_deadline(tmp_path, until):
    with Server([table()], listen=False, journal=Journal(tmp_path, interval=3600.0)) as server:
        client = server.client()
        client.insert_batch("t", {"x": np.zeros((1, 3))})
        with pytest.raises(reverie.DeadlineExceededError, match=r"flush.*waiting for the disk"):
            client.flush(0.0, durable=True)
        assert client.why("t") is not None
        client.flush(durable=True)
        until(lambda: journals(client)[0].waiting == 0)
