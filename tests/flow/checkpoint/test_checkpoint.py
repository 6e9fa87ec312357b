"""Checkpoints from Python: what a server saves, restores and logs."""

import contextlib
import gc
import logging
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import reverie
from reverie import Server, Table, TensorSpec, checkpointers, rate_limiters, selectors
from reverie.checkpointers import CheckpointerBase, DefaultCheckpointer, TempDirCheckpointer
from reverie.errors import DamagedError, StorageError

#: The kernel refuses new folders there.
NO_FOLDER = "/proc/reverie-checkpoints"


def per(max_size=100, **options):
    options = {"sampler": selectors.Prioritized(0.6, seed=3), "remover": selectors.Fifo(), **options}
    return Table("per", max_size=max_size, **options)


def tables(**options):
    return [per(**options), Table.queue("queue", 10)]


@pytest.fixture
def begin(tmp_path):
    """Starts a server whose checkpoints are in one folder: `begin(tables, restore_config=..., keep=...)`."""
    servers = []

    def begin(given=None, *, restore_config="constructor", **options):
        checkpointer = DefaultCheckpointer(tmp_path / "saved", **options)
        server = Server(
            tables() if given is None else given, None, checkpointer, listen=False, restore_config=restore_config
        )
        servers.append(server)
        return server

    yield begin
    for server in servers:
        server.stop()


def fill(client, count=20):
    data = {"obs": np.arange(3 * count, dtype=np.float32).reshape(count, 3), "name": np.array(["ab"] * count)}
    return client.insert_batch("per", data, priorities=np.arange(float(count)))


def test_items_come_back_under_their_keys_with_all_that_the_table_knew(begin, tmp_path, caplog):
    with begin() as server:
        client = server.client()
        keys = fill(client)
        client.update_priorities("per", keys[:4], np.full(4, 7.0))
        client.sample_batch("per", 9)
        client.insert_batch("queue", np.arange(5))
        want, info = client.get("per", keys), client.server_info()["per"]
        path = client.checkpoint()
    assert os.path.dirname(path) == str(tmp_path / "saved")
    with caplog.at_level(logging.INFO, "reverie"), begin() as server:
        client = server.client()
        got = client.get("per", keys)
        np.testing.assert_array_equal(got.data["obs"], want.data["obs"])
        np.testing.assert_array_equal(got.data["name"], want.data["name"])
        for field in ("priority", "times_sampled", "version"):
            np.testing.assert_array_equal(getattr(got.info, field), getattr(want.info, field))
        again = client.server_info()["per"]
        assert again.rate_limiter_info.insert_stats.completed == info.rate_limiter_info.insert_stats.completed
        assert again.rate_limiter_info.sample_stats.completed == 9
        assert client.sample_batch("queue", 5).data.tolist() == [0, 1, 2, 3, 4]
    (line,) = [record for record in caplog.records if "restored" in record.message]
    assert line.levelno == logging.INFO
    assert path in line.message
    assert "20 items of 'per', 5 items of 'queue'" in line.message


def test_trajectories_come_back_with_their_shared_chunks_and_the_open_chunk_as_far_as_it_was(begin):
    with begin() as server, server.client() as client, client.trajectory_writer(5) as writer:
        for step in range(13):
            writer.append({"x": np.full(3, step, np.int16), "y": float(step)})
            if step >= 4:
                item = {"x": writer.history["x"][-4:], "last": writer.history["y"][-1]}
                writer.create_item("per", 1.0, item)
        writer.flush()
        client.checkpoint()
        # Behind the checkpoint.
        writer.append({"x": np.full(3, 99, np.int16), "y": 99.0})
    with begin() as server, server.client() as client:
        batch = client.sample_batch("per", 50)
        assert batch.data["x"].shape == (50, 4, 3)
        np.testing.assert_array_equal(batch.data["x"][:, -1, 0], batch.data["last"])
        assert batch.data["last"].max() <= 12
        assert client.server_info()["per"].num_episodes == 1


