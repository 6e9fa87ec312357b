"""A server's span names what its request waited for, and a client's span reports a connection that was lost."""

import concurrent.futures
import contextlib

import numpy as np
import pytest

import reverie.server
from reverie import Client, Journal, Server, Table, rate_limiters, selectors, spans

trace = pytest.importorskip("opentelemetry.trace")
#: A wait that ends only where something is broken.
PATIENT = 100


def table(limiter, name="t", size=100_000):
    return Table(name, selectors.Fifo(), selectors.Fifo(), size, limiter)


@contextlib.contextmanager
def serving(one, network, **options):
    """A traced server of this table, and a traced client of it."""
    with Server([one], tracing=True, **options) as server:  # noqa: SIM117 (the client is closed first)
        with Client(server.address, transport=network, tracing=True, patience=PATIENT, grace=PATIENT) as client:
            yield server, client


def waits(server, exported, reason):
    """The server's spans of requests that waited for this."""
    server._spans._export()
    of = [span for span in exported.get_finished_spans() if span.kind is trace.SpanKind.SERVER]
    return [span for span in of if span.attributes.get("reverie.wait.reason") == reason]


def test_an_insert_waits_for_its_journal(network, exported, tmp_path):
    journal = Journal(tmp_path, sync="always")
    with serving(table(rate_limiters.MinSize(1)), network, journal=journal) as (server, client):
        client.insert({"obs": np.zeros(3, np.float32)}, {"t": 1.0})
        [insert] = waits(server, exported, "journal")
        assert insert.name == "insert t"
        assert "journal" in insert.attributes["reverie.wait.text"]
        assert insert.attributes["reverie.wait.seconds"] > 0
        assert insert.status.is_ok


def test_an_insert_waits_for_memory_while_chunks_move_to_the_disk(exported, tmp_path, until):
    noise = np.random.default_rng(1)
    options = {"disk": tmp_path, "memory_bytes": 2 << 20}
    with serving(Table.queue("t", 1 << 20), "grpc", **options) as (server, client):

        def one_waited():
            for _ in range(10):
                client.insert_batch("t", {"obs": noise.integers(0, 255, (1, 300_000), np.uint8)})
            client.sample_batch("t", 8)
            return waits(server, exported, "memory")

        until(one_waited)
        insert = waits(server, exported, "memory")[0]
        assert insert.name == "insert t"
        assert "memory_bytes" in insert.attributes["reverie.wait.text"]


def test_a_draw_waits_behind_a_long_one_for_its_turn(exported, until):
    options = {"transport": "grpc", "patience": PATIENT, "grace": PATIENT}
    with serving(table(rate_limiters.MinSize(1)), "grpc") as (server, client):
        client.insert({"obs": np.float32(1)}, {"t": 1.0})
        with Client(server.address, **options) as other, concurrent.futures.ThreadPoolExecutor(1) as pool:

            def one_waited():
                # It is drawn in many parts, and others get the table's lock in between.
                long = pool.submit(other.sample_batch, "t", 1_000_000)
                while not long.done():
                    client.sample_batch("t", 1)
                long.result()
                return waits(server, exported, "turn")

            until(one_waited)
        draw = waits(server, exported, "turn")[0]
        assert draw.name == "sample t"
        assert draw.attributes["reverie.wait.text"]


def test_a_request_in_the_first_moment_of_a_server_has_a_span(network, exported, monkeypatch):
    def later(server):
        """The requests of a client that waited for its server come before the server's exporter begins."""
        with Client(server.address, transport=network, tracing=True, patience=PATIENT) as client:
            client.insert({"obs": np.float32(1)}, {"t": 1.0})
        return spans.RequestSpans(server)

    monkeypatch.setattr(reverie.server, "RequestSpans", later)
    with Server([table(rate_limiters.MinSize(1))], tracing=True):
        pass
    assert sorted(span.name for span in exported.get_finished_spans()) == ["insert t", "insert t"]


@pytest.mark.long
def test_a_clients_span_reports_a_restart_and_the_next_server_has_the_span(network, own_host, exported, until):
    blocked = table(rate_limiters.MinSize(2))
    options = {"transport": network, "patience": PATIENT, "grace": PATIENT}
    with own_host.serve([blocked]) as address, Client(address, tracing=True, **options) as client:
        client.insert({"obs": np.float32(1)}, {"t": 1.0})
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            draw = pool.submit(client.sample_batch, "t", 1)
            until(lambda: client.why("t").samples)
            own_host.process.kill()
            own_host.process.wait()
            with Server([blocked], port=int(address.rpartition(":")[2]), tracing=True):
                client.insert_batch("t", {"obs": np.ones(2, np.float32)})
                assert len(draw.result(PATIENT)) == 1
                # A server that stops keeps no span of a request that its session has not ended by then.
                until(lambda: "sample t" in [span.name for span in exported.get_finished_spans()])
    [call] = [span for span in exported.get_finished_spans() if span.name == "sample_batch t"]
    assert (call.attributes["reverie.server_restarts"], call.attributes["reverie.reconnects"]) == (1, 1)
    assert call.status.is_ok
    [answer] = [span for span in exported.get_finished_spans() if span.name == "sample t"]
    assert answer.parent.span_id == call.context.span_id
    inserts = [span for span in exported.get_finished_spans() if span.name == "insert t"]
    assert "reverie.reconnects" not in inserts[0].attributes


def test_a_clients_span_reports_a_lost_connection_and_the_server_keeps_its_span(proxy, exported, until):
    options = {"transport": "grpc", "patience": PATIENT, "grace": PATIENT}
    with Server([table(rate_limiters.MinSize(1))], tracing=True) as server:
        way, here = proxy(server.address), server.client()
        with Client(way.address, tracing=True, **options) as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
            draw = pool.submit(client.sample_batch, "t", 1)
            until(lambda: here.why("t").samples)
            way.cut()
            until(lambda: client.info().reconnects)
            here.insert({"obs": np.float32(1)}, {"t": 1.0})
            assert len(draw.result(PATIENT)) == 1
    [call] = [span for span in exported.get_finished_spans() if span.name == "sample_batch t"]
    assert call.attributes["reverie.reconnects"] == 1
    assert "reverie.server_restarts" not in call.attributes
    [answer] = [span for span in exported.get_finished_spans() if span.name == "sample t"]
    assert answer.parent.span_id == call.context.span_id
    assert answer.attributes["reverie.wait.reason"] == "limiter"


def test_spans_that_the_sdk_cannot_take_are_counted_the_first_is_logged_and_later_ones_arrive(
    exported, monkeypatch, caplog, until
):
    monkeypatch.setattr(spans, "PERIOD", 0.01)
    with serving(table(rate_limiters.MinSize(1)), "grpc") as (server, client):
        real, failures = server._spans._tracer, iter([RuntimeError("no room"), OSError("again")])

        class Failing:
            def start_span(self, *args, **kwargs):
                for failure in failures:
                    raise failure
                return real.start_span(*args, **kwargs)

        monkeypatch.setattr(server._spans, "_tracer", Failing())
        for number in range(4):
            client.insert({"obs": np.float32(number)}, {"t": 1.0})
        of_server = lambda: [one for one in exported.get_finished_spans() if one.kind is trace.SpanKind.SERVER]  # noqa: E731
        until(lambda: len(of_server()) == 2)
        until(lambda: server._native.span_counts == (4, 2, 0))
        assert server._spans._thread.is_alive()
    [line] = [record for record in caplog.records if record.name == "reverie" and record.levelname == "ERROR"]
    assert "could not be exported" in line.message
    assert "no room" in str(line.exc_info[1])
