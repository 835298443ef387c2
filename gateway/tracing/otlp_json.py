"""OTLP/HTTP with JSON: spans as a collector reads them, and the exporter that posts them.

A request that may succeed later (429, 502, 503, 504, a broken connection) is sent again until the time for the batch is
over; whatever else a receiver says ends the batch. Runs in the thread of the SDK's batch processor.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import random
import socket
import ssl
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, cast
from urllib.parse import urlsplit

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from gateway.printable import printable

from .trace import Trace
from .trace_span import Process, TraceEvent, TraceSpan, attributes_json, text_json

log = logging.getLogger("weir.tracing")

RETRIED = frozenset((429, 502, 503, 504))
LEAST_WAIT_S = 0.1
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 5.0
ANSWER_BYTES = 65536
REASON_CHARS = 200


def encode(spans: Sequence[TraceSpan], process: Process) -> bytes:
    """Returns an ExportTraceServiceRequest in OTLP's JSON.

    Put together as text: a tree of dicts for the JSON library takes four times as long to make.
    """
    resource, scope = process
    return (
        f'{{"resourceSpans":[{{"resource":{{"attributes":[{_resource_json(resource)}]}},'
        f'"scopeSpans":[{{"scope":{{"name":{text_json(scope.name)},"version":{text_json(scope.version or "")}}},'
        f'"spans":[{",".join([_span(span) for span in spans])}]}}]}}]}}'
    ).encode()


def _resource_json(resource: Resource) -> str:
    whole = {key: value for key, value in resource.attributes.items() if isinstance(value, str | bool | int | float)}
    return attributes_json(whole)


def _span(span: TraceSpan) -> str:
    trace_id, span_id, parent_id, _, start_ns, end_ns, shared, own, failed, events, links, state = span
    parent = f',"parentSpanId":"{parent_id}"' if parent_id else ""
    more = _more(failed=failed, events=events, links=links) if failed or events or links else ""
    if state:
        more += f',"traceState":{text_json(state)}'
    attributes = shared.json
    if own:
        attributes = f"{attributes},{attributes_json(own)}" if attributes else attributes_json(own)
    return (
        f'{{"traceId":"{trace_id}","spanId":"{span_id}",{shared.head_json},"startTimeUnixNano":"{start_ns}",'
        f'"endTimeUnixNano":"{end_ns}","attributes":[{attributes}]{parent}{more}}}'
    )


def _more(*, failed: bool, events: Sequence[TraceEvent], links: Sequence[tuple[str, str]]) -> str:
    """What few spans have."""
    more = ',"status":{"code":2}' if failed else ""
    if events:
        more += f',"events":[{",".join([_event(event) for event in events])}]'
    if links:
        more += f',"links":[{",".join([_link(*link) for link in links])}]'
    return more


def _event(event: TraceEvent) -> str:
    name, at_ns, attributes = event
    return f'{{"timeUnixNano":"{at_ns}","name":{text_json(name)},"attributes":[{attributes_json(attributes)}]}}'


def _link(trace_id: str, span_id: str) -> str:
    return f'{{"traceId":"{trace_id}","spanId":"{span_id}"}}'


@dataclass(frozen=True, slots=True)
class Target:
    """Where the spans go.

    Attributes:
        url: Whole, ``/v1/traces`` included.
        headers: Sent with each request; may hold a credential.
        timeout_s: For one batch, all tries included.
        gzip: Whether bodies are compressed.
        trusted: File of the certificates that may have signed the receiver's; "" for the system's.
        certificate: File of the certificate that is shown to the receiver, and of its key; "" for none.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 10.0
    gzip: bool = False
    trusted: str = ""
    certificate: tuple[str, str] = ("", "")

    def tls(self) -> ssl.SSLContext | None:
        """Returns what the connection is secured by, if it is.

        Raises:
            OSError: A file cannot be read, or holds no certificate.
        """
        if not self.url.startswith("https:"):
            return None
        context = ssl.create_default_context(cafile=self.trusted or None)
        certificate, key = self.certificate
        if certificate:
            context.load_cert_chain(certificate, key or None)
        return context


