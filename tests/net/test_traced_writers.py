"""Spans of what is not done within a call: items of writers, and batches that are drawn ahead."""

import contextlib

import numpy as np
import pytest

from reverie import Client, DeadlineExceededError, Server, Table, rate_limiters, selectors, structured

trace = pytest.importorskip("opentelemetry.trace")
STEP = {"obs": np.zeros(3, np.float32)}
TRANSITION = {"action": 0, "reward": 0.0, "terminated": False, "truncated": False, **STEP}
PATTERN = structured.create_config({"obs": structured.create_reference_step({"obs": None})["obs"][-1:]}, "t")
#: A wait that ends only where something is broken.
PATIENT = 100


def table(limiter=None):
    limiter = rate_limiters.MinSize(1) if limiter is None else limiter
    return Table("t", selectors.Fifo(), selectors.Fifo(), 100, limiter)


@contextlib.contextmanager
def traced_client(one, network):
    """A traced client of a traced server, whose spans are exported at the end."""
    with Server([one], tracing=True) as server:  # noqa: SIM117 (the client is closed first)
        with Client(server.address, transport=network, tracing=True, patience=PATIENT, grace=PATIENT) as client:
            yield client


@contextlib.contextmanager
def span(name):
    """A span of the caller; gives its id."""
    with trace.get_tracer("test").start_as_current_span(name) as own:
        yield own.get_span_context().span_id


def of_kind(exported, kind):
    return [span for span in exported.get_finished_spans() if span.kind == kind]


def servers(exported, verb="insert"):
    """The ids of the parents of the server's spans, in the order of the requests."""
    of = [one for one in of_kind(exported, trace.SpanKind.SERVER) if one.attributes["db.operation.name"] == verb]
    return [one.parent.span_id for one in sorted(of, key=lambda one: one.start_time)]


def trajectory(client):
    writer = client.trajectory_writer(1)

    def write():
        writer.append(STEP)
        writer.create_item("t", 1.0, {"obs": writer.history["obs"][-1:]})

    return writer, write


def appending(writer, step=STEP):
    return writer, lambda: writer.append(step)


def legacy(client):
    writer = client.writer(1)

    def write():
        writer.append(STEP)
        writer.create_item("t", 1, 1.0)

    return writer, write


WRITERS = {
    "trajectory": trajectory,
    "structured": lambda client: appending(client.structured_writer([PATTERN])),
    "sequence": lambda client: appending(client.sequence_writer("t", 1, 1)),
    "legacy": legacy,
}


@pytest.mark.parametrize("make", WRITERS.values(), ids=WRITERS)
def test_an_item_of_a_writer_belongs_to_the_span_that_is_current_when_it_is_made(make, network, exported):
    with traced_client(table(), network) as client:
        writer, write = make(client)
        with span("first") as first:
            write()
        write()  # no trace
        with span("second") as second:
            write()
        writer.flush()
        writer.close()
    assert servers(exported) == [first, second]


def test_transitions_belong_to_the_span_of_the_append_that_completes_them(network, exported):
    with traced_client(table(), network) as client:
        writer = client.transition_writer("t")
        with span("first"):
            writer.append(**TRANSITION)
        with span("second") as second:
            writer.append(**TRANSITION)
        writer.close()
    assert servers(exported) == [second]


def test_a_writer_of_one_of_several_servers_belongs_to_the_callers_span(exported):
    made = [Server([table()], shard=shard, tracing=True) for shard in (0, 1)]
    try:
        with Client([one.address for one in made], transport="grpc", tracing=True, patience=PATIENT) as client:
            writer, write = trajectory(client)
            with span("step") as caller:
                write()
            writer.flush()
    finally:
        for one in made:
            one.stop()
    assert servers(exported) == [caller]


def test_a_flush_and_an_append_that_wait_have_spans_and_others_have_none(network, exported):
    limited = table(rate_limiters.SampleToInsertRatio(1.0, 1, 1.0))
    with traced_client(limited, network) as client:
        writer, write = trajectory(client)
        while client.can_insert("t"):
            write()
            writer.flush()
        exported.clear()
        writer.flush()
        write()
        assert not of_kind(exported, trace.SpanKind.CLIENT)
        with span("step") as caller, pytest.raises(DeadlineExceededError):
            writer.flush(timeout=0.01)
        [flush] = of_kind(exported, trace.SpanKind.CLIENT)
        assert (flush.name, flush.parent.span_id, flush.status.is_ok) == ("flush", caller, False)
        narrow = client.trajectory_writer(1, max_in_flight_bytes=0, timeout=0.01)
        narrow.append(STEP)
        narrow.create_item("t", 1.0, {"obs": narrow.history["obs"][-1:]})
        exported.clear()
        with span("step") as caller, pytest.raises(DeadlineExceededError):
            narrow.append(STEP)
        [append] = of_kind(exported, trace.SpanKind.CLIENT)
        assert (append.name, append.parent.span_id, append.status.is_ok) == ("append", caller, False)
        client.reset("t")


