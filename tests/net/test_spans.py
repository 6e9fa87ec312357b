"""Spans of traced calls: a client's, and the server's for the same requests."""

import contextlib
import gc
import gzip
import http.server
import json
import os
import pickle
import subprocess
import sys
import threading
import urllib.request
import weakref

import numpy as np
import pytest

from reverie import Client, DeadlineExceededError, Server, Table, _native, rate_limiters, selectors, spans

trace = pytest.importorskip("opentelemetry.trace")

STEP = {"obs": np.zeros(3, np.float32)}
#: A wait that ends only where something is broken.
PATIENT = 100
CLIENT, SERVER = trace.SpanKind.CLIENT, trace.SpanKind.SERVER


def table(name="t", limiter=None, **options):
    limiter = rate_limiters.MinSize(1) if limiter is None else limiter
    return Table(name, selectors.Fifo(), selectors.Fifo(), 100, limiter, **options)


@contextlib.contextmanager
def serving(one, network, **options):
    """A traced server of this table, and a traced client of it. Its spans are exported at the end."""
    with Server([one], tracing=True, **options) as server:  # noqa: SIM117 (the client is closed first)
        with Client(server.address, transport=network, tracing=True, patience=PATIENT, grace=PATIENT) as client:
            yield server, client


def of_kind(exporter, kind):
    return [span for span in exporter.get_finished_spans() if span.kind == kind]


def parents(exporter):
    """The spans of the server by the id of their parent."""
    return {span.parent.span_id: span for span in of_kind(exporter, SERVER)}


def late(call, server, exporter):
    """Repeats a call that cannot be done in its time until a request of it has reached the server in time."""

    def arrived():
        with pytest.raises(DeadlineExceededError):
            call()
        server._spans._export()
        return any(span.attributes.get("error.type") == "deadline" for span in of_kind(exporter, SERVER))

    return arrived


def unsampled():
    """A caller's span of a trace that is not recorded."""
    context = trace.SpanContext(0x1234, 0x5678, is_remote=False, trace_flags=trace.TraceFlags(0))
    return trace.use_span(trace.NonRecordingSpan(context))


def test_a_servers_span_is_the_child_of_the_clients_span_and_that_of_the_callers(network, exported):
    update = trace.get_tracer("test").start_as_current_span("update")
    with serving(table(), network) as (_, client), update as caller:
        client.insert(STEP, {"t": 1.0})
        client.insert_batch("t", {"obs": np.zeros((5, 3), np.float32)})
        batch = client.sample_batch("t", 2)
        client.update_priorities("t", batch.info.key, [2.0, 2.0])
        assert len(list(client.sample("t", 3))) == 3
        client.delete("t", batch.info.key)
        client.query("t")
    calls = {span.name: span for span in of_kind(exported, CLIENT)}
    answered = parents(exported)
    assert list(calls) == [
        "insert t", "insert_batch t", "sample_batch t", "update_priorities t", "sample t", "delete t", "query t",
    ]  # fmt: skip
    verbs = ["insert", "insert", "sample", "mutate", "sample", "mutate", "query"]
    for call, verb in zip(calls.values(), verbs, strict=True):
        span = answered[call.context.span_id]
        assert call.parent.span_id == caller.get_span_context().span_id
        assert span.context.trace_id == call.context.trace_id == caller.get_span_context().trace_id
        assert (span.name, span.attributes["reverie.transport"]) == (f"{verb} t", network)
        assert span.parent.is_remote
        assert span.status.is_ok
        assert "reverie.wait.reason" not in span.attributes
        assert span.start_time <= span.end_time
    assert len(answered) == len(calls) == len(of_kind(exported, SERVER))


