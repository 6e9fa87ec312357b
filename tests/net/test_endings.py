"""Effects on one end of a connection when the other end stops, is killed or is silent."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import reverie
from reverie.testing import ServerProcess


def test_an_unreachable_server_is_named_with_the_call(connect):
    client = connect("127.0.0.1:1", transport="grpc", patience=0.2)
    with pytest.raises(reverie.UnavailableError, match=r"127\.0\.0\.1:1 .*sampling from 't'") as raised:
        client.sample_batch("t", 1)
    assert isinstance(raised.value, ConnectionError)


def test_a_deadline_holds_without_a_server(connect):
    client = connect("127.0.0.1:1", transport="grpc", patience=1000.0, grace=0.05)
    with pytest.raises(reverie.DeadlineExceededError, match=r"127\.0\.0\.1:1 could not be reached"):
        client.sample_batch("t", 1, timeout=0.1)


#: Every call that asks the server for something.
CALLS = {
    "can_insert": lambda client, **timeout: client.can_insert("t", **timeout),
    "can_sample": lambda client, **timeout: client.can_sample("t", **timeout),
    "checkpoint": lambda client, **timeout: client.checkpoint(**timeout),
    "configure": lambda client, **timeout: client.configure("t", max_size=9, **timeout),
    "delete": lambda client, **timeout: client.delete("t", [1], **timeout),
    "delete where": lambda client, **timeout: client.delete("t", where=[("age", ">", 1.0)], **timeout),
    "get": lambda client, **timeout: client.get("t", [1], **timeout),
    "info": lambda client, **timeout: client.info(**timeout),
    "insert": lambda client, **timeout: client.insert({"n": 1}, {"t": 1.0}, **timeout),
    "insert_batch": lambda client, **timeout: client.insert_batch("t", {"n": np.zeros(3)}, **timeout),
    "mutate_priorities": lambda client, **timeout: client.mutate_priorities("t", {1: 1.0}, **timeout),
    "query": lambda client, **timeout: client.query("t", **timeout),
    "reset": lambda client, **timeout: client.reset("t", **timeout),
    "sample": lambda client, **timeout: next(client.sample("t", **timeout)),
    "batches": lambda client, **timeout: next(client.batches("t", 2, **timeout)),
    "server_info": lambda client, **timeout: client.server_info(**timeout),
    "trajectory_writer": lambda client, **timeout: client.trajectory_writer(2, **timeout),
    "transition_writer": lambda client, **timeout: client.transition_writer("t", **timeout),
    "update_priorities": lambda client, **timeout: client.update_priorities("t", [1], [1.0], **timeout),
    "why": lambda client, **timeout: client.why("t", **timeout),
    "windows": lambda client, **timeout: next(client.windows("t", 2, 2, **timeout)),
}


@pytest.fixture
def silent():
    """The address of what takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("name", CALLS)
def test_the_timeout_of_every_call_is_a_deadline_error_where_the_server_is_silent(silent, connect, name):
    client = connect(silent, transport="grpc", patience=1000.0, grace=0.01)
    with pytest.raises(reverie.DeadlineExceededError, match=silent):
        CALLS[name](client, timeout=0.05)


def test_a_deadline_that_passes_while_the_first_connection_is_being_made_is_no_lost_server(connect):
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # fill its queue: the next connection waits
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        client = connect(address, transport="grpc", patience=1000.0, grace=0.01)
        with pytest.raises(reverie.DeadlineExceededError, match=address):
            client.sample_batch("t", 1, timeout=0)


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"sample", "batches", "windows"}))
def test_a_negative_timeout_is_refused_even_without_a_wait(name, uniform):
    with (
        reverie.Server([uniform()], listen=False) as server,
        pytest.raises(ValueError, match="timeout must be None or at least 0 seconds, got -1"),
    ):
        CALLS[name](server.client(), timeout=-1)


def test_updates_with_wait_false_time_out_when_too_many_are_unanswered(silent, connect):
    client = connect(silent, transport="grpc", patience=1000.0, grace=0.01)
    for _ in range(1024):
        assert client.update_priorities("t", [1], [1.0], wait=False) is None
    with pytest.raises(
        reverie.DeadlineExceededError, match=f"earlier ones with wait=False are not answered; .*{silent}"
    ):
        client.update_priorities("t", [1], [1.0], wait=False, timeout=0.05)


@pytest.mark.parametrize("name", ["insert_batch", "info", "why", "can_sample", "update_priorities", "checkpoint"])
def test_a_deadline_error_has_the_time_and_the_reason_that_a_server_was_unreachable(connect, raises_with, name):
    words = r"the timeout passed; 127\.0\.0\.1:1 could not be reached for \d+\.\d s \(.*refused.*\); does a server run"
    options = {"transport": "grpc", "patience": 1000.0, "grace": 0.05}
    raises_with(
        reverie.DeadlineExceededError,
        words,
        lambda seconds: CALLS[name](connect("127.0.0.1:1", **options, timeout=seconds)),
    )


