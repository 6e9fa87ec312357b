"""Network clients in Python: how they are made, shared and copied."""

import logging
import multiprocessing
import os
import pickle
import threading

import numpy as np
import pytest

import reverie
from reverie import Client, Server


@pytest.fixture
def address(own_host, uniform):
    with own_host.serve([uniform()]) as address:
        yield address


def test_a_client_of_an_address_of_this_process_goes_straight_to_the_tables(uniform, connect):
    with Server([uniform()]) as server:
        client = connect(server.address)
        assert client.info().transport == "in-process"
        assert connect(f"localhost:{server.port}").info().transport == "in-process"
        assert connect(server.address, transport="grpc").info().transport == "grpc"
        assert connect(server.address, transport="shared-memory").info().transport == "shared-memory"
        client.insert({"n": 1}, {"t": 1.0})
        assert server.client().sample_batch("t", 1).data["n"].tolist() == [1]
        assert client.server_address == server.client().server_address == server.address
    with pytest.raises(ValueError, match="listens at"):
        Client(client.server_address, transport="in-process")


def test_auto_uses_shared_memory_on_the_same_host_and_reports_it(address, connect):
    info = connect(address).info()
    assert info.transport == "shared-memory"
    assert info.reason
    assert info.address == address


def test_a_server_without_shared_memory_is_reached_over_grpc_and_the_reason_is_reported(own_host, uniform, connect):
    with own_host.serve([uniform()], local=False) as address:
        info = connect(address).info()
        assert info.transport == "grpc"
        assert "shared memory is not available: the server has no Unix socket" in info.reason
        with pytest.raises(
            ValueError, match=r"shared memory is not available for .*; use transport='auto', which falls back to gRPC"
        ):
            connect(address, transport="shared-memory").info()


def test_the_transport_of_a_client_and_its_reason_are_logged_at_first_connection(own_host, uniform, connect, caplog):
    with own_host.serve([uniform()], local=False) as address, caplog.at_level(logging.INFO, "reverie"):
        client = connect(address)
        reasons = {client.info(timeout=200).reason for _ in range(3)}
    reported = [line for line in caplog.messages if line.startswith(f"connected to {address}")]
    assert [f"connected to {address} by grpc: {reason}" for reason in reasons] == reported


@pytest.mark.parametrize("address", ["nowhere", "host:", ":12:", "host:99999", "host:0"])
def test_malformed_addresses_are_refused(address):
    with pytest.raises(ValueError):
        Client(address)
    with pytest.raises(ValueError, match="transport"):
        Client("localhost:1", transport="pigeon")
    with pytest.raises(TypeError, match="address"):
        Client(8000)
    with pytest.raises(ValueError, match="patience"):
        Client("localhost:1", patience=0)


def test_clients_pickle_by_value(network, address, connect):
    client = connect(address, transport=network, timeout=200)
    client.insert({"n": 5}, {"t": 1.0})
    with pickle.loads(pickle.dumps(client)) as again:
        assert (again.server_address, again.timeout, again.info().transport) == (address, 200.0, network)
        assert again.sample_batch("t", 1).data["n"].tolist() == [5]
    for live in (client.trajectory_writer(1), client.batches("t", 1)):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(live)


def test_an_in_process_client_of_a_server_that_listens_pickles_as_its_address(uniform):
    with Server([uniform()], token="secret") as server:
        again = pickle.loads(pickle.dumps(server.localhost_client()))
        assert again.server_address == server.address


def test_a_client_that_is_unpickled_has_every_option_that_the_first_was_made_with():
    options = {"transport": "grpc", "token": "secret", "tls": None, "timeout": 3.0, "patience": 7.5, "grace": 0.25,
               "max_in_flight_bytes": 1 << 20, "max_kept_bytes": 1 << 21, "tracing": True}  # fmt: skip
    again = pickle.loads(pickle.dumps(Client("localhost:1", **options)))
    made, arguments = again.__reduce__()
    assert (made.func, made.args, made.keywords, arguments) == (Client, ("localhost:1",), options, ())