def test_items_over_several_episodes_count_for_each_of_them_as_before(begin):
    with begin() as server, server.client() as client, client.trajectory_writer(6) as writer:
        for step in range(6):
            writer.append({"x": float(step)})
            if step % 2:
                writer.end_episode(clear_buffers=False)
        writer.create_item("per", 1.0, {"x": writer.history["x"][-5:-1]})
        writer.create_item("per", 1.0, {"x": writer.history["x"][-6:-4]})
        writer.flush()
        client.checkpoint()
    with begin() as server, server.client() as client:
        counted = []
        for key in [None, *client.query("per").key]:
            client.delete("per", [] if key is None else [key])
            info = client.server_info()["per"]
            counted.append((info.num_episodes, info.num_deleted_episodes))
        assert counted == [(3, 0), (1, 2), (0, 3)]


def test_the_constructors_options_apply_and_the_log_names_each_difference_in_one_line(begin, caplog):
    with begin() as server:
        keys = fill(server.client())
        server.client().checkpoint()
    with caplog.at_level(logging.INFO, "reverie"), begin([per(max_size=8, max_times_sampled=2)]) as server:
        client = server.client()
        assert server.client().server_info()["per"].current_size == 8
        assert client.get("per", keys[12:]).info.key.tolist() == keys[12:].tolist()
        assert client.server_info()["per"].max_times_sampled == 2
    (line,) = [record for record in caplog.records if "restored" in record.message]
    assert line.levelno == logging.WARNING
    for words in (
        "table 'per': max_size is 8, the checkpoint's was 100",
        "table 'per': max_times_sampled is 2, the checkpoint's was 0",
        "table 'per': 12 items beyond its limits were removed by its remover",
        "table 'queue': its 0 items were left out, as the server has no such table",
    ):
        assert words in line.message


def test_the_insertion_order_is_restored_and_continued(begin):
    with begin() as server:
        client = server.client()
        keys = fill(client, 3)
        client.checkpoint()
    with begin() as server:
        client = server.client()
        client.update_priorities("per", keys[2:], [8.0], neighbours=(2, 0.5))
        assert client.get("per", keys).info.priority.tolist() == [2.0, 4.0, 8.0]
        late = fill(client, 2)  # Another writer: no item of the checkpoint precedes its items.
        client.update_priorities("per", late[:1], [80.0], neighbours=(2, 0.5))
        assert client.get("per", keys).info.priority.tolist() == [2.0, 4.0, 8.0]


def test_restore_config_checkpoint_takes_every_option_from_the_checkpoint(begin):
    signature = {"obs": TensorSpec((None, 3), np.float32), "name": (TensorSpec((), "str"), TensorSpec((), "bytes"))}
    odd = Table(
        "odd",
        sampler=selectors.Prioritized(0.25, stratified=True),
        remover=selectors.MinHeap(),
        max_size=77,
        rate_limiter=rate_limiters.SampleToInsertRatio(2.0, 3, error_buffer=10.0),
        signature=signature,
        max_bytes=1 << 20,
        compression="zstd",
    )
    with begin([odd, Table.queue("queue", 10)]) as server:
        server.client().insert_batch("queue", np.arange(5))
        server.client().checkpoint()
    mine = Table("queue", selectors.Lifo(), selectors.Lifo(), 1)
    with begin([mine], restore_config="checkpoint") as server:
        queue, restored = server.tables
        assert server.client().sample_batch("queue", 2).data.tolist() == [0, 1]
        assert mine.info.max_size == 10, "the table that was given is a view of the one there"
    assert (queue.max_size, queue.max_times_sampled, queue.rate_limiter.max_diff) == (10, 1, 10.0)
    for name in ("sampler", "remover", "max_size", "signature", "max_bytes", "compression"):
        assert getattr(restored, name) == getattr(odd, name), name
    limits = [(limiter.min_diff, limiter.max_diff) for limiter in (restored.rate_limiter, odd.rate_limiter)]
    assert limits[0] == limits[1]