def test_a_deadline_applies_to_a_server_that_does_not_respond(own_host, connect, uniform):
    with own_host.serve([uniform()]) as address:
        client = connect(address, transport="grpc", grace=0.05, timeout=0.2)
        client.info(timeout=200)
        silent = pytest.raises(reverie.DeadlineExceededError, match=r"has not answered for \d+\.\d s; does the server")
        with own_host.suspended(), silent:
            client.info()


@pytest.mark.long
def test_a_killed_server_is_named_by_every_call_and_by_its_writers(network, own_host, connect, reached, uniform):
    with own_host.serve([uniform()]) as address:
        client = reached(connect(address, transport=network, patience=0.3))
        client.insert({"n": 1}, {"t": 1.0})
        writer = client.trajectory_writer(2)
        writer.append({"n": 1})
        own_host.process.send_signal(signal.SIGKILL)
        own_host.process.wait()
        for call in (
            lambda: client.sample_batch("t", 1),
            lambda: client.info(),
            lambda: client.update_priorities("t", [1], [1.0]),
            lambda: client.can_sample("t"),
        ):
            with pytest.raises(reverie.UnavailableError, match=address):
                call()
        writer.create_item("t", 1.0, writer.history["n"][-1])
        with pytest.raises(reverie.DeadlineExceededError, match=address):
            writer.flush(timeout=0.3)
        assert writer.num_in_flight == 1


@pytest.mark.long
@pytest.mark.parametrize("found_first", [False, True])
def test_after_a_restart_writers_warn_once_and_send_unconfirmed_items_again(
    network, own_host, connect, fifo, found_first
):
    with own_host.serve([fifo()]) as address:
        client = connect(address, transport=network)
        writer = client.trajectory_writer(2)
        for n in range(3):
            writer.append({"n": n})
            writer.create_item("t", 1.0, writer.history["n"][-1])
        writer.flush(timeout=200)
        own_host.process.send_signal(signal.SIGKILL)
        own_host.process.wait()
        writer.append({"n": 3})
        writer.create_item("t", 1.0, writer.history["n"][-1])
        second = ServerProcess()
        try:
            with second.serve([fifo()], port=int(address.rsplit(":", 1)[1])):
                if found_first:  # then `flush` warns, and otherwise the next call
                    client.server_info(timeout=200)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    writer.flush(timeout=200)
                    writer.append({"n": 4})
                assert [one.category for one in caught] == [reverie.ServerRestartedWarning]
                assert "found restarted" in str(caught[0].message)
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    writer.create_item("t", 1.0, writer.history["n"][-1])
                    writer.flush(timeout=200)
                assert client.sample_batch("t", 2, timeout=200).data.tolist() == [3, 4]
                info = client.info()
                assert (info.server_restarts, info.reconnects >= 1, info.connected) == (1, True, True)
                assert info.tables["t"].num_inserts == 2
        finally:
            second.close()


def test_a_server_suspended_by_a_signal_is_silent_and_continues_later(network, own_host, connect, uniform):
    with own_host.serve([uniform()]) as address:
        client = connect(address, transport=network, grace=0.05)
        client.insert({"n": 7}, {"t": 1.0}, timeout=200)
        late = pytest.raises(reverie.DeadlineExceededError, match=r"did not answer for .* sampling from 't'")
        with own_host.suspended(), late:
            client.sample_batch("t", 1, timeout=0.1)
        assert connect(address, transport=network).sample_batch("t", 1, timeout=200).data["n"].tolist() == [7]
        while True:
            try:
                assert client.sample_batch("t", 1, timeout=1).data["n"].tolist() == [7]
                break
            except (reverie.UnavailableError, reverie.DeadlineExceededError):
                continue


def test_clients_are_notified_when_the_server_stops(network, own_host, connect, reached, fifo):
    number, address = own_host._ask("make", ([fifo()], {}))
    client = reached(connect(address, transport=network, patience=0.3))
    errors = []

    def wait():
        try:
            client.sample_batch("t", 1)
        except reverie.ReplayError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while not client.why("t").samples:
        pass
    own_host.stop(number)
    thread.join(200)
    [error] = errors
    assert isinstance(error, reverie.ClosedError | reverie.UnavailableError)
    with pytest.raises(reverie.UnavailableError, match=address):
        client.can_sample("t")


