"""A killed server holds nothing, though a child that its process forked lives on."""

import contextlib
import gc
import os
import signal

import numpy as np
import pytest

import reverie


@pytest.fixture
def forked_server(new_port):
    """`forked_server(**options)`: a server in a process that has forked a child. Returns its port and a way to kill it.

    The child lives until the end of the test.
    """
    with contextlib.ExitStack() as ends:

        def start(**options):
            port = new_port()
            (forked, says_forked), (ended, end) = os.pipe(), os.pipe()
            process = os.fork()
            if process == 0:
                with contextlib.suppress(BaseException):
                    os.close(end)
                    server = reverie.Server([reverie.Table.queue("q", 100)], port=port, **options)
                    with server.client() as own:
                        own.insert_batch("q", np.arange(2))
                        if os.fork() == 0:
                            os.write(says_forked, b"x")
                            os.read(ended, 1)
                            os._exit(0)
                        os.read(ended, 1)
                os._exit(0)
            os.close(says_forked)
            ends.callback(os.close, end)
            killed = []

            def kill():
                if not killed:
                    os.kill(process, signal.SIGKILL)
                    os.waitpid(process, 0)
                    killed.append(True)

            ends.callback(kill)
            assert os.read(forked, 1) == b"x", "the server did not start"
            return port, kill

        yield start


def test_the_folders_and_ports_of_a_killed_server_are_free_at_once(tmp_path, new_port, forked_server):
    http = new_port()
    folders = {"journal": reverie.Journal(tmp_path / "j"), "disk": tmp_path / "d", "memory_bytes": 1 << 26}
    port, kill = forked_server(http=http, **folders)
    with pytest.raises(reverie.StorageError, match="another server"):
        reverie.Server([reverie.Table.queue("q", 100)], listen=False, **folders)
    kill()
    with reverie.Server([reverie.Table.queue("q", 100)], port=port, http=http, **folders) as server:
        assert server.client().info().tables["q"].current_size == 2


def test_clients_of_a_killed_server_notice_its_end_at_once(network, connect, forked_server):
    port, kill = forked_server()
    client = connect(f"localhost:{port}", transport=network, patience=0.2)
    assert client.info().tables["q"].current_size == 2
    kill()
    with pytest.raises(reverie.UnavailableError):
        client.info(timeout=200)


def test_a_child_that_drops_its_parents_objects_closes_no_descriptor_of_its_own(tmp_path):
    def client_alone():
        checkpointer = reverie.checkpointers.DefaultCheckpointer(tmp_path / "saved")
        server = reverie.Server([reverie.Table.queue("q", 100)], checkpointer=checkpointer, listen=False)
        client = server.client()
        client.checkpoint()
        return client

    client = client_alone()
    gc.collect()
    process = os.fork()
    if process == 0:
        with contextlib.suppress(BaseException):
            files = [(tmp_path / str(number)).open("w") for number in range(8)]
            del client
            gc.collect()
            for file in files:
                file.write("whole")
                file.flush()
        os._exit(0)
    os.waitpid(process, 0)
    assert [(tmp_path / str(number)).read_text() for number in range(8)] == ["whole"] * 8
    client.close()
