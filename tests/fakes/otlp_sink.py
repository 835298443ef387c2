"""A receiver of traces: takes OTLP over HTTP, protobuf or JSON, and answers as the test says.

The reading shares no code with Weir: protobuf by OpenTelemetry's own classes, JSON by the standard library.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.fakes.scripted import eventually

SERVER, CLIENT, INTERNAL = 2, 3, 1
ERROR = 2


@dataclass(frozen=True, slots=True)
class SunkSpan:
    """A span as it came in; ids in hexadecimal, "" for none."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    flags: int
    status: int
    attributes: Mapping[str, Any]
    events: Sequence[tuple[str, int, Mapping[str, Any]]]
    links: Sequence[tuple[str, str]]
    resource: Mapping[str, Any]
    scope: str
    state: str


@dataclass(frozen=True, slots=True)
class Told:
    """One answer of the sink. ``gate`` holds it back until it is set."""

    status: int = 200
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = ()
    gate: threading.Event | None = None


@dataclass(slots=True)
class Post:
    """One request as it came in."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class OtlpSink:
    """What came in.

    Attributes:
        answers: One a request, the last repeated; a batch counts as taken if its answer is a 200.
        spans: Those that were taken, in order.
    """

    answers: list[Told]
    port: int = 0
    posts: list[Post] = field(default_factory=list[Post])
    spans: list[SunkSpan] = field(default_factory=list[SunkSpan])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def whole(self, count: int = 1, within_s: float = 10.0) -> list[list[SunkSpan]]:
        """Waits for that many traces with their SERVER span; returns all there are, by request."""
        await eventually(lambda: sum(span.kind == SERVER for span in self.spans) >= count, within_s)
        return self.traces()

    def traces(self) -> list[list[SunkSpan]]:
        """The taken spans by the request whose SERVER span they hang from, in order."""
        spans = list(self.spans)
        parents = {span.span_id: span.parent_id for span in spans}
        roots = [span for span in spans if span.kind == SERVER]

        def root(span: SunkSpan) -> str:
            at = span.span_id
            while parents.get(at) in parents:
                at = parents[at]
            return at

        return [[span for span in spans if root(span) == server.span_id] for server in roots]


def one(spans: Sequence[SunkSpan], name: str | None = None, kind: int | None = None) -> SunkSpan:
    """The one span of that name or kind."""
    (found,) = [span for span in spans if name in (None, span.name) and kind in (None, span.kind)]
    return found


@contextmanager
def otlp_sink(*answers: Told) -> Generator[OtlpSink]:
    """A sink on a free port of 127.0.0.1."""
    sink = OtlpSink(list(answers or (Told(),)))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            told = sink.answers[min(len(sink.posts), len(sink.answers) - 1)]
            sink.posts.append(Post(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            if told.gate is not None:
                told.gate.wait(20)
            if told.status == 200:
                sink.spans += _read(body, self.headers.get("content-type", ""), self.headers.get("content-encoding"))
            try:
                self.send_response(told.status)
                for name, value in (("content-length", str(len(told.body))), *told.headers):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(told.body)
            except OSError:
                pass  # whoever asked has gone

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    sink.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield sink
    finally:
        for told in sink.answers:
            if told.gate is not None:
                told.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _read(body: bytes, content_type: str, coding: str | None) -> list[SunkSpan]:
    data = gzip.decompress(body) if coding == "gzip" else body
    if content_type == "application/json":
        return _from_json(json.loads(data))
    assert content_type == "application/x-protobuf", content_type
    return _from_protobuf(data)


def _from_json(request: Any) -> list[SunkSpan]:
    return [
        SunkSpan(
            span["name"],
            span["kind"],
            span["traceId"],
            span["spanId"],
            span.get("parentSpanId", ""),
            int(span["startTimeUnixNano"]),
            int(span["endTimeUnixNano"]),
            span["flags"],
            span.get("status", {}).get("code", 0),
            _json_attributes(span["attributes"]),
            [
                (event["name"], int(event["timeUnixNano"]), _json_attributes(event["attributes"]))
                for event in span.get("events", [])
            ],
            [(link["traceId"], link["spanId"]) for link in span.get("links", [])],
            _json_attributes(resource["resource"]["attributes"]),
            scope["scope"]["name"],
            span.get("traceState", ""),
        )
        for resource in request["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


_JSON_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "stringValue": str,
    "intValue": int,  # a decimal string
    "boolValue": bool,
    "doubleValue": float,
    "arrayValue": lambda array: [_JSON_KINDS[kind](value) for each in array["values"] for kind, value in each.items()],
}


def _json_attributes(attributes: Sequence[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for attribute in attributes:
        assert attribute["key"] not in found
        ((kind, value),) = attribute["value"].items()
        assert isinstance(value, str) == (kind in ("stringValue", "intValue"))
        found[attribute["key"]] = _JSON_KINDS[kind](value)
    return found


def _from_protobuf(data: bytes) -> list[SunkSpan]:
    request: Any = ExportTraceServiceRequest.FromString(data)
    return [
        SunkSpan(
            span.name,
            span.kind,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            span.flags,
            span.status.code,
            _attributes(span.attributes),
            [(event.name, event.time_unix_nano, _attributes(event.attributes)) for event in span.events],
            [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
            _attributes(resource.resource.attributes),
            scope.scope.name,
            span.trace_state,
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _attributes(attributes: Any) -> dict[str, Any]:
    return {a.key: _value(a.value) for a in attributes}


def _value(value: Any) -> Any:
    told = getattr(value, kind := value.WhichOneof("value"))
    return [_value(each) for each in told.values] if kind == "array_value" else told
