"""A closed flight record becomes the spans of its request. Pure; docs/tracing.md has the tree and what it tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, ParamSpec

from opentelemetry.trace import SpanKind

from gateway.flight import AttemptRecord, FlightRecord, Role

from . import genai_names as genai
from .trace_span import Shared, TraceEvent, TraceSpan

_P = ParamSpec("_P")

Made = dict[str, str | bool | int | float]

QUEUE_SHOWN_S = 0.001
REASON_CHARS = 120
HEADER_CHARS = 256
KNOWN_KINDS = 1000

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"))
_ROUTES = {"chat": "/v1/chat/completions", "text_completion": "/v1/completions", "embeddings": "/v1/embeddings"}
_FAILURES = frozenset(("upstream_error", "timeout", "internal_error"))
_NOTHING = Shared({})
_LAST_ID = (1 << 64) - 1


class Peer(NamedTuple):
    """An endpoint, as a span tells of it.

    Attributes:
        engine: Its adapter's name.
        policy: The routing policy of its pool.
    """

    endpoint: str
    engine: str
    address: str
    port: int
    policy: str

    @property
    def has_server_span(self) -> bool:
        """Whether the engine sends a SERVER span below ours, if it traces: then a service graph needs no hint."""
        return self.engine == "vllm"


class SpanMaker:
    """Makes spans of one process; in one thread.

    Args:
        address: Host and port that clients connect to, where a request named none.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._known: dict[object, Shared] = {}

    def spans(self, record: FlightRecord, peers: Mapping[str, Peer]) -> list[TraceSpan]:
        """Returns the spans of a closed request, those of its attempts in order and its own last.

        Args:
            record: Closed, and with a trace id.
            peers: The endpoints of its attempts, by id.
        """
        trace = _Trace(record)
        made: list[TraceSpan] = []
        begun_s = record.begun_s
        admitted_s = record.admitted_s
        if admitted_s is not None and admitted_s - begun_s >= QUEUE_SHOWN_S:
            made.append(trace.phase("weir.queue", record.span_id, begun_s, admitted_s, _NOTHING))
        for number, attempt in enumerate(record.attempts, start=1):
            self._add_attempt(made, trace, record, attempt, number, peers[attempt.endpoint_id])
        shared = self._server_shared(record)
        made.append(
            TraceSpan(
                record.trace_id,
                record.span_id,
                record.parent_span_id,
                True,
                f"{shared.attributes['http.request.method']} {shared.attributes['http.route']}",
                SpanKind.SERVER,
                *trace.times_ns(begun_s, record.done_s or begun_s),
                shared,
                _server_own(record),
                record.status >= 500 or record.outcome in _FAILURES,  # the client got that, or half an answer
            )
        )
        return made

    def _add_attempt(
        self,
        made: list[TraceSpan],
        trace: _Trace,
        record: FlightRecord,
        attempt: AttemptRecord,
        number: int,
        peer: Peer,
    ) -> None:
        first_s, sent_s, span_id = attempt.first_output_s, attempt.sent_s, attempt.span_id
        last = attempt is record.final
        chunks = attempt.chunks if record.resumed else record.chunks if last else 0
        if first_s is not None and sent_s is not None:
            phase = self._shared((attempt.endpoint_id, attempt.role), _phase_shared, peer, attempt.role)
            made.append(trace.phase("weir.first_token", span_id, sent_s, first_s, phase))
            last_s = record.last_output_s if last else attempt.ended_s
            if chunks and last_s is not None:
                stalls = tuple(
                    [
                        TraceEvent("weir.stall", trace.ns(at_s), {"gap_us": _us(gap_s), "chunk": chunk})
                        for at_s, gap_s, chunk in attempt.stalls
                    ]
                )
                made.append(trace.phase("weir.stream", span_id, first_s, last_s, phase, stalls))
        key = (peer, record.operation, record.model, record.stream, number, attempt.status, attempt.role)
        made.append(
            TraceSpan(
                record.trace_id,
                span_id,
                record.span_id,
                False,
                f"{record.operation} {record.model}" if record.model else record.operation,
                SpanKind.CLIENT,
                *trace.times_ns(attempt.chosen_s, attempt.ended_s or attempt.chosen_s),
                self._shared(key, _attempt_shared, *key),
                _attempt_own(record, attempt, last=last, chunks=chunks),
                attempt.outcome not in ("ok", "cancelled"),
                (),
                () if attempt.joined is None else (attempt.joined,),
            )
        )

    def _server_shared(self, record: FlightRecord) -> Shared:
        caller = record.caller
        key = (
            record.method, record.path, record.operation, record.status, record.pool, record.model, record.stream,
            record.outcome, len(record.attempts), record.keep_reason,
            caller and (caller.scheme, caller.http_version, caller.headers),
        )  # fmt: skip
        return self._shared(key, _server_shared, record, self._address)

    def _shared(self, key: object, make: Callable[_P, Made], *args: _P.args, **kwargs: _P.kwargs) -> Shared:
        """What a kind of spans has in common; much of it is a client's to choose, so only so many are kept."""
        shared = self._known.get(key)
        if shared is None:
            shared = Shared(make(*args, **kwargs))
            if len(self._known) < KNOWN_KINDS:
                self._known[key] = shared
        return shared