def test_a_blocked_inserts_span_has_its_wait_and_the_reason(network, exported, until):
    limited = table(limiter=rate_limiters.SampleToInsertRatio(1.0, 1, 1.0))
    with serving(limited, network) as (server, client):
        rows = {"obs": np.zeros((1, 3), np.float32)}
        while client.can_insert("t"):
            client.insert_batch("t", rows)
        server._spans._export()
        exported.clear()
        until(late(lambda: client.insert_batch("t", rows, timeout=0.05), server, exported))
        assert not any(span.status.is_ok for span in of_kind(exported, CLIENT) if "insert" in span.name)
        client.insert_batch("t", rows, wait=False)
        until(lambda: client.why("t").inserts)
        client.sample_batch("t", 1)
        client.flush()
    inserts = [span for span in of_kind(exported, SERVER) if span.attributes["db.operation.name"] == "insert"]
    for span in inserts:
        took = (span.end_time - span.start_time) / 1e9
        assert span.attributes["reverie.wait.reason"] == "limiter"
        assert "samples_per_insert" in span.attributes["reverie.wait.text"]
        assert 0 < span.attributes["reverie.wait.seconds"] <= took
    *failed, done = inserts
    assert {span.attributes["error.type"] for span in failed} == {"deadline"}
    assert not any(span.status.is_ok for span in failed)
    assert done.status.is_ok
    assert "error.type" not in done.attributes


def test_a_draw_that_waits_has_the_reason_of_its_table(network, exported, until):
    with serving(table(limiter=rate_limiters.MinSize(2)), network) as (server, client):
        client.insert(STEP, {"t": 1.0})
        until(late(lambda: client.sample_batch("t", 1, timeout=0.05), server, exported))
    draw = [span for span in of_kind(exported, SERVER) if span.attributes["db.operation.name"] == "sample"][-1]
    assert draw.attributes["reverie.wait.reason"] == "limiter"
    assert "min_size_to_sample" in draw.attributes["reverie.wait.text"]
    assert draw.attributes["error.type"] == "deadline"


def test_the_span_of_an_insert_that_waits_for_bytes_names_the_wait(exported, until):
    rows = {"obs": np.random.default_rng(1).random((1, 120_000), np.float32)}
    with serving(Table.queue("t", 100), "grpc", max_bytes=1 << 20) as (server, client):
        client.insert_batch("t", rows)
        client.insert_batch("t", rows)
        until(late(lambda: client.insert_batch("t", rows, timeout=0.05), server, exported))
    last = [span for span in of_kind(exported, SERVER) if "reverie.wait.reason" in span.attributes][-1]
    assert last.attributes["reverie.wait.reason"] == "bytes"
    assert "max_bytes" in last.attributes["reverie.wait.text"]


def test_a_trace_that_is_not_recorded_makes_no_span_at_the_server(network, exported):
    with serving(table(), network) as (server, client):
        with unsampled():
            client.insert(STEP, {"t": 1.0})
            client.sample_batch("t", 1)
        assert server._native.span_counts == (0, 0, 0)
    assert not exported.get_finished_spans()


def test_a_client_or_a_server_without_tracing_has_no_spans(network, exported):
    update = trace.get_tracer("test").start_as_current_span("update")
    with Server([table()], tracing=True) as server, Client(server.address, transport=network) as client, update:
        client.insert(STEP, {"t": 1.0})
    assert [span.name for span in exported.get_finished_spans()] == ["update"]
    with Server([table()]) as server, Client(server.address, transport=network, tracing=True) as client:
        client.insert(STEP, {"t": 1.0})
        assert server._native.span_counts is None
    assert not of_kind(exported, SERVER)


def test_calls_in_the_servers_process_have_the_spans_of_the_client_alone(exported):
    with Server([table(limiter=rate_limiters.MinSize(2))], listen=False) as server:
        client = server.client(tracing=True)
        client.insert(STEP, {"t": 1.0})
        with pytest.raises(DeadlineExceededError):
            client.sample_batch("t", 1, timeout=0)
    names = {span.name: span.status.is_ok for span in exported.get_finished_spans()}
    assert names == {"insert t": True, "sample_batch t": False}


def test_draws_from_several_servers_are_spans_of_each_server_under_one_call(network, exported):
    servers = [Server([table(limiter=rate_limiters.MinSize(1))], shard=shard, tracing=True) for shard in (0, 1)]
    try:
        addresses = [server.address for server in servers]
        with Client(addresses, transport=network, tracing=True, seed=1, patience=PATIENT, grace=PATIENT) as client:
            for shard in (0, 1):
                client.insert_batch("t", {"obs": np.zeros((8, 3), np.float32)}, shard=shard)
            exported.clear()
            client.sample_batch("t", 64)
    finally:
        for server in servers:
            server.stop()
    (call,) = (span for span in of_kind(exported, CLIENT) if span.name == "sample_batch t")
    draws = [span for span in of_kind(exported, SERVER) if span.name == "sample t"]
    assert len(draws) >= 2
    assert {span.parent.span_id for span in draws} == {call.context.span_id}