def test_items_that_a_signature_does_not_allow_are_refused_and_no_server_starts(begin):
    with begin() as server:
        fill(server.client())
        server.client().checkpoint()
    with pytest.raises(reverie.SignatureError, match="obs"):
        begin([per(signature={"name": TensorSpec((), "str"), "obs": TensorSpec((3,), np.float64)})])


def test_a_damaged_checkpoint_is_named_and_no_server_starts(begin, tmp_path):
    with begin() as server:
        fill(server.client())
        server.client().checkpoint()
    (segment,) = (tmp_path / "saved").glob("*.segment")
    bytes_ = bytearray(segment.read_bytes())
    bytes_[len(bytes_) // 2] ^= 1
    segment.write_bytes(bytes_)
    with pytest.raises(DamagedError) as caught:
        begin()
    assert caught.value.path == str(segment)
    assert 0 < caught.value.offset <= len(bytes_) // 2
    assert caught.value.what in str(caught.value)
    clone = pickle.loads(pickle.dumps(caught.value))
    assert (clone.path, clone.offset, clone.what) == (caught.value.path, caught.value.offset, caught.value.what)


def test_a_folder_that_cannot_be_made_or_read_is_a_storage_error(tmp_path):
    with (
        Server(tables(), None, DefaultCheckpointer(NO_FOLDER), listen=False) as server,
        pytest.raises(StorageError) as caught,
    ):
        server.client().checkpoint()
    assert isinstance(caught.value, OSError)
    assert (caught.value.path, caught.value.action) == (NO_FOLDER, "make the folder")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="cannot list"):
        Server(tables(), None, DefaultCheckpointer(tmp_path / "file"), listen=False)


def test_keep_bounds_the_checkpoints_and_only_new_chunks_are_written(begin, tmp_path):
    with begin(keep=3) as server:
        client = server.client()
        client.insert_batch("per", np.random.default_rng(0).random((50, 10_000), np.float32))
        sizes = []
        for _ in range(5):
            client.checkpoint()
            sizes.append(sum(file.stat().st_size for file in (tmp_path / "saved").glob("*.segment")))
        assert len(list((tmp_path / "saved").glob("*.checkpoint"))) == 3
        assert sizes == [sizes[0]] * 5, "two megabytes once, and nothing again"
        assert sizes[0] > 2_000_000


def test_a_server_that_starts_from_a_checkpoint_does_not_write_its_chunks_again(begin, tmp_path):
    with begin() as server:
        server.client().insert_batch("per", np.random.default_rng(0).random((50, 10_000), np.float32))
        server.client().checkpoint()
    with begin() as server:
        server.client().checkpoint()
    assert sum(file.stat().st_size for file in (tmp_path / "saved").glob("*.segment")) < 2_100_000


def test_the_fallback_is_restored_only_while_the_folder_has_none(begin, tmp_path):
    with begin() as server:
        keys = fill(server.client())
        path = server.client().checkpoint()
    other = DefaultCheckpointer(tmp_path / "other", fallback_checkpoint_path=path)
    with Server(tables(), None, other, listen=False) as server:
        client = server.client()
        assert client.server_info()["per"].current_size == 20
        client.delete("per", keys[:15])
        client.checkpoint()
    shutil.rmtree(tmp_path / "saved")
    with Server(tables(), None, other, listen=False) as server:
        assert server.client().server_info()["per"].current_size == 5
    with pytest.raises(DamagedError, match="missing"):
        Server(tables(), None, DefaultCheckpointer(tmp_path / "third", "", path), listen=False)


