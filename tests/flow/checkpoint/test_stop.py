"""The end of a server, and of one that could not be made: its folders are free again, whatever went wrong."""

import os
import threading

import numpy as np
import pytest

import reverie
from reverie import Journal, Server, Table, TensorSpec, checkpointers, selectors

MEMORY = 2 << 20


def tables(dtype=np.int64):
    return [Table("t", selectors.Fifo(), selectors.Fifo(), 100, signature={"x": TensorSpec((), dtype)})]


class Checkpoints:
    """A server's checkpoints, one of whose calls does something else first."""

    def __init__(self, server, call, first):
        self._of = server._checkpoints
        setattr(self, call, self._after(first, getattr(self._of, call)))
        server._checkpoints = self

    @staticmethod
    def _after(first, then):
        def called():
            first()
            return then()

        return called

    def __getattr__(self, name):
        return getattr(self._of, name)


@pytest.fixture
def journaled(tmp_path):
    """Makes servers with one journal and one disk tier."""

    def make(dtype=np.int64):
        options = {"journal": Journal(tmp_path / "journal"), "disk": tmp_path / "disk", "memory_bytes": MEMORY}
        return Server(tables(dtype), listen=False, **options)

    return make


def fill(server):
    server.client().insert_batch("t", {"x": np.arange(5)})


def test_a_server_that_could_not_be_made_frees_its_folders_while_its_error_lives(journaled):
    with journaled() as server:
        fill(server)
    with pytest.raises(reverie.SignatureError) as raised:
        journaled(np.float32)
    with journaled() as server:
        assert server.client().info().tables["t"].current_size == 5
    assert raised.value.__traceback__ is not None


def test_of_two_threads_that_stop_a_server_one_takes_the_last_checkpoint(tmp_path):
    server = Server(tables(), checkpointer=checkpointers.DefaultCheckpointer(tmp_path / "saved"), listen=False)
    fill(server)
    inside, go_on, paths = threading.Event(), threading.Event(), []

    def wait():
        inside.set()
        go_on.wait()

    Checkpoints(server, "save_last", wait)
    threads = [threading.Thread(target=lambda: paths.append(server.stop(checkpoint=True))) for _ in range(2)]
    threads[0].start()
    inside.wait()
    threads[1].start()
    assert not paths
    go_on.set()
    for thread in threads:
        thread.join()
    assert paths == [os.fspath(next((tmp_path / "saved").glob("*.checkpoint"))), None]


def test_a_stop_within_a_stop_as_of_a_signal_handler_returns(tmp_path):
    server, inner = Server(tables(), listen=False), []
    Checkpoints(server, "stop", lambda: inner.append(server.stop()))
    server.stop()
    assert inner == [None]


def test_ctrl_c_while_a_server_stops_leaves_it_its_last_checkpoint(tmp_path):
    server = Server(tables(), checkpointer=checkpointers.DefaultCheckpointer(tmp_path / "saved"), listen=False)
    fill(server)

    def interrupt():
        raise KeyboardInterrupt

    Checkpoints(server, "stop", interrupt)
    with pytest.raises(KeyboardInterrupt):
        server.stop(checkpoint=True)
    with Server(tables(), checkpointer=checkpointers.DefaultCheckpointer(tmp_path / "saved"), listen=False) as again:
        assert again.client().info().tables["t"].current_size == 5


@pytest.mark.parametrize("call", ["stop", "save_last", "end_journal"])
def test_an_error_in_a_stop_leaves_no_folder_held(journaled, call):
    server = journaled()
    fill(server)

    def refuse():
        raise KeyboardInterrupt

    Checkpoints(server, call, refuse)
    with pytest.raises(KeyboardInterrupt):
        server.stop(checkpoint=True)
    assert server.wait(0)
    with pytest.raises(reverie.ClosedError):
        fill(server)
    with journaled() as again:
        assert again.client().info().tables["t"].current_size == 5