@pytest.mark.parametrize("host", ["server.example", "192.0.2.1", "[2001:db8::1]"])
def test_a_server_of_another_host_is_not_mistaken_for_one_of_this_process_at_the_same_port(uniform, host):
    with Server([uniform()]) as server:
        assert repr(Client(f"{host}:{server.port}")) == f"Client('{host}:{server.port}')"
        with pytest.raises(ValueError, match="no server of this process listens"):
            Client(f"{host}:{server.port}", transport="in-process")
        for here in ("localhost", "127.0.0.1", "[::1]"):
            assert "in-process" in repr(Client(f"{here}:{server.port}"))


def _sample(client):
    return client.sample_batch("t", 2, timeout=200).data["n"].tolist(), client.info().transport


@pytest.mark.long
def test_clients_go_to_spawned_processes(network, address, connect):
    client = connect(address, transport=network)
    client.insert({"n": 5}, {"t": 1.0})
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        # By its parts: a test's own functions cannot be imported there.
        assert pool.apply(client.can_sample, ("t",)) is True


def test_a_forked_child_reconnects_and_its_writers_refuse(network, address, connect):
    client = connect(address, transport=network)
    client.insert({"n": 5}, {"t": 1.0})
    writer, batches = client.trajectory_writer(1), client.batches("t", 2)
    writer.append({"n": 1})
    next(batches)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert _sample(client) == ([5, 5], network)
            client.insert({"n": 5}, {"t": 1.0}, timeout=200)
            for forked in (lambda: writer.append({"n": 2}), lambda: next(batches)):
                with pytest.raises(reverie.ForkedError, match="spawn"):
                    forked()
            with client.trajectory_writer(1) as own:
                own.append({"n": 5})
                own.create_item("t", 1.0, {"n": own.history["n"][-1]})
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.info().tables["t"].current_size == 3
    writer.append({"n": 2})
    assert len(next(batches)) == 2