def test_without_a_checkpointer_checkpoints_go_to_a_temporary_folder_that_outlives_the_server():
    with Server(tables(), listen=False) as server:
        fill(server.client())
        path = server.client().checkpoint()
    root = path.rsplit("/", 1)[0]
    try:
        assert os.stat(root).st_mode & 0o077 == 0, "for this user alone"
        with Server(tables(), checkpointer=DefaultCheckpointer(root), listen=False) as server:
            assert server.client().server_info()["per"].current_size == 20
    finally:
        shutil.rmtree(root)


def test_a_client_that_outlives_the_server_object_still_takes_checkpoints(tmp_path):
    client = Server(tables(), None, DefaultCheckpointer(tmp_path / "saved"), listen=False).client()
    gc.collect()
    assert os.path.dirname(client.checkpoint()) == str(tmp_path / "saved")


def test_one_server_at_a_time_saves_in_a_folder(begin):
    first = begin()
    first.client().checkpoint()
    second = begin()
    with pytest.raises(StorageError, match="another server saves there"):
        second.client().checkpoint()
    first.stop()
    with pytest.raises(reverie.ClosedError):
        first.client().checkpoint()
    second.client().checkpoint()


@pytest.mark.parametrize("fallback", [False, True])
def test_a_server_that_found_an_empty_folder_does_not_replace_the_checkpoint_that_another_one_took(tmp_path, fallback):
    with Server(tables(), checkpointer=DefaultCheckpointer(tmp_path / "old"), listen=False) as server:
        old = server.client().checkpoint()
    saved, fall_back = tmp_path / "saved", DefaultCheckpointer(tmp_path / "saved", "", old, keep=1)
    with Server(tables(), checkpointer=fall_back if fallback else DefaultCheckpointer(saved), listen=False) as first:
        with Server(tables(), checkpointer=DefaultCheckpointer(saved, keep=1), listen=False) as second:
            keys = second.client().insert_batch("per", {"x": np.arange(5.0)})
            second.stop(checkpoint=True)
        with pytest.raises(StorageError, match="another server took a checkpoint there"):
            first.client().checkpoint()
        with Server(tables(), checkpointer=DefaultCheckpointer(saved, keep=1), listen=False) as third:
            assert third.client().get("per", keys).data["x"].shape == (5,)
            third.client().checkpoint()


def test_a_checkpoint_at_a_stop_has_all_confirmed_inserts(begin, until, tmp_path):
    server, reported, ended = begin([per(max_size=10**7)]), [], threading.Event()
    client = server.client()

    def insert():
        with contextlib.suppress(reverie.ClosedError):
            while True:
                reported.extend(client.insert_batch("per", {"x": np.zeros(3)}).tolist())
        ended.set()

    threading.Thread(target=insert, daemon=True).start()
    until(lambda: len(reported) > 30)
    path = server.stop(checkpoint=True)
    until(ended.is_set)
    assert [path] == [str(found) for found in (tmp_path / "saved").glob("*.checkpoint")]
    assert server.stop(checkpoint=True) is None
    again = begin([per(max_size=10**7)])
    assert again.client().query("per").key.tolist() == reported


def test_a_server_that_takes_no_checkpoint_makes_no_folder():
    checkpointer = TempDirCheckpointer()
    with Server(tables(), checkpointer=checkpointer, listen=False):
        pass
    assert not os.path.exists(checkpointer.path)
    assert checkpointer.path != TempDirCheckpointer().path


def test_periodic_checkpoints_end_with_the_server(begin, tmp_path):
    folder = tmp_path / "saved"
    server = begin(period=0.001)
    fill(server.client())
    taken = threading.Event()

    def watch():
        while not any(name.endswith(".checkpoint") for name in (os.listdir(folder) if folder.exists() else ())):
            pass
        taken.set()

    threading.Thread(target=watch, daemon=True).start()
    assert taken.wait(200)
    server.stop()
    numbers = sorted(os.listdir(folder))
    assert not any(name.endswith(".unfinished") for name in numbers)
    assert [thread for thread in os.listdir("/proc/self/task") if _name(thread) == "checkpoints"] == []
    assert sorted(os.listdir(folder)) == numbers


