"""Shared by tests of the network: server processes of their own, which may be stopped, killed and made again."""

import contextlib
import json
import re
import socket
import threading
import urllib.error
import urllib.request

import pytest

from reverie import Client, Server, Table, UnavailableError, rate_limiters, selectors
from reverie.testing import ServerProcess

NETWORKS = ("shared-memory", "grpc")


@pytest.fixture(params=NETWORKS)
def network(request):
    return request.param


class OwnHost(ServerProcess):
    """A server process that tracks which of its servers run. Each has a port that stays its own when it has ended."""

    def __init__(self, new_port):
        self.running = set()
        self.new_port = new_port
        super().__init__()

    def _ask(self, what, argument):
        if what == "make":
            tables, options = argument
            argument = tables, {"port": self.new_port(), **options}
        answer = super()._ask(what, argument)
        if what == "make":
            self.running.add(answer[0])
        else:
            self.running.discard(argument)
        return answer

    def end(self):
        self.process.kill()
        with contextlib.suppress(BrokenPipeError, OSError):
            self.close()


@pytest.fixture(scope="session")
def idle_hosts():
    idle = []
    yield idle
    for host in idle:
        host.end()


@pytest.fixture
def own_host(idle_hosts, new_port):
    """A server process that only this test uses: it may suspend or kill it.

    A process that lives and whose servers have all stopped is left to the next test: it takes half a second to start.
    """
    host = idle_hosts.pop() if idle_hosts else OwnHost(new_port)
    yield host
    if host.alive and not host.running:
        idle_hosts.append(host)
    else:
        host.end()


@pytest.fixture
def connect():
    """Makes clients that are closed at the end: `connect(address, ...)`. They are patient, as machines may be busy."""
    with contextlib.ExitStack() as stack:

        def connect(address, **options):
            return stack.enter_context(Client(address, **{"patience": 100.0, "grace": 100.0, **options}))

        yield connect


@pytest.fixture
def reached():
    """Gives a client back once it is connected: `reached(client)`. One of little patience may need several attempts."""

    def reached(client):
        while True:
            try:
                client.info()
                return client
            except UnavailableError:
                continue

    return reached


@pytest.fixture
def raises_with():
    """`raises_with(error, words, call)`: checks that `call(seconds)` raises this error with these words.

    The call is repeated with longer times: on a busy machine a failed attempt, and its words, may take longer.
    """

    def raises_with(error, words, call):
        for seconds in (0.2, 2.0, 20.0, 100.0):
            with pytest.raises(error) as raised:
                call(seconds)
            if re.search(words, str(raised.value)):
                return
        raise AssertionError(f"no {words!r} in {raised.value}")

    return raises_with


@pytest.fixture
def fifo():
    """Makes a table that gives its items once, in order."""
    return lambda name="t": Table(
        name, selectors.Fifo(), selectors.Fifo(), 1_000_000, rate_limiters.MinSize(1), max_times_sampled=1
    )


@pytest.fixture
def uniform():
    """Makes a table that keeps its items."""
    return lambda name="t": Table(name, selectors.Uniform(seed=1), selectors.Fifo(), 1000, rate_limiters.MinSize(1))


class Proxy:
    """A TCP way to a server that a test can cut.

    With `answers=False` the server's responses are discarded from then on: acknowledgements are lost.
    """

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.target = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.answers = True
        self.connections = []
        self.swallowed = 0
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        """Ends all connections, both ways, with nothing said."""
        connections, self.connections = self.connections, []
        for connection in connections:
            for end in connection:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def close(self):
        self.listener.close()
        self.cut()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.target)
            except OSError:
                return
            self.accepted += 1
            self.connections.append((near, far))
            threading.Thread(target=self._pump, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, True), daemon=True).start()

    def _pump(self, source, sink, is_answer):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if is_answer and not self.answers:
                    self.swallowed += len(data)
                    continue
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy():
    """Makes proxies that are closed at the end: `proxy(address)`."""
    made = []

    def proxy(address):
        made.append(Proxy(address))
        return made[-1]

    yield proxy
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def provided():
    """The exporter of the SDK of this process, which can be set up once."""
    trace = pytest.importorskip("opentelemetry.trace")
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    in_memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(sdk.TracerProvider())
    exporter = in_memory.InMemorySpanExporter()
    trace.get_tracer_provider().add_span_processor(sdk.export.SimpleSpanProcessor(exporter))
    return exporter


@pytest.fixture
def exported(provided):
    """The exporter of spans; it has those of this test."""
    provided.clear()
    yield provided
    provided.clear()


@pytest.fixture
def read():
    """Reads a path of a server's HTTP port: `read(server, path, **headers)` returns status, headers and body."""

    def read(server, path, **headers):
        request = urllib.request.Request(f"http://{server.http_address}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=100) as response:
                return response.status, response.headers, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read().decode()

    return read


@pytest.fixture
def read_json(read):
    """Like `read`, for JSON: returns status and answer."""

    def read_json(server, path, **headers):
        status, _, body = read(server, path, **headers)
        return status, json.loads(body)

    return read_json


@pytest.fixture
def shown(uniform):
    """A server of one table in this process, with an HTTP port."""
    with Server([uniform()], http="127.0.0.1:0", listen=False) as server:
        yield server


@pytest.fixture
def items(read_json):
    """A function: the items of a table as JSON."""

    def items(server, table, query=""):
        status, answer = read_json(server, f"/api/tables/{table}/items{query}")
        assert status == 200, answer
        return answer["items"]

    return items