class _Trace:
    """What the spans of one request have in common, and its clock: one pair of readings, all else are differences."""

    __slots__ = ("_id", "_next_id", "_zero_s", "_zero_unix_ns")

    def __init__(self, record: FlightRecord) -> None:
        self._id = record.trace_id
        self._next_id = int(record.span_id, 16)
        self._zero_s = record.received_s
        self._zero_unix_ns = int(record.received_unix_s * 1e9)

    def ns(self, at_s: float) -> int:
        """Wall clock."""
        return self._zero_unix_ns + int((at_s - self._zero_s) * 1e9)

    def times_ns(self, from_s: float, to_s: float) -> tuple[int, int]:
        begun_ns = self.ns(from_s)
        return begun_ns, max(begun_ns, self.ns(to_s))

    def phase(
        self, name: str, parent: str, from_s: float, to_s: float, shared: Shared, events: tuple[TraceEvent, ...] = ()
    ) -> TraceSpan:
        """A part of a span's time. Nobody is told its id before, so it follows from the request's own."""
        self._next_id = self._next_id % _LAST_ID + 1
        begun_ns, ended_ns = self.times_ns(from_s, to_s)
        span_id = f"{self._next_id:016x}"
        return TraceSpan(
            self._id, span_id, parent, False, name, SpanKind.INTERNAL, begun_ns, ended_ns, shared, {}, False, events
        )


def _phase_shared(peer: Peer, role: Role) -> Made:
    return {"weir.endpoint": peer.endpoint, "weir.role": role}


def _attempt_shared(
    peer: Peer, operation: str, model: str, stream: bool, number: int, status: int | None, role: Role
) -> Made:
    made: Made = {
        genai.OPERATION_NAME: operation,
        genai.PROVIDER_NAME: genai.provider(peer.engine),
        genai.REQUEST_MODEL: model,
        "server.address": peer.address,
        "server.port": peer.port,
        "weir.endpoint": peer.endpoint,
        "weir.role": role,
        "weir.attempt": number,
        "weir.route.policy": peer.policy,
    }
    if not peer.has_server_span:
        made["peer.service"] = peer.endpoint
    if stream:
        made[genai.REQUEST_STREAM] = True
    if number > 1 and role == "primary":
        made["http.request.resend_count"] = number - 1
    if status is not None:
        made["http.response.status_code"] = status
    return made


