"""A full table does not block inserts into other tables of the same client."""

import numpy as np
import pytest

import reverie

ROWS = 1_000


def tables():
    """A queue of two items, and a table that takes all."""
    full = reverie.Table.queue("full", 2)
    fifo, least = reverie.selectors.Fifo(), reverie.rate_limiters.MinSize(1)
    return [full, reverie.Table("free", sampler=fifo, remover=fifo, max_size=1_000_000, rate_limiter=least)]


@pytest.fixture
def address():
    """The address of a server from which a client has at most 8 MiB of credit for inserts."""
    with reverie.Server(tables(), max_bytes=64 << 20, max_memory=80 << 20) as server:
        yield f"127.0.0.1:{server.port}"


def row(value):
    """20 kB that no compression makes smaller, the first number of which is the value."""
    numbers = np.random.default_rng(value).integers(1 << 62, size=2_500)
    numbers[0] = value
    return numbers


def drain(client):
    """All values of the full table, in the order in which it gives them."""
    values = []
    while len(values) < ROWS:
        values.extend(client.sample_batch("full", 2, timeout=100).data["x"].reshape(2, -1)[:, 0])
    return values


@pytest.mark.long
def test_a_full_table_does_not_block_inserts_into_others_and_keeps_its_order(address, connect, network):
    client = connect(address, transport=network)
    # 20 MB that the table does not take.
    for value in range(ROWS):
        client.insert_batch("full", {"x": row(value)[None]}, wait=False, timeout=100)
    for value in range(ROWS):
        client.insert_batch("free", {"x": row(value)[None]}, timeout=100)
    info = client.info().tables
    assert (info["free"].current_size, info["full"].current_size) == (ROWS, 2)
    assert drain(client) == list(range(ROWS))
    client.flush(timeout=100)
    assert client.info().tables["full"].num_inserts == ROWS


def test_a_full_table_does_not_block_a_writers_other_table(address, connect, network):
    client = connect(address, transport=network)
    with client.trajectory_writer(1, timeout=100) as writer:
        for value in range(ROWS):
            writer.append({"x": row(value)})
            for table in ("full", "free"):
                writer.create_item(table, 1.0, {"x": writer.history["x"][-1:]})
        # The writer's own items wait in the full table: another call waits for those of the other one.
        while client.info(timeout=100).tables["free"].current_size < ROWS:
            pass
        assert client.info().tables["full"].current_size == 2
        assert drain(client) == list(range(ROWS))
        writer.flush(timeout=100)
    assert client.info().tables["full"].num_inserts == ROWS


@pytest.mark.parametrize("network", ["shared-memory", "grpc", None])
def test_an_insert_held_by_a_full_table_blocks_no_inserts_with_wait_false(address, connect, network):
    local = reverie.Server(tables(), listen=False)
    client = connect(address, transport=network) if network else local.client()
    for _ in range(3):
        client.insert_batch("full", {"x": np.zeros(1)}, wait=False, timeout=100)
    # More than may be unanswered at a time.
    for _ in range(5_000):
        client.insert_batch("free", {"x": np.zeros(1)}, wait=False, timeout=100)
    with pytest.raises(reverie.DeadlineExceededError, match="full"):
        client.flush(timeout=0.2)
    assert client.info().tables["free"].num_inserts == 5_000
    assert len(client.sample_batch("full", 2, timeout=100)) == 2
    client.flush(timeout=100)
    assert client.info().unawaited_errors == 0
