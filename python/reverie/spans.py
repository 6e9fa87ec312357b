"""OpenTelemetry's spans: of a client's calls, and of the requests that a server answers. Needs `reverie[otel]`."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from reverie import _native
from reverie._log import logger

#: Seconds between two exports of a server's spans.
PERIOD = 0.5
#: The calls of a client that have a span, and the span's name. `sample` requests its draws in several calls.
CALLS = {
    "insert": "insert",
    "insert_batch": "insert_batch",
    "flush": "flush",
    "sample_batch": "sample_batch",
    "_sample_available": "sample",
    "get": "get",
    "query": "query",
    "update_priorities": "update_priorities",
    "mutate_priorities": "mutate_priorities",
    "delete": "delete",
    "reset": "reset",
    "configure": "configure",
    "checkpoint": "checkpoint",
}
#: Calls without a table.
_WITHOUT_TABLE = ("flush", "checkpoint")


def _tracer() -> Any:
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise ImportError('tracing needs OpenTelemetry: pip install "reverie[otel]"') from error
    from importlib import metadata  # Not at the top: it loads fifty modules, of which `import reverie` needs none.

    return trace.get_tracer("reverie", metadata.version("reverie"))


@functools.cache
def traced(client: Any) -> Any:
    """A subclass of a client's class, each of whose calls makes a span under the caller's current one.

    The requests of a call carry the ids of its span to the server. If no SDK is set up, a call has no ids of its own
    and passes on those of its caller, if there are any.

    Raises:
        ImportError: OpenTelemetry is not installed.
    """
    tracer = _tracer()
    calls = {name: _call(tracer, getattr(client, name), verb) for name, verb in CALLS.items()}
    others = {
        "_writer_spans": property(functools.partial(WriterSpans, tracer)),
        "_kind_of_batches": _traced_batches(tracer, client._kind_of_batches),
    }
    of = {"__module__": client.__module__, "__doc__": client.__doc__}
    return type(client.__name__, (client,), {**of, **calls, **others})


def _call(tracer: Any, method: Callable[..., Any], verb: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        table = "" if verb in _WITHOUT_TABLE else _tables(verb, args, kwargs)
        with _span(tracer, self, verb, table):
            return method(self, *args, **kwargs)

    return call


@contextlib.contextmanager
def _span(tracer: Any, client: Any, verb: str, table: str = "") -> Iterator[Any]:
    """A span of a client, to which the requests of this thread belong."""
    from opentelemetry.trace import SpanKind

    attributes: dict[str, Any] = {"db.system.name": "reverie", "db.operation.name": verb}
    if table:
        attributes["db.collection.name"] = table
    if client.server_address is not None:
        host, _, port = client.server_address.rpartition(":")
        attributes |= {"server.address": host, "server.port": int(port)}
    with (
        tracer.start_as_current_span(f"{verb} {table}".strip(), kind=SpanKind.CLIENT, attributes=attributes) as span,
        _requests_of(span.get_span_context()),
    ):
        before = client._reconnects()
        try:
            yield span
        finally:
            for name, earlier, now in zip(("reconnects", "server_restarts"), before, client._reconnects(), strict=True):
                if now > earlier:
                    span.set_attribute(f"reverie.{name}", now - earlier)


class WriterSpans:
    """The spans of a writer's waits, and the traces of its inserts; the engine's side of the writer calls it."""

    def __init__(self, tracer: Any, client: Any) -> None:
        from opentelemetry import trace

        self._tracer, self._client, self._trace = tracer, client, trace

    def current(self) -> tuple[int, int, bool] | None:
        """The ids of the caller's current span, to which an item that is made now belongs."""
        return _ids(self._trace.get_current_span().get_span_context())

    def during(self, verb: str) -> contextlib.AbstractContextManager[Any]:
        """A span for a wait."""
        return _span(self._tracer, self._client, verb)


def _traced_batches(tracer: Any, batches: Any) -> Any:
    """A subclass of the iterators of batches, each of whose waits for a batch is a span.

    The requests that a wait sends ahead belong to its span. So the request for a batch may belong to an earlier one:
    the span links to it.
    """
    from opentelemetry import trace

    def __init__(self: Any, client: Any, *args: Any, **kwargs: Any) -> None:
        with _requests_of(trace.get_current_span().get_span_context()):
            batches.__init__(self, client, *args, **kwargs)

    def _next(self: Any) -> Any:
        if self._ahead is None and self._windows is None:
            return batches._next(self)  # a call of `sample_batch`, which has a span
        _native._answered_trace()
        with _span(tracer, self._client, "batches", ",".join(self.tables)) as span:
            batch = batches._next(self)
            own, asked = _ids(span.get_span_context()), _native._answered_trace()
            if own is not None and asked is not None and asked[:2] != own[:2]:
                flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if asked[2] else trace.TraceFlags.DEFAULT)
                span.add_link(trace.SpanContext(asked[0], asked[1], is_remote=False, trace_flags=flags))
            return batch

    members = {"__module__": batches.__module__, "__doc__": batches.__doc__, "__init__": __init__, "_next": _next}
    return type(batches.__name__, (batches,), members)


