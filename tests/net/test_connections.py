"""The number of clients that a server accepts, and the refusal of one more."""

import json
import resource
import subprocess
import sys

import pytest

import reverie
from reverie import Client, Server

#: A server of one table that prints its address and its log, until its standard input ends.
SERVE = """
import logging, sys, reverie
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
server = reverie.Server([reverie.Table.queue("queue", 10)])
reverie._native._deliver_logs()
print(server.address, flush=True)
sys.stdin.read()
"""


def test_a_client_of_a_full_server_gets_an_error_with_the_setting_to_raise(uniform, network, connect, raises_with):
    with Server([uniform()], max_connections=1) as server:
        first = connect(server.address, transport=network)
        assert first.info().max_connections == 1

        def one_more(seconds):
            with Client(server.address, transport=network, patience=seconds) as client:
                client.info()

        raises_with(reverie.UnavailableError, r"the server is full.*max_connections=1.*--max-connections", one_more)
        other = {"grpc": "shared-memory", "shared-memory": "grpc"}[network]
        assert connect(server.address, transport=other).info().transport == other, "each way has its own places"
        first.close()
        assert connect(server.address, transport=network).info().connected


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_server_for_no_client_is_refused(uniform, wrong):
    with pytest.raises(ValueError, match="max_connections must be at least 1"):
        Server([uniform()], max_connections=wrong)


def test_a_client_in_the_servers_process_is_no_connection(uniform):
    with Server([uniform()], max_connections=1) as server:
        assert server.client().info().max_connections is None


def serve_with(soft, hard):
    """A server in a process that may open so many files, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
    )
    address = process.stdout.readline().strip()
    assert address, process.communicate(timeout=200)[1]
    return process, address


@pytest.mark.long
def test_a_server_raises_its_limit_of_open_files_as_far_as_it_needs(connect):
    process, address = serve_with(64, 20_000)
    clients = [connect(address, transport="grpc") for _ in range(100)]
    assert all(client.info().max_connections == 4096 for client in clients)
    _, log = process.communicate(timeout=200)
    assert "takes 4096 clients at a time over gRPC, and as many over shared memory" in log


@pytest.mark.long
def test_with_few_open_files_a_server_logs_how_many_clients_it_accepts_and_refuses_more(connect, raises_with):
    process, address = serve_with(64, 160)
    most = connect(address, transport="grpc").info().max_connections
    assert 0 < most < 80
    clients = [connect(address, transport="grpc") for _ in range(most - 1)]
    assert all(client.info().connected for client in clients)

    def one_more(seconds):
        with Client(address, transport="grpc", patience=seconds) as client:
            client.info()

    raises_with(reverie.UnavailableError, "the server is full.*limit of 160 open files.*ulimit", one_more)
    assert connect(address, transport="shared-memory").info().connected
    _, log = process.communicate(timeout=200)
    assert f"takes {most} clients at a time" in log
    assert "limit of 160 open files" in log


#: Prints the soft limit of open files of a process with a server in it, which does not listen.
LIMIT = """
import resource, sys, reverie
options = {"journal": {"journal": reverie.Journal(sys.argv[2])}, "disk": {"disk": sys.argv[2], "memory_bytes": 10**6}}
with reverie.Server([reverie.Table.queue("queue", 10)], listen=False, **options.get(sys.argv[1], {})):
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(("files", "soft"), [("journal", 4000), ("disk", 4000), ("none", 500)])
def test_a_server_with_files_may_open_as_many_as_the_hard_limit_allows(files, soft, tmp_path):
    printed = subprocess.run(
        [sys.executable, "-c", LIMIT, files, str(tmp_path / "kept")],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (500, 4000)),
    )
    assert printed.stdout == f"{soft}\n", printed.stderr


@pytest.mark.long
def test_serve_accepts_as_many_clients_as_its_flag_allows():
    pytest.importorskip("typer")
    command = [sys.executable, "-c", "import reverie.cli; reverie.cli.main()"]
    with subprocess.Popen(
        [*command, "serve", "--json", "--max-connections", "3"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            address = json.loads(process.stdout.readline())["address"]
            with Client(address, transport="grpc", patience=100.0, grace=100.0) as client:
                assert client.info().max_connections == 3
        finally:
            process.terminate()