def _attempt_own(record: FlightRecord, attempt: AttemptRecord, *, last: bool, chunks: int) -> Made:
    made: Made = {"weir.route.reason": attempt.reason[:REASON_CHARS]}
    if attempt.lost:
        made["weir.lost"] = True
    first_s = attempt.first_output_s
    if record.stream and first_s is not None and attempt.sent_s is not None:
        made[genai.TIME_TO_FIRST_CHUNK] = first_s - attempt.sent_s
    if attempt.resumes:
        made["weir.resumes"] = True
    if chunks and last:
        made["weir.longest_gap_us"] = _us(record.longest_gap_s)
        if chunks > 1 and record.last_output_s is not None and first_s is not None:
            made["weir.itl_mean_us"] = _us((record.last_output_s - first_s) / (chunks - 1))
    usage = record.usage
    if last and usage is not None and not usage.estimated:
        made[genai.INPUT_TOKENS] = usage.prompt_tokens
        made[genai.OUTPUT_TOKENS] = usage.completion_tokens
        if usage.cached_tokens is not None:
            made[genai.CACHED_TOKENS] = usage.cached_tokens
        if usage.reasoning_tokens is not None:
            made[genai.REASONING_TOKENS] = usage.reasoning_tokens
    if record.caller is not None:
        for field, value in record.caller.parameters:
            attribute = genai.request_attribute(field, value)
            if attribute is not None:
                made[attribute[0]] = attribute[1]
    if attempt.outcome not in ("ok", "cancelled"):
        status = attempt.status
        refused = status is not None and status >= 400
        made["error.type"] = attempt.error_type or (str(status) if refused else "internal")
    return made


def _server_shared(record: FlightRecord, address: tuple[str, int]) -> Made:
    known = record.method in _METHODS
    host, port = address
    made: Made = {
        "http.request.method": record.method if known else "_OTHER",
        "http.route": _ROUTES.get(record.operation, "/v1/*"),
        "url.path": record.path,
        "server.address": host,
        "server.port": port,
        genai.OPERATION_NAME: record.operation,
        "weir.outcome": record.outcome or "internal_error",
        "weir.attempts": len(record.attempts),
    }
    if not known:
        made["http.request.method_original"] = record.method
    if record.status:  # the client may have left before there was one
        made["http.response.status_code"] = record.status
    if record.pool:
        made["weir.pool"] = record.pool
        made[genai.REQUEST_MODEL] = record.model
    if record.stream:
        made[genai.REQUEST_STREAM] = True
    if record.keep_reason is not None:
        made["weir.keep_reason"] = record.keep_reason
    caller = record.caller
    if caller is not None:
        made["url.scheme"] = caller.scheme
        made["network.protocol.version"] = caller.http_version
        for name, value in caller.headers:
            if name == b"user-agent":
                made["user_agent.original"] = value[:HEADER_CHARS].decode("latin-1")
            elif name == b"host":
                made["server.address"], made["server.port"] = _host(value, caller.scheme, port)
    return made


def _server_own(record: FlightRecord) -> Made:
    made: Made = {
        "weir.request.id": record.request_id,
        "weir.queue_us": _us(record.queue_s),
        "weir.chunks": record.chunks,
    }
    if (ttft_s := record.ttft_s) is not None:
        made["weir.ttft_us"] = _us(ttft_s)
        made["weir.longest_gap_us"] = _us(record.longest_gap_s)
    sent_s = record.attempts[0].sent_s if record.attempts else None
    if sent_s is not None:
        made["weir.overhead_us"] = _us(sent_s - record.begun_s - record.queue_s)
    if record.error_type is not None and record.outcome != "cancelled":
        made["error.type"] = record.error_type
    return made


def _host(value: bytes, scheme: str, otherwise: int) -> tuple[str, int]:
    """Splits a ``Host`` header; whatever a client wrote there."""
    text = value[:HEADER_CHARS].decode("latin-1")
    host, colon, port = text.rpartition(":")
    if colon and port.isascii() and port.isdigit() and len(port) <= 5:
        return host.strip("[]"), int(port)
    return text.strip("[]"), {"http": 80, "https": 443}.get(scheme, otherwise)


def _us(seconds: float) -> int:
    return max(0, round(seconds * 1e6))