class OtlpJsonExporter(SpanExporter):
    """Posts batches of spans.

    Attributes:
        rejected_spans: Of the last batch that was taken: spans that the receiver said it had not taken.

    Raises:
        OSError: As ``Target.tls``.
    """

    def __init__(self, target: Target) -> None:
        self.rejected_spans = 0
        self._target = target
        parts = urlsplit(target.url)
        self._host, self._port = parts.hostname or "", parts.port
        self._path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        self._tls = target.tls()
        self._headers = {"content-type": "application/json", "user-agent": "weir", **dict(target.headers)}
        if target.gzip:
            self._headers["content-encoding"] = "gzip"
        self._connection: http.client.HTTPConnection | None = None
        self._failing = False
        self._exporting = threading.Lock()
        self._over = threading.Event()
        self._latest_s = float("inf")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends one batch, of ``Trace``; returns when it is taken or given up. Never raises."""
        with self._exporting:
            return self._export(spans)

    def _export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.rejected_spans = 0
        try:
            traces = cast("Sequence[Trace]", spans)
            whole = [span for trace in traces for span in trace.spans()]
            body = encode(whole, traces[0].process)
            failure = self._send(_gzip(body) if self._target.gzip else body, len(whole))
        except Exception as error:  # telemetry fails nothing
            failure = repr(error)
        if failure is None:
            if self._failing:
                log.info("traces are taken again by %s", self._host)
            self._failing = False
            return SpanExportResult.SUCCESS
        if not self._failing:
            log.warning(
                "traces are lost: %s says %s; weir_trace_records_total counts them",
                self._host,
                printable(failure, REASON_CHARS),
            )
        self._failing = True
        return SpanExportResult.FAILURE

    def hurry(self, within_s: float) -> None:
        """What is still to be sent may take so long altogether; another thread's call."""
        self._latest_s = monotonic() + within_s

    def shutdown(self) -> None:
        """Ends whatever is under way; another thread's call. Later batches are given up."""
        self._over.set()
        if self._exporting.acquire(blocking=False):
            self._close()
            self._exporting.release()
            return
        connection = self._connection
        if connection is not None and isinstance(connection.sock, socket.socket):
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)  # a read that waits ends, and with it the batch

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True  # nothing is held back here

    def _send(self, body: bytes, spans: int) -> str | None:
        """Returns why the batch is given up, or None."""
        due_s = monotonic() + self._target.timeout_s
        wait_s = FIRST_WAIT_S
        while True:
            left_s = min(due_s, self._latest_s) - monotonic()
            if self._over.is_set() or left_s <= 0:
                self._close()
                return "nothing in time"
            reused = self._connection is not None
            try:
                status, retry_after, answer = self._post(body, left_s)
            except (OSError, http.client.HTTPException) as error:
                self._close()
                failure = str(error) or type(error).__name__
                pause_s = 0.0 if reused else wait_s  # a kept connection may have been closed long ago
            else:
                if 200 <= status < 300:
                    return self._taken(answer, spans)
                failure = f"{status} {answer.decode('utf-8', 'replace')}"
                if status not in RETRIED:
                    return failure
                pause_s = wait_s if retry_after is None else max(retry_after, LEAST_WAIT_S)
            if pause_s:
                wait_s = min(wait_s * 2, LONGEST_WAIT_S)
                pause_s *= random.uniform(1.0, 1.2)
            if monotonic() + pause_s >= min(due_s, self._latest_s):
                return failure
            if self._over.wait(pause_s):
                return failure

    def _post(self, body: bytes, timeout_s: float) -> tuple[int, float | None, bytes]:
        """Returns status, seconds of Retry-After, and the first of the answer's body."""
        connection = self._connection
        if connection is None:
            connection = self._connection = (
                http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
                if self._tls is None
                else http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._tls)
            )
        elif connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        connection.request("POST", self._path, body, self._headers)
        response = connection.getresponse()
        answer = response.read(ANSWER_BYTES)
        if response.will_close or not response.isclosed():
            self._close()
        return response.status, _seconds(response.getheader("retry-after")), answer

    def _taken(self, answer: bytes, spans: int) -> str | None:
        rejected, message = _partial_success(answer)
        if rejected >= spans:
            return f"all spans are rejected: {message}"
        if rejected:
            log.warning("%d of %d spans are rejected: %s", rejected, spans, printable(message, REASON_CHARS))
        self.rejected_spans = rejected
        return None

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _gzip(body: bytes) -> bytes:
    compressor = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return compressor.compress(body) + compressor.flush()


def _seconds(retry_after: str | None) -> float | None:
    """Seconds of a ``Retry-After``; None for a date, which needs the receiver's clock."""
    text = (retry_after or "").strip()
    return float(text) if text.isascii() and text.isdigit() else None


def _partial_success(answer: bytes) -> tuple[int, str]:
    """Spans that were not taken, and why; of an answer of any shape."""
    try:
        partial: Any = orjson.loads(answer)["partialSuccess"]
        return int(partial["rejectedSpans"]), str(partial.get("errorMessage") or "")
    except (ValueError, TypeError, KeyError, AttributeError):
        return 0, ""