def _tables(verb: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    if verb != "insert":
        return str(args[0] if args else kwargs.get("table", ""))
    priorities = args[1] if len(args) > 1 else kwargs.get("priorities")
    return ",".join(map(str, priorities)) if isinstance(priorities, Mapping) else ""


def _ids(span: Any) -> tuple[int, int, bool] | None:
    return (span.trace_id, span.span_id, span.trace_flags.sampled) if span.is_valid else None


@contextlib.contextmanager
def _requests_of(span: Any) -> Iterator[None]:
    """The requests that this thread makes belong to the span with this context."""
    before = _native._set_trace(_ids(span))
    try:
        yield
    finally:
        _native._set_trace(before)


class TracedServer(Protocol):
    """A server that listens, with the attribute that its spans need."""

    @property
    def _native(self) -> _native.Server: ...


class RequestSpans:
    """Makes a span of each traced request that a server has answered. It has a thread of its own.

    The parent of such a span is that of the client's call. Requests whose trace is not recorded have none. A span that
    the SDK fails to take is counted as dropped; the first such failure is logged.

    Args:
        server: a server that listens and notes spans. It is not kept alive: the thread ends with it.

    Raises:
        ImportError: OpenTelemetry is not installed.
    """

    def __init__(self, server: TracedServer) -> None:
        self._tracer, self._server = _tracer(), weakref.ref(server)
        self._lost = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reverie-spans", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(PERIOD) and self._export():
            pass

    def _export(self) -> bool:
        """Makes the spans that are done; false once there is no server."""
        server = self._server()
        if server is None:
            return False
        # Their ages are those of now: after some thousands of spans it would be later.
        requests, now = server._native.take_spans(), time.time_ns()
        lost = sum(not self._is_made(request, now) for request in requests)
        if lost:
            server._native.drop_spans(lost)
        return True

    def _is_made(self, request: Mapping[str, Any], now: int) -> bool:
        """Makes a span; false if the SDK raised, which may call a program's own sampler, processors and exporters."""
        try:
            self._make(request, now)
        except Exception:
            if not self._lost:
                logger().exception(
                    "a span of a request could not be exported; later failures are counted, and not logged"
                )
            self._lost += 1
            return False
        return True

    def _make(self, request: Mapping[str, Any], now: int) -> None:
        from opentelemetry import trace

        sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        parent = trace.SpanContext(request["trace"], request["parent"], is_remote=True, trace_flags=sampled)
        attributes = {
            "db.system.name": "reverie",
            "db.operation.name": request["verb"],
            "db.collection.name": request["tables"],
            "reverie.transport": request["transport"],
        }
        if request["wait"] is not None:
            reason, text, seconds = request["wait"]
            attributes |= {
                "reverie.wait.reason": reason,
                "reverie.wait.text": text,
                "reverie.wait.seconds": seconds,
            }
        span = self._tracer.start_span(
            f"{request['verb']} {request['tables']}".strip(),
            trace.set_span_in_context(trace.NonRecordingSpan(parent)),
            trace.SpanKind.SERVER,
            {name: value for name, value in attributes.items() if value != ""},
            start_time=now - request["began"],
        )
        if request["error"] is not None:
            kind, text = request["error"]
            span.set_attribute("error.type", kind)
            span.set_status(trace.Status(trace.StatusCode.ERROR, text))
        span.end(now - request["ended"])

    def stop(self) -> None:
        """Makes the last spans, after the server has stopped. Idempotent."""
        self._ends.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._export()


def provide() -> None:
    """Sets up OpenTelemetry's SDK by the environment, as `reverie serve --tracing` needs it.

    The variables are those of every SDK: OTEL_SERVICE_NAME ("reverie" if it is not set), OTEL_TRACES_EXPORTER ("otlp"
    by default), OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER and so on. Does nothing if a program has set up the
    SDK already, as `opentelemetry-instrument` does.

    Raises:
        ImportError: OpenTelemetry is not installed.
        ValueError: OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_PROTOCOL names an exporter that is not installed.
    """
    _tracer()
    from opentelemetry import trace

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    try:
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ImportError('exporting spans needs OpenTelemetry\'s SDK: pip install "reverie[otel]"') from error
    named = SERVICE_NAME in OTELResourceDetector().detect().attributes
    provider = TracerProvider(resource=Resource.create(None if named else {SERVICE_NAME: "reverie"}))
    for exporter in _exporters():
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def _exporters() -> list[Any]:
    exporters = []
    for name in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(","):
        entry = name.strip()
        if entry in ("", "none"):
            continue
        if entry == "otlp":
            given = (os.environ.get(f"OTEL_EXPORTER_OTLP_{of}PROTOCOL") for of in ("TRACES_", ""))
            protocol = next(filter(None, given), "http/protobuf")
            entry = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}.get(protocol, protocol)
        from importlib import metadata

        found = metadata.entry_points(group="opentelemetry_traces_exporter", name=entry)
        if not found:
            raise ValueError(
                f"no exporter of spans is installed under the name {entry!r} (OTEL_TRACES_EXPORTER, "
                'OTEL_EXPORTER_OTLP_PROTOCOL): pip install "reverie[otel]" brings the one for http/protobuf'
            )
        exporters.append(next(iter(found)).load()())
    return exporters
