"""Behaviour that single carriers of parameters have and others do not: limits, errors, and other processes."""

import contextlib
import multiprocessing
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import reverie
from reverie import Server, Table, selectors
from reverie.parameters import FileChannel, LocalChannel, TableChannel, Version, file, table
from reverie.testing import serve

PATIENT = 200.0


def arrays(value):
    return {"w": np.full(3, value, np.float32)}


def test_the_module_needs_neither_torch_nor_ray():
    code = "import sys, reverie.parameters; print([name for name in ('torch', 'ray') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Threads.


def test_a_local_channel_is_for_one_process():
    channel = LocalChannel()
    with pytest.raises(TypeError, match="between processes use a FileChannel, a TableChannel or a RayChannel"):
        pickle.dumps(channel)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        text = b"nothing raised"
        try:
            channel.subscriber().get()
        except reverie.ForkedError as error:
            text = str(error).encode()
        os.write(writing, text)
        os._exit(0)
    os.waitpid(child, 0)
    assert b"does not reach a forked child process" in os.read(reading, 1000)


# A file, and processes.


def _answer(asked, answers):
    """Publish what was received, times ten."""
    got = asked.subscriber().get(timeout=PATIENT)
    answers.publisher().publish({"w": got.arrays["w"] * 10}, got.version.number)


@pytest.mark.parametrize("carrier", ["file", "table"])
def test_parameters_reach_another_process(tmp_path, carrier):
    with contextlib.ExitStack() as stack:
        if carrier == "file":
            channels = [FileChannel(str(tmp_path / name)) for name in ("asked", "answers")]
        else:
            server = stack.enter_context(Server([table("asked"), table("answers")]))
            channels = [TableChannel(reverie.Client(server.address), name) for name in ("asked", "answers")]
        other = multiprocessing.get_context("forkserver").Process(target=_answer, args=tuple(channels))
        other.start()
        channels[0].publisher().publish(arrays(4), number=17)
        answer = channels[1].subscriber().get(timeout=PATIENT)
        assert (answer.version, answer.arrays["w"].tolist()) == (Version(0, 17), [40.0] * 3)
        other.join()


@pytest.mark.parametrize("content", [b"", b"RVPARAM", b"x" * 100])
def test_a_file_without_parameters_is_refused_by_its_name(tmp_path, content):
    path = tmp_path / "weights"
    path.write_bytes(content)
    with pytest.raises(reverie.DamagedError, match=r"file '.*weights' has no parameters") as caught:
        FileChannel(path).subscriber().latest()
    assert caught.value.path == str(path)


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    path = tmp_path / "weights"
    FileChannel(path).publisher().publish({"w": np.ones(100), "b": np.ones(3)})
    whole = path.read_bytes()
    for size in (32, 40, 200, len(whole) - 64):
        path.write_bytes(whole[:size])
        with pytest.raises(reverie.DamagedError, match="has no parameters: it is cut off"):
            FileChannel(path).subscriber().latest()


@pytest.mark.parametrize(
    "listed",
    [
        b"[[",
        b"5",
        b"[5]",
        b'[["w", "float32"]]',
        b'[["w", "no", [1]]]',
        b'[["w", "float32", [-1]]]',
        b'[["w", "float32", "x"]]',
    ],
)
def test_a_file_whose_list_of_arrays_is_damaged_is_refused(tmp_path, listed):
    path = tmp_path / "weights"
    head = b"RVPARAM1" + np.array([0, 0, len(listed)], np.int64).tobytes()
    path.write_bytes(head + listed + bytes(100))
    with pytest.raises(reverie.DamagedError, match="has no parameters: its list of arrays is malformed"):
        FileChannel(path).subscriber().latest()