def test_an_insert_in_flight_at_a_fork_is_the_parents_and_is_done_once(network, own_host, connect, until):
    with own_host.serve([reverie.Table.queue("q", 2)]) as address:
        client = connect(address, transport=network)
        client.insert_batch("q", np.arange(2), timeout=200)
        client.insert_batch("q", np.arange(2, 4), wait=False, timeout=200)
        until(lambda: len(client.why("q").inserts) == 1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                client.flush(timeout=200)
                # Behind the parent's: the queue is full.
                with pytest.raises(reverie.DeadlineExceededError) as raised:
                    client.insert_batch("q", np.arange(4, 5), timeout=0.05)
                assert raised.value.partial.tolist() == []
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        drawn = [client.sample_batch("q", 2, timeout=200).data.tolist() for _ in range(2)]
        client.flush(timeout=200)
        assert drawn == [[0, 1], [2, 3]]
        table = client.info().tables["q"]
        assert (table.num_inserts, table.current_size, client.info().reconnects) == (4, 0, 0)


def test_copies_of_a_client_are_clients_of_their_own_whose_requests_are_all_done(network, own_host, connect, fifo):
    with own_host.serve([fifo()]) as address:
        client = connect(address, transport=network)
        packed = pickle.dumps(client)
        with pickle.loads(packed) as second, pickle.loads(packed) as third:
            clients = [client, second, third]
            for n in range(20):
                for number, one in enumerate(clients):
                    one.insert_batch("t", np.array([3 * n + number]), wait=False, timeout=200)
            for one in clients:
                one.flush(timeout=200)
            assert [one.info().reconnects for one in clients] == [0, 0, 0], "none takes the connection of another"
            drawn = [one.sample_batch("t", 20, timeout=200).data.tolist() for one in clients]
        assert sorted(number for some in drawn for number in some) == list(range(60))


def test_updates_with_wait_false_arrive_and_their_errors_are_counted(network, address, connect, until, caplog):
    client = connect(address, transport=network)
    keys = client.insert_batch("t", {"n": np.arange(4)})
    for priority in range(1, 100):
        assert client.update_priorities("t", keys, np.full(4, float(priority)), wait=False) is None
    until(lambda: client.get("t", keys).info.priority.tolist() == [99.0] * 4)
    assert client.info().unawaited_errors == 0
    with caplog.at_level(logging.WARNING, "reverie"):
        for _ in range(3):
            client.update_priorities("nope", keys, np.ones(4), wait=False)
        until(lambda: client.info().unawaited_errors == 3)
    assert [record.message for record in caplog.records if "wait=False" in record.message and "nope" in record.message]
    assert len([record for record in caplog.records if "wait=False" in record.message]) == 1


def test_refused_inserts_with_wait_false_are_counted(network, own_host, connect, uniform, caplog):
    table = uniform().replace(compression="none")
    with own_host.serve([table], max_bytes=100_000) as address, caplog.at_level(logging.WARNING, "reverie"):
        client = connect(address, transport=network)
        for rows in (50, 2, 50):
            client.insert_batch("t", {"x": np.zeros((rows, 10_000), np.uint8)}, wait=False)
        client.flush()
        assert client.info().unawaited_errors == 2
        assert client.server_info()["t"].current_size == 2
    assert len([record for record in caplog.records if "an insert that no caller waits for" in record.message]) == 1


def test_many_clients_at_once(network, address):
    errors, done = [], []

    def run(number):
        try:
            with Client(address, transport=network, patience=100.0, grace=100.0) as client:
                keys = client.insert_batch("t", {"n": np.full(2, number)}, timeout=100)
                batch = client.sample_batch("t", 4, timeout=100)
                assert len(batch) == 4
                client.update_priorities("t", keys, [1.0, 2.0])
                done.append(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert errors == []
    assert len(done) == 200


def test_deadlines_hold_under_load(network, own_host, connect, fifo, uniform, until):
    with own_host.serve([uniform(), fifo("empty")]) as address:
        client = connect(address, transport=network)
        client.insert_batch("t", {"x": np.zeros((100, 5000))}, timeout=200)
        stop = threading.Event()

        def load():
            patient = {"patience": 100.0, "grace": 100.0}
            with (
                Client(address, transport=network, **patient) as loading,
                loading.batches("t", 64, prefetch=4) as batches,
            ):
                while not stop.is_set():
                    next(batches)

        given = []
        waiting = threading.Thread(target=lambda: given.append(client.sample_batch("empty", 1, timeout=1_000)))
        threads = [waiting, *(threading.Thread(target=load) for _ in range(3))]
        for thread in threads:
            thread.start()
        try:
            until(lambda: len(client.why("empty").samples) == 1)
            for _ in range(10):
                with pytest.raises(reverie.DeadlineExceededError, match="table 'empty'") as raised:
                    client.sample_batch("empty", 1, timeout=0.02)
                assert raised.value.partial is None
            # Theirs passed, and not that of a call which waits for the same.
            assert given == []
            client.insert_batch("empty", {"x": np.zeros((1, 1))}, timeout=200)
            waiting.join(200)
            assert [len(batch) for batch in given] == [1]
        finally:
            stop.set()
            for thread in threads:
                thread.join(200)


def _resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.long
def test_memory_is_flat_over_a_long_loop_of_batches(network, address, connect):
    client = connect(address, transport=network)
    client.insert_batch("t", {"x": np.zeros((500, 1024), np.float32), "n": np.arange(500)})
    with client.batches("t", 64, prefetch=3) as batches:
        for _ in range(300):
            next(batches)
        before = _resident_bytes()
        for _ in range(3000):
            batch = next(batches)
            client.update_priorities("t", batch.info.key, np.ones(64), wait=False)
    # 3,000 batches are 790 MB.
    assert _resident_bytes() - before < 32 << 20
    assert client.info().unawaited_errors == 0


@pytest.mark.long
def test_a_cell_larger_than_a_message_is_refused_by_the_client_alone(network, address, connect):
    client = connect(address, transport=network)
    client.insert({"x": np.arange(3)}, {"t": 1.0})
    cell = np.random.default_rng(0).bytes(65 << 20)
    for call in (
        lambda: client.insert_batch("t", {"x": np.frombuffer(cell, np.uint8)[np.newaxis]}),
        lambda: client.insert({"x": np.frombuffer(cell, np.uint8)}, {"t": 1.0}),
    ):
        with pytest.raises(reverie.ResourceExhaustedError, match=r"one cell of a column .* 68157440 bytes") as raised:
            call()
        assert raised.value.needed == len(cell) > raised.value.budget
    client.insert({"x": np.arange(3)}, {"t": 1.0})
    assert client.info().tables["t"].current_size == 2
    assert client.info().reconnects == 0
