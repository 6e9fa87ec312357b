"""The end of a server, and of one that could not be made: its folders are free again, whatever went wrong."""

import contextlib
import logging
import os
import signal
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


def test_one_of_two_threads_that_stop_a_server_takes_the_last_checkpoint(tmp_path):
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


class ReadFolder(logging.Handler):
    """A command that reads a folder, as its lock shows. It ends when the log has had these parts, in this order.

    At each of them its call is made, in the thread that logs. If that raises, the command goes on until `reading` ends.
    """

    def __init__(self, folder, *reports):
        super().__init__()
        self._lock_file, self.reports, self._reader = folder / "lock", list(reports), None

    def emit(self, record):
        if self.reports and self.reports[0][0] in record.getMessage():
            self.reports.pop(0)[1]()
            if not self.reports:
                self._end()

    def _end(self):
        if self._reader is not None:
            os.close(self._reader)
            self._reader = None

    @contextlib.contextmanager
    def reading(self):
        fcntl = pytest.importorskip("fcntl")
        self._lock_file.parent.mkdir(exist_ok=True)
        self._reader = os.open(self._lock_file, os.O_CREAT | os.O_RDONLY, 0o600)
        fcntl.flock(self._reader, fcntl.LOCK_SH)
        logger = logging.getLogger("reverie")
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)
            self._end()


def nothing():
    pass


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


def test_a_server_with_a_journal_waits_for_a_command_that_reads_its_folder_and_logs_that(journaled, tmp_path):
    with journaled() as server:
        fill(server)
    read = ReadFolder(tmp_path / "journal", ("is read by a command", nothing))
    with read.reading(), journaled() as server:
        assert server.client().info().tables["t"].current_size == 5
    assert not read.reports


def test_ctrl_c_ends_the_wait_of_a_server_for_a_command_that_reads_its_folder(journaled, tmp_path):
    read = ReadFolder(tmp_path / "journal", ("is read by a command", ctrl_c))
    with read.reading(), pytest.raises(KeyboardInterrupt):
        journaled()
    journaled().stop()


@pytest.mark.parametrize("twice", [False, True])
def test_ctrl_c_during_the_last_checkpoint_is_raised_after_it_and_a_second_one_gives_it_up(tmp_path, twice):
    saved = checkpointers.DefaultCheckpointer(tmp_path / "saved")
    server = Server(tables(), checkpointer=saved, listen=False)
    fill(server)
    # The checkpoint waits for the reader of its folder.
    then = ctrl_c if twice else nothing
    read = ReadFolder(tmp_path / "saved", ("is read by a command", ctrl_c), ("Ctrl-C again gives it up", then))
    with read.reading(), pytest.raises(KeyboardInterrupt):
        server.stop(checkpoint=True)
    assert server.wait(0)
    assert not read.reports
    assert bool(list((tmp_path / "saved").glob("*.checkpoint"))) is not twice


def test_a_last_checkpoint_that_fails_after_ctrl_c_is_the_cause_of_the_interrupt(tmp_path):
    saved = checkpointers.DefaultCheckpointer(tmp_path / "saved")
    server = Server(tables(), checkpointer=saved, listen=False)
    fill(server)
    of_another_server = tmp_path / "saved" / "0000000009.checkpoint"
    read = ReadFolder(
        tmp_path / "saved", ("is read by a command", ctrl_c), ("Ctrl-C again gives it up", of_another_server.touch)
    )
    with read.reading(), pytest.raises(KeyboardInterrupt) as caught:
        server.stop(checkpoint=True)
    assert isinstance(caught.value.__cause__, reverie.StorageError)
