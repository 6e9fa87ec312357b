"""A server whose chunks move to the disk when its memory is used up."""

import os
import threading

import numpy as np
import pytest

import reverie
from reverie import Table, rate_limiters, selectors
from reverie.testing import serve

MEMORY = 2 << 20
WIDTH = 20_000
NOISE = np.random.default_rng(1).integers(0, 2**32, WIDTH // 4, dtype=np.uint32)
STEPS = 600  # of WIDTH bytes each: six times the memory


def rows(first, count):
    """Rows that differ from each other and do not compress."""
    numbers = np.arange(first, first + count, dtype=np.uint32)[:, None] * np.uint32(2_654_435_761)
    words = (numbers ^ NOISE) * np.uint32(2_246_822_519)
    return (words ^ (words >> 15)).view(np.uint8)


def filled(client, table="t", count=STEPS, at_once=10):
    keys = [
        client.insert_batch(table, {"obs": rows(at, at_once), "at": np.arange(at, at + at_once)}, timeout=30)
        for at in range(0, count, at_once)
    ]
    return np.concatenate([np.asarray(some) for some in keys])


def disk_of(client):
    """The figures of the servers' disk tiers."""
    info = client.info(timeout=10)
    return [info.disk] if not info.shards else [shard.info.disk for shard in info.shards]


@pytest.mark.emulated
def test_a_table_of_six_times_the_memory_gives_every_item_as_it_was(connect, uniform, tmp_path):
    client = connect(uniform("t", max_size=10_000), disk=tmp_path, memory_bytes=MEMORY)
    keys = filled(client)
    order = np.random.default_rng(2).permutation(STEPS)
    for some in np.array_split(order, 20):
        got = client.get("t", keys[some], timeout=30).data
        for index, at in enumerate(got["at"]):
            assert (got["obs"][index] == rows(int(at), 1)[0]).all()
        assert sorted(got["at"]) == sorted(some)
    for disk in disk_of(client):
        assert disk.memory_bytes <= MEMORY * 1.1
        assert disk.num_chunks > 0
        assert disk.chunk_bytes <= disk.file_bytes
        assert disk.max_memory_bytes == MEMORY
        assert disk.error is None


def test_inserts_of_this_process_move_older_chunks_themselves_and_do_not_wait(uniform, tmp_path):
    with serve([uniform("t", max_size=10_000)], disk=tmp_path, memory_bytes=MEMORY) as client:
        for at in range(0, STEPS, 10):
            client.insert_batch("t", {"obs": rows(at, 10)}, timeout=0)
        assert disk_of(client)[0].num_chunks > 0


def test_batches_ahead_read_from_the_disk(connect, uniform, tmp_path):
    client = connect(uniform("t", max_size=10_000), disk=tmp_path, memory_bytes=MEMORY)
    filled(client)
    with client.batches("t", 32, prefetch=2) as batches:
        for batch in (next(batches) for _ in range(20)):
            for at, row in zip(batch.data["at"], batch.data["obs"], strict=True):
                assert (row == rows(int(at), 1)[0]).all()


def test_sequences_of_frames_are_stacked_from_the_disk(connect, uniform, tmp_path):
    client = connect(uniform("t", max_size=10_000), disk=tmp_path, memory_bytes=MEMORY)
    with client.trajectory_writer(num_keep_alive_refs=4) as writer:
        for at in range(STEPS):
            writer.append({"obs": rows(at, 1)[0], "at": np.int64(at)})
            if at >= 3:
                writer.create_item("t", 1.0, {name: writer.history[name][-4:] for name in ("obs", "at")})
        writer.flush(timeout_ms=30_000)
    batch = client.sample_batch("t", 64, timeout=30).data
    for stack, at in zip(batch["obs"], batch["at"], strict=True):
        assert (np.diff(at) == 1).all()
        assert (stack == rows(int(at[0]), 4)).all()


@pytest.mark.one_table_only("a queue is one server's")
def test_a_queue_larger_than_memory_keeps_its_order(connect, tmp_path):
    client = connect(Table.queue("q", max_size=STEPS), disk=tmp_path, memory_bytes=MEMORY)
    filled(client, "q")
    for at in range(0, STEPS, 20):
        assert list(client.sample_batch("q", 20, timeout=30).data["at"]) == list(range(at, at + 20))


def test_a_checkpoint_of_a_table_larger_than_memory_is_restored_within_the_memory(tmp_path):
    def table():
        sampler, remover = selectors.Uniform(seed=1), selectors.Fifo()
        return Table("t", sampler, remover, max_size=10_000, rate_limiter=rate_limiters.MinSize(1))

    kept = reverie.checkpointers.DefaultCheckpointer(tmp_path / "kept")
    disk = {"disk": tmp_path / "disk", "memory_bytes": MEMORY, "listen": False}
    with reverie.Server([table()], checkpointer=kept, **disk) as server:
        filled(server.client())
        server.client().checkpoint()
    with reverie.Server([table()], checkpointer=kept, **disk) as server:
        client = server.client()
        assert client.info().disk.memory_bytes <= MEMORY * 1.1
        batch = client.sample_batch("t", 200).data
        for at, row in zip(batch["at"], batch["obs"], strict=True):
            assert (row == rows(int(at), 1)[0]).all()


def test_the_files_go_with_the_server_and_the_folder_can_be_used_again(tmp_path):
    table = Table("t", selectors.Fifo(), selectors.Fifo(), max_size=10_000, rate_limiter=rate_limiters.MinSize(1))
    with reverie.Server([table], disk=tmp_path, memory_bytes=MEMORY, listen=False) as server:
        filled(server.client())
        assert any(name.endswith(".chunks") for name in os.listdir(tmp_path))
        with pytest.raises(reverie.StorageError, match="another server uses it"):
            reverie.Server([Table.queue("q", 10)], disk=tmp_path, memory_bytes=MEMORY, listen=False)
    assert not any(name.endswith(".chunks") for name in os.listdir(tmp_path))
    reverie.Server([Table.queue("q", 10)], disk=tmp_path, memory_bytes=MEMORY, listen=False).stop()


def test_inserts_beyond_both_limits_are_refused_by_their_names(tmp_path):
    table = Table("t", selectors.Fifo(), selectors.Fifo(), max_size=10_000, rate_limiter=rate_limiters.MinSize(1))
    limits = {"memory_bytes": MEMORY, "disk_bytes": 2 * MEMORY}
    with reverie.Server([table], disk=tmp_path, listen=False, **limits) as server:
        client = server.client()
        with pytest.raises(reverie.ResourceExhaustedError, match="disk_bytes"):
            filled(client)
        disk = client.info().disk
        assert disk.file_bytes <= 2 * MEMORY
        assert disk.max_file_bytes == 2 * MEMORY
        assert "disk_bytes" in disk.error
        size = table.info.current_size
        assert size * WIDTH > 2 * MEMORY
        assert len(client.sample_batch("t", size).data["at"]) == size


def test_a_writer_that_is_faster_than_the_disk_waits_within_the_memory(tmp_path):
    table = Table("t", selectors.Fifo(), selectors.Fifo(), max_size=100, rate_limiter=rate_limiters.MinSize(1))
    with reverie.Server([table], disk=tmp_path, memory_bytes=MEMORY, listen=False) as server:
        client, most, ends = server.client(), [0], threading.Event()

        def watch():
            while not ends.is_set():
                most[0] = max(most[0], client.info().disk.memory_bytes)

        watcher = threading.Thread(target=watch)
        watcher.start()
        for _ in range(5):
            filled(client, count=200)
        ends.set()
        watcher.join()
        # An item that waits is in memory, too.
        assert most[0] <= MEMORY + 10 * WIDTH * 1.2


@pytest.mark.parametrize("wrong", [{"memory_bytes": 10}, {"disk_bytes": 10}])
def test_limits_of_a_disk_need_a_disk(wrong):
    with pytest.raises(ValueError, match="need a disk"):
        reverie.Server([Table.queue("q", 10)], listen=False, **wrong)


@pytest.mark.parametrize("name", ["memory_bytes", "disk_bytes"])
@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_limits_of_a_disk_are_counts_of_bytes(tmp_path, name, value):
    with pytest.raises((ValueError, TypeError), match=name):
        reverie.Server([Table.queue("q", 10)], listen=False, disk=tmp_path, **{name: value})