def test_a_publisher_that_is_superseded_while_it_writes_leaves_the_newer_parameters(tmp_path, monkeypatch):
    channel, write = FileChannel(tmp_path / "weights"), file._write

    def overtaken(draft, version, arrays_):
        write(draft, version, arrays_)
        if version.generation == 0:
            channel.publisher(1).publish(arrays(2))

    monkeypatch.setattr(file, "_write", overtaken)
    with pytest.raises(reverie.SupersededError):
        channel.publisher(0).publish(arrays(1))
    newest = channel.subscriber().get(timeout=PATIENT)
    assert (newest.version.generation, newest.arrays["w"][0]) == (1, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["weights", "weights.lock"]


def test_a_file_is_replaced_by_one_publisher_at_a_time_and_read_meanwhile(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    channel = FileChannel(tmp_path / "weights")
    channel.publisher(0).publish(arrays(1))
    with (tmp_path / "weights.lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(reverie.DeadlineExceededError, match=r"another publisher holds the lock .*weights\.lock"):
            channel.publisher(1).publish(arrays(2), timeout=0)
        assert channel.subscriber().latest().version.generation == 0
    channel.publisher(1).publish(arrays(3), timeout=0)
    assert channel.subscriber().latest().arrays["w"][0] == 3


def test_a_child_that_was_forked_while_a_publisher_held_the_lock_does_not_keep_it(tmp_path, monkeypatch):
    channel, replace, children = FileChannel(tmp_path / "weights"), os.replace, []
    reading, writing = os.pipe()

    def forking(*paths):
        children.append(os.fork())
        if children[-1] == 0:
            os.close(writing)
            os.read(reading, 1)  # until the parent has published
            os._exit(0)
        replace(*paths)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", forking)
        channel.publisher(0).publish(arrays(1))
    channel.publisher(1).publish(arrays(2), timeout=0)
    os.close(writing)
    os.close(reading)
    os.waitpid(children[0], 0)
    assert channel.subscriber().latest().arrays["w"][0] == 2


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    publisher = FileChannel(tmp_path / "missing" / "weights").publisher()
    with pytest.raises(FileNotFoundError, match=r"missing/weights\.0"):
        publisher.publish(arrays(1))
    with pytest.raises(TypeError, match="path must be a path, got 3"):
        FileChannel(3)


# A table of a server.


def test_the_table_keeps_the_newest_version_whichever_is_inserted_last():
    with serve([table()]) as client:
        channel = TableChannel(client)
        late, early = channel.carrier(), channel.carrier()
        late.put(Version(1, 0), arrays(2), None)
        # Both publishers have seen an older version, and insert at the same time.
        early.newest = lambda timeout: None
        with pytest.raises(reverie.SupersededError, match="already has version 0 of generation 1"):
            early.put(Version(0, 9), arrays(1), None)
        assert channel.subscriber().get(timeout=PATIENT).arrays["w"].tolist() == [2.0] * 3
        assert client.info().tables["parameters"].current_size == 1


def test_a_version_that_is_replaced_while_it_is_read_is_read_again():
    with serve([table()]) as client:
        channel = TableChannel(client)
        publisher, subscriber = channel.publisher(), channel.subscriber()
        publisher.publish(arrays(1))

        class Replacing:
            """A client during whose first `get` the version is replaced."""

            gets = 0

            def __getattr__(self, name):
                return getattr(client, name)

            def get(self, *args, **options):
                self.gets += 1
                if self.gets == 1:
                    publisher.publish(arrays(2))
                return client.get(*args, **options)

        subscriber._carrier._client = Replacing()
        got = subscriber.latest()
        assert (got.version, got.arrays["w"].tolist()) == (Version(0, 1), [2.0] * 3)


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": selectors.Fifo()},
        {"remover": selectors.Fifo()},
        {"max_size": 2},
        {"max_times_sampled": 1},
    ],
)
def test_a_table_that_does_not_keep_the_newest_version_is_refused(options):
    with serve([table("p").replace(**options)]) as client:
        channel = TableChannel(client, "p")
        for call in (channel.publisher, channel.subscriber().latest, lambda: channel.publisher(0).publish(arrays(1))):
            with pytest.raises(ValueError, match=r"make it with reverie\.parameters\.table\('p'\)"):
                call()


def test_a_table_that_is_missing_is_named_with_the_known_ones():
    with serve([table("mine")]) as client, pytest.raises(reverie.UnknownTableError) as caught:
        TableChannel(client, "theirs").subscriber().latest()
    assert (caught.value.name, caught.value.known) == ("theirs", ["mine"])


def test_a_client_of_several_servers_is_refused():
    uniform = Table("t", selectors.Uniform(), selectors.Fifo(), max_size=10)
    with serve([uniform], "two-shards") as client, pytest.raises(ValueError, match="must be of one server, got 2"):
        TableChannel(client)
    with pytest.raises(TypeError, match=r"client must be a reverie\.Client, got a str"):
        TableChannel("localhost:8000")


def test_a_table_with_a_signature_refuses_other_parameters():
    with serve([table(like=arrays(0))]) as client:
        publisher = TableChannel(client).publisher()
        with pytest.raises(reverie.SignatureError) as caught:
            publisher.publish({"w": np.zeros(4, np.float32)})
        assert caught.value.path == "w"
        publisher.publish(arrays(1))


def test_a_server_that_restarts_has_parameters_from_the_next_publication_on():
    with Server([table()]) as server:
        port = server.port
        client = reverie.Client(server.address, transport="grpc", patience=PATIENT)
        channel = TableChannel(client)
        publisher, subscriber = channel.publisher(), channel.subscriber()
        publisher.publish(arrays(1), number=5)
        first = subscriber.get(timeout=PATIENT)
    with Server([table()], port):
        with pytest.raises(reverie.DeadlineExceededError, match="no parameters were published to table 'parameters'"):
            subscriber.get(newer_than=first.version, timeout=1.0)
        publisher.publish(arrays(2))
        assert subscriber.get(newer_than=first.version, timeout=PATIENT).version == Version(0, 6)


def test_a_subscriber_does_not_go_back_to_the_older_version_of_a_restored_table():
    with Server([table()], listen=False) as server:
        client = server.client()
        channel = TableChannel(client)
        publisher, subscriber = channel.publisher(), channel.subscriber()
        publisher.publish(arrays(1), number=5)
        publisher.publish(arrays(2))
        assert subscriber.get(timeout=PATIENT).version == Version(0, 6)
        client.reset("parameters")
        channel.carrier().put(Version(0, 5), arrays(1), None)
        with pytest.raises(reverie.DeadlineExceededError, match=r"are version 5 .* has received version 6 of gener"):
            subscriber.get(timeout=0)
        assert channel.subscriber().get(timeout=0).version == Version(0, 5)


def test_a_server_out_of_reach_is_an_error_and_no_wait():
    channel = TableChannel(reverie.Client("localhost:1", patience=0.2))
    for call in (channel.publisher, channel.subscriber().latest, channel.subscriber().get):
        with pytest.raises(reverie.UnavailableError):
            call()


def test_a_version_is_on_the_disk_before_the_file_is_replaced(tmp_path, monkeypatch):
    """A loss of power would otherwise leave the name with an empty file, which no publisher replaces."""
    path, order = tmp_path / "weights", []
    fsync, replace = os.fsync, os.replace

    def synced(handle):
        order.append(("synced", os.fstat(handle).st_size))
        fsync(handle)

    def replaced(draft, target):
        order.append(("replaced", os.stat(draft).st_size))
        replace(draft, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    FileChannel(path).publisher().publish({"w": np.ones(100)})
    size = path.stat().st_size
    assert order == [("synced", size), ("replaced", size)]