def test_inserts_that_wait_at_a_stop_go_into_the_next_server(network, own_host, connect, fifo):
    full = reverie.Table.queue("t", 10)
    number, address = own_host._ask("make", ([full], {}))
    client = connect(address, transport=network)
    for n in range(50):
        client.insert_batch("t", {"n": np.array([n])}, wait=False, timeout=200)
    while len(client.why("t").inserts) == 0 or client.info().tables["t"].num_inserts < 10:
        pass
    own_host.stop(number)
    with pytest.raises(
        reverie.DeadlineExceededError, match="unconfirmed inserts are kept, and sent when the server is back"
    ):
        client.flush(timeout=0.5)
    with own_host.serve([fifo()], port=int(address.rpartition(":")[2])):
        client.flush(timeout=200)
        info = client.info(timeout=200)
        assert (info.unawaited_errors, info.tables["t"].num_inserts) == (0, 40)
        assert client.sample_batch("t", 40, timeout=200).data["n"].ravel().tolist() == list(range(10, 50))


CLIENT = """
import sys, numpy as np, reverie
phase, address, transport = sys.argv[1:]
client = reverie.Client(address, transport=transport, patience=100.0)
rows = {"x": np.zeros((64, 1000)), "n": np.arange(64)}
client.insert_batch("t", rows)
if phase == "sample":
    work = lambda: client.sample_batch("t", 32)
elif phase == "batches":
    batches = client.batches("t", 32, prefetch=4)
    work = lambda: next(batches)
elif phase == "insert":
    work = lambda: client.insert_batch("t", rows)
else:
    writer = client.trajectory_writer(4)
    def work():
        writer.append({"x": np.zeros(1000), "n": 1})
        writer.create_item("t", 1.0, {"x": writer.history["x"][-1], "n": writer.history["n"][-1]})
while True:
    for _ in range(20):
        work()
    print("going", flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("phase", ["sample", "batches", "insert", "write"])
def test_a_client_that_is_killed_leaves_the_server_to_the_others(network, own_host, connect, uniform, phase):
    with own_host.serve([uniform()]) as address:
        other = connect(address, transport=network)
        for round_ in range(2):
            child = subprocess.Popen(
                [sys.executable, "-c", CLIENT, phase, address, network], stdout=subprocess.PIPE, text=True
            )
            for _ in range(1 + round_):
                assert child.stdout.readline() == "going\n"
            child.kill()
            child.wait()
            child.stdout.close()
        batch = other.sample_batch("t", 64, timeout=200)
        assert not batch.data["x"].any()
        assert other.info().tables["t"].current_size <= 1000
        keys = other.insert_batch("t", {"x": np.ones((3, 1000)), "n": np.arange(3)}, timeout=200)
        assert other.get("t", keys).data["n"].tolist() == [0, 1, 2]


WAITS = """
import signal, sys, numpy as np, reverie
# A shell that runs the tests in its background has left Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
what, address, transport = sys.argv[1:]
if transport == "in-process":
    server = reverie.Server([reverie.Table.queue("q", 1)])
    client, address = server.client(), server.address
else:
    client = reverie.Client(address, transport=transport, patience=100.0)
client.can_sample("q")
print(address, flush=True)
try:
    if what == "sample":
        client.sample_batch("q", 1)
    elif what == "batches":
        next(client.batches("q", 1, prefetch=1))
    elif what == "insert":
        client.insert_batch("q", {"n": np.arange(3)})
    else:
        writer = client.trajectory_writer(1)
        for n in range(3):
            writer.append({"n": n})
            writer.create_item("q", 1.0, writer.history["n"][-1])
        writer.flush()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("what", ["sample", "batches", "insert", "flush"])
@pytest.mark.parametrize("transport", ["in-process", "shared-memory", "grpc"])
def test_ctrl_c_ends_every_wait(own_host, connect, transport, what, until):
    with own_host.serve([reverie.Table.queue("q", 1)]) as address:
        child = subprocess.Popen(
            [sys.executable, "-c", WAITS, what, address, transport], stdout=subprocess.PIPE, text=True
        )
        watcher = connect(child.stdout.readline().strip(), transport="grpc")
        until(lambda: watcher.why("q").samples or watcher.why("q").inserts)
        os.kill(child.pid, signal.SIGINT)
        assert child.stdout.read() == "interrupted\n"
        assert child.wait(200) == 0
        child.stdout.close()


def test_a_wait_for_a_servers_end_is_over_at_its_timeout_or_when_the_server_stops(uniform):
    with reverie.Server([uniform()], listen=False) as server:
        assert not server.wait(timeout=0)
        assert not server.wait(timeout=0.01)
        with pytest.raises(ValueError, match="timeout"):
            server.wait(timeout=-1)
        threading.Timer(0.01, server.stop).start()
        assert server.wait(timeout=200)
    assert server.wait()