def _name(thread):
    try:
        with open(f"/proc/self/task/{thread}/comm") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def test_a_failed_periodic_checkpoint_is_logged(caplog):
    seen = threading.Event()

    class Watch(logging.Handler):
        def emit(self, record):
            seen.set()

    logger, watch = logging.getLogger("reverie"), Watch()
    logger.addHandler(watch)
    try:
        with Server(tables(), checkpointer=DefaultCheckpointer(NO_FOLDER, period=0.001), listen=False):
            assert seen.wait(200)
    finally:
        logger.removeHandler(watch)
    assert "the periodic checkpoint: cannot make the folder" in caplog.text


KILLED = """
import os, signal, sys, numpy as np
from reverie import Server, Table, selectors
from reverie.checkpointers import DefaultCheckpointer
table = Table("t", selectors.Fifo(), selectors.Fifo(), 1000)
server = Server([table], checkpointer=DefaultCheckpointer(sys.argv[1], period=0.002), listen=False)
client = server.client()
for value in range(10**9):
    client.insert_batch("t", np.full((10, 100), value))
    if value == 20:
        print(client.checkpoint(), flush=True)
"""


def test_a_process_that_is_killed_leaves_a_checkpoint_that_restores(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path / "saved"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    table = Table("t", selectors.Fifo(), selectors.Fifo(), 1000)
    with Server([table], checkpointer=DefaultCheckpointer(tmp_path / "saved"), listen=False) as server:
        assert table.info.current_size >= 200
        batch = server.client().sample_batch("t", 1)
        assert len(set(batch.data[0].tolist())) == 1
        server.client().checkpoint()
    assert not [name for name in os.listdir(tmp_path / "saved") if name.endswith(".unfinished")]


def test_invalid_arguments_are_refused_by_name(tmp_path):
    for wrong, words in (
        (lambda: DefaultCheckpointer(""), "path"),
        (lambda: DefaultCheckpointer(tmp_path, "staff"), "group"),
        (lambda: checkpointers.default_checkpointer("staff"), "group"),
        (lambda: DefaultCheckpointer(tmp_path, keep=0), "keep"),
        (lambda: DefaultCheckpointer(tmp_path, max_age=0), "max_age"),
        (lambda: DefaultCheckpointer(tmp_path, period=-1), "period"),
        (lambda: TempDirCheckpointer(period=float("nan")), "period"),
        (lambda: Server(tables(), listen=False, restore_config="both"), "restore_config"),
    ):
        with pytest.raises(ValueError, match=words):
            wrong()
    with pytest.raises(TypeError, match="checkpointer"):
        Server(tables(), None, str(tmp_path), listen=False)


def test_checkpointers_are_options_that_pickle_by_value_and_have_their_ported_import_path(tmp_path):
    from reverie.platform import checkpointers_lib

    assert checkpointers_lib.DefaultCheckpointer is DefaultCheckpointer
    assert isinstance(checkpointers_lib.default_checkpointer(), CheckpointerBase)
    one = DefaultCheckpointer(tmp_path / "a", keep=4, max_age=5.0, period=6.0)
    assert repr(pickle.loads(pickle.dumps(one))) == repr(one)
    temporary = TempDirCheckpointer(keep=7)
    assert repr(pickle.loads(pickle.dumps(temporary))) == repr(temporary)
    assert "keep=7" in repr(temporary)


def test_a_caller_may_stop_waiting_for_a_checkpoint_and_it_is_still_written(begin, until, tmp_path):
    client = begin(keep=2).client()
    with pytest.raises(reverie.DeadlineExceededError, match=r"checkpoint: the timeout passed; .* it continues"):
        client.checkpoint(timeout=0)
    # The next one is another: one waits for the other, whichever began.
    client.checkpoint(timeout=200.0)
    until(lambda: {"0000000001.checkpoint", "0000000002.checkpoint"} <= set(os.listdir(tmp_path / "saved")))