def test_a_writer_in_the_servers_process_has_the_spans_of_its_waits_alone(exported):
    with Server([table(rate_limiters.Queue(1))], listen=False) as server:
        writer, write = trajectory(server.client(tracing=True))
        with span("step"):
            write()
            write()
            with pytest.raises(DeadlineExceededError):
                writer.flush(timeout=0)
    assert [one.name for one in exported.get_finished_spans()] == ["flush", "step"]


def test_a_writer_of_a_client_without_tracing_has_no_spans(network, exported):
    with Server([table()], tracing=True) as server, Client(server.address, transport=network) as client:
        writer, write = trajectory(client)
        with span("step"):
            write()
            writer.flush()
    assert [one.name for one in exported.get_finished_spans()] == ["step"]


@pytest.mark.parametrize("make", ["batches", "windows"])
def test_each_batch_is_a_span_that_links_to_the_one_that_requested_it(make, network, exported):
    with traced_client(table(), network) as client:
        with client.sequence_writer("t", 4, 4) as writer:
            for _ in range(20):
                writer.append(STEP)
        exported.clear()
        sized = {"batches": {}, "windows": {"length": 2}}[make]
        with span("make") as made:
            batches = getattr(client, make)("t", 2, prefetch=1, max_samples=6, **sized)
        with batches, span("learn") as learn:
            assert len(list(batches)) == 3
    waits = [one for one in of_kind(exported, trace.SpanKind.CLIENT) if one.name == "batches t"]
    assert [one.parent.span_id for one in waits] == [learn] * 4  # the last one finds the end
    ids = [one.context.span_id for one in waits]
    assert [[link.context.span_id for link in one.links] for one in waits] == [[made], [ids[0]], [ids[1]], []]
    # The draw that a wait requests is received by a later wait.
    assert servers(exported, "sample") == [made, ids[0], ids[1]]


def test_batches_of_several_servers_are_drawn_under_the_spans_of_its_reader(exported):
    made = [Server([table(rate_limiters.MinSize(1))], shard=shard, tracing=True) for shard in (0, 1)]
    try:
        addresses = [one.address for one in made]
        with Client(addresses, transport="grpc", tracing=True, seed=1, patience=PATIENT, grace=PATIENT) as client:
            for shard in (0, 1):
                client.insert_batch("t", {"obs": np.zeros((8, 3), np.float32)}, shard=shard)
            exported.clear()
            with span("make") as maker, client.batches("t", 64, prefetch=1, max_samples=256) as batches:
                assert len(list(batches)) == 4
    finally:
        for one in made:
            one.stop()
    waits = [one for one in of_kind(exported, trace.SpanKind.CLIENT) if one.name == "batches t"]
    ids = {maker, *(one.context.span_id for one in waits)}
    linked = {link.context.span_id for one in waits for link in one.links}
    drawn = set(servers(exported, "sample"))
    # A task draws them for whichever call came last: the one that made the iterator, or a wait, perhaps for itself.
    assert len(waits) == 5
    assert drawn
    assert linked <= ids
    assert drawn <= ids


def test_batches_that_are_drawn_when_they_are_asked_for_have_the_spans_of_their_draws(network, exported):
    with traced_client(table(), network) as client:
        client.insert(STEP, {"t": 1.0})
        with client.batches("t", 1, prefetch=0) as batches:
            next(batches)
        with client.windows("t", 1, 1, prefetch=0) as windows, pytest.raises(Exception, match="time axis"):
            next(windows)
    names = [one.name for one in of_kind(exported, trace.SpanKind.CLIENT)]
    assert names == ["insert t", "sample_batch t", "batches t"]


def test_batches_in_the_servers_process_are_spans_without_a_link(exported):
    with Server([table()], listen=False) as server:
        client = server.client(tracing=True)
        client.insert(STEP, {"t": 1.0})
        with client.batches("t", 1, prefetch=1, max_samples=1) as batches:
            next(batches)
    *_, wait = exported.get_finished_spans()
    assert (wait.name, wait.links, wait.status.is_ok) == ("batches t", (), True)