def test_the_trace_of_a_thread_ends_with_its_call(exported):
    with Server([table()], listen=False) as server:
        client = server.client(tracing=True)
        with pytest.raises(TypeError):
            client.insert_batch()
        assert _native._set_trace(None) is None


def test_ids_of_zeros_are_refused_where_a_trace_is_set():
    for context in ((0, 1, True), (1, 0, True)):
        with pytest.raises(ValueError, match="must not be 0"):
            _native._set_trace(context)
    assert _native._set_trace(None) is None


def test_a_tracing_client_is_a_client_and_pickles_as_one(exported):
    with serving(table(), "grpc") as (server, client):
        assert isinstance(client, Client)
        assert repr(client) == f"Client('{server.address}')"
        with pickle.loads(pickle.dumps(client)) as copy:
            copy.insert(STEP, {"t": 1.0})
    assert [span.name for span in of_kind(exported, CLIENT)] == ["insert t"]


def test_a_server_that_does_not_listen_cannot_trace_requests():
    with pytest.raises(ValueError, match=r"client\(tracing=True\)"):
        Server([table()], listen=False, tracing=True)


def test_a_traced_server_that_is_dropped_is_not_kept_alive_by_its_spans():
    server = Server([table()], tracing=True)
    thread, alive = server._spans._thread, weakref.ref(server)
    del server
    gc.collect()
    thread.join(PATIENT)
    assert alive() is None
    assert not thread.is_alive()


def test_figures_show_the_spans_that_were_noted(exported):
    with serving(table(), "grpc", http=0) as (server, client):
        client.insert(STEP, {"t": 1.0})
        read = lambda path: urllib.request.urlopen(f"http://{server.http_address}{path}").read()  # noqa: E731
        assert json.loads(read("/api/info"))["spans"] == {"noted": 1, "dropped": 0, "invalid": 0}
        assert b'reverie_spans_total{outcome="noted"} 1' in read("/metrics")
    with Server([table()], http=0) as server:
        assert json.loads(urllib.request.urlopen(f"http://{server.http_address}/api/info").read())["spans"] is None


def test_an_unknown_exporter_is_refused_by_its_name(monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/xml")
    with pytest.raises(ValueError, match="http/xml"):
        spans._exporters()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert spans._exporters() == []
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console, none")
    assert [type(exporter).__name__ for exporter in spans._exporters()] == ["ConsoleSpanExporter"]


@pytest.mark.long
def test_a_traced_server_of_the_command_line_exports_by_otlp_to_the_endpoint_of_the_environment(exported):
    received = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_arguments):
            pass

    collector = http.server.HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=collector.serve_forever)
    thread.start()
    endpoint = f"http://127.0.0.1:{collector.server_port}"
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_SERVICE_NAME": "the-replay"}
    command = [sys.executable, "-m", "reverie", "serve", "--tracing", "--json"]
    try:
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                address = json.loads(process.stdout.readline())["address"]
                with Client(address, transport="grpc", tracing=True, patience=PATIENT, grace=PATIENT) as client:
                    client.insert(STEP, {"replay": 1.0})
                process.terminate()
                assert process.wait(PATIENT) == 0
            finally:
                process.kill()
    finally:
        collector.shutdown()
        thread.join()
        collector.server_close()
    (path, body), *more = received
    (call,) = of_kind(exported, CLIENT)
    assert (path, more) == ("/v1/traces", [])
    for part in (b"insert replay", b"the-replay", call.context.span_id.to_bytes(8), call.context.trace_id.to_bytes(16)):
        assert part in body


def test_without_opentelemetry_tracing_names_the_extra():
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from reverie import Client\n"
        "try: Client('127.0.0.1:1', tracing=True)\n"
        "except ImportError as error: print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "reverie[otel]"' in ended.stdout
