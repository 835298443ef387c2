"""A closed flight record becomes the spans of its request. Pure; docs/tracing.md has the tree and what it tells."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Literal, NamedTuple

from opentelemetry.trace import SpanKind

from adapters.types import AnswerFacts
from gateway.flight import AttemptRecord, FlightRecord, Role
from gateway.trace_context import state_text

from . import genai_names as genai
from .trace_span import AttributeValue, Shared, TraceEvent, TraceSpan

PhaseName = Literal["weir.first_token", "weir.stream"]
Made = dict[str, AttributeValue]

QUEUE_SHOWN_S = 0.001
REASON_CHARS = 120
HEADER_CHARS = 256
KNOWN_KINDS = 1000

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"))
_ROUTES = {"chat": "/v1/chat/completions", "text_completion": "/v1/completions", "embeddings": "/v1/embeddings"}
_FAILURES = frozenset(("upstream_error", "timeout", "internal_error"))
_QUEUE = Shared("weir.queue", SpanKind.INTERNAL, {})
_LAST_ID = (1 << 64) - 1
_kind = attrgetter("method", "path", "operation", "status", "pool", "model", "stream", "outcome", "keep_reason")


def _client_was_failed(record: FlightRecord) -> bool:
    """Whether the client got a 5xx, or half an answer."""
    cut = record.outcome == "shed" and record.status == 200  # what is shed before it has begun has another status
    return record.status >= 500 or record.outcome in _FAILURES or cut


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
        begun_s, admitted_s, final, resumed = record.begun_s, record.admitted_s, record.final, record.resumed
        if admitted_s is not None and admitted_s - begun_s >= QUEUE_SHOWN_S:
            made.append(trace.phase(_QUEUE, record.span_id, begun_s, admitted_s))
        for number, attempt in enumerate(record.attempts, start=1):
            last = attempt is final
            chunks = attempt.chunks if resumed else record.chunks if last else 0
            peer = peers[attempt.endpoint_id]
            if attempt.first_output_s is not None and attempt.sent_s is not None:
                last_s = record.last_output_s if last else attempt.ended_s
                self._add_phases(made, trace, attempt, peer, last_s if chunks else None)
            key = (peer, record.operation, record.model, record.stream, number, attempt.status, attempt.role)
            begun_ns, ended_ns = trace.times_ns(attempt.chosen_s, attempt.ended_s or attempt.chosen_s)
            made.append(
                TraceSpan(
                    record.trace_id,
                    attempt.span_id,
                    record.span_id,
                    False,
                    begun_ns,
                    ended_ns,
                    self._known.get(key) or self._keep(key, _attempt_shared(*key)),
                    _attempt_own(record, attempt, last=last, chunks=chunks),
                    attempt.outcome not in ("ok", "cancelled"),
                    (),
                    () if attempt.joined is None else (attempt.joined,),
                    trace.state,
                )
            )
        begun_ns, ended_ns = trace.times_ns(begun_s, record.done_s or begun_s)
        made.append(
            TraceSpan(
                record.trace_id,
                record.span_id,
                record.parent_span_id,
                True,
                begun_ns,
                ended_ns,
                self._server_shared(record),
                _server_own(record),
                _client_was_failed(record),
                state=trace.state,
            )
        )
        return made

    def _add_phases(
        self, made: list[TraceSpan], trace: _Trace, attempt: AttemptRecord, peer: Peer, last_s: float | None
    ) -> None:
        """Adds the parts of an attempt that gave output, until ``last_s`` if the client had any of it."""
        first_s, sent_s = attempt.first_output_s, attempt.sent_s
        assert first_s is not None
        assert sent_s is not None
        shared = self._phase_shared("weir.first_token", peer, attempt.role)
        made.append(trace.phase(shared, attempt.span_id, sent_s, first_s))
        if last_s is None:
            return
        stalls = [
            TraceEvent("weir.stall", trace.ns(at_s), {"gap_us": _us(gap_s), "chunk": chunk})
            for at_s, gap_s, chunk in attempt.stalls
        ]
        shared = self._phase_shared("weir.stream", peer, attempt.role)
        made.append(trace.phase(shared, attempt.span_id, first_s, last_s, tuple(stalls)))

    def _phase_shared(self, name: PhaseName, peer: Peer, role: Role) -> Shared:
        key = (name, peer.endpoint, role)
        return self._known.get(key) or self._keep(key, _phase_shared(*key))

    def _server_shared(self, record: FlightRecord) -> Shared:
        caller = record.caller
        asked = None if caller is None else (caller.http_version, caller.scheme, caller.headers)
        key = (_kind(record), len(record.attempts), asked)
        return self._known.get(key) or self._keep(key, _server_shared(record, self._address))

    def _keep(self, key: object, made: Shared) -> Shared:
        """What a kind of spans has in common; much of it is a client's to choose, so only so many are kept."""
        if len(self._known) < KNOWN_KINDS:
            self._known[key] = made
        return made


class _Trace:
    """What the spans of one request have in common, and its clock: one pair of readings, all else are differences.

    Attributes:
        state: The client's, for each span; "" if there is none.
    """

    __slots__ = ("_phases", "_record", "_zero_s", "_zero_unix_ns", "state")

    def __init__(self, record: FlightRecord) -> None:
        self._record = record
        self._phases = 0
        self.state = "" if record.tracestate is None else state_text(record.tracestate)
        self._zero_s = record.received_s
        self._zero_unix_ns = int(record.received_unix_s * 1e9)

    def ns(self, at_s: float) -> int:
        """Wall clock."""
        return self._zero_unix_ns + int((at_s - self._zero_s) * 1e9)

    def times_ns(self, from_s: float, to_s: float) -> tuple[int, int]:
        zero_s, zero_unix_ns = self._zero_s, self._zero_unix_ns
        begun_ns = zero_unix_ns + int((from_s - zero_s) * 1e9)
        ended_ns = zero_unix_ns + int((to_s - zero_s) * 1e9)
        return begun_ns, ended_ns if ended_ns > begun_ns else begun_ns

    def phase(
        self, shared: Shared, parent: str, from_s: float, to_s: float, events: tuple[TraceEvent, ...] = ()
    ) -> TraceSpan:
        """A part of a span's time. Nobody is told its id before, so it follows from the request's own."""
        record = self._record
        span_id = f"{(int(record.span_id, 16) + self._phases) % _LAST_ID + 1:016x}"
        self._phases += 1
        begun_ns, ended_ns = self.times_ns(from_s, to_s)
        return TraceSpan(
            record.trace_id, span_id, parent, False, begun_ns, ended_ns, shared, {}, False, events, (), self.state
        )


def _phase_shared(name: PhaseName, endpoint: str, role: Role) -> Shared:
    return Shared(name, SpanKind.INTERNAL, {"weir.endpoint": endpoint, "weir.role": role})


def _attempt_shared(
    peer: Peer, operation: str, model: str, stream: bool, number: int, status: int | None, role: Role
) -> Shared:
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
    return Shared(f"{operation} {model}" if model else operation, SpanKind.CLIENT, made)


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
    answer = attempt.answer
    if answer is not None:
        _add_answer(made, answer)
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


def _add_answer(made: Made, answer: AnswerFacts) -> None:
    if answer.id:
        made[genai.RESPONSE_ID] = answer.id
    if answer.model:
        made[genai.RESPONSE_MODEL] = answer.model
    if answer.finish_reasons:
        made[genai.FINISH_REASONS] = answer.finish_reasons


def _server_shared(record: FlightRecord, address: tuple[str, int]) -> Shared:
    known = record.method in _METHODS
    method, route = record.method if known else "_OTHER", _ROUTES.get(record.operation, "/v1/*")
    host, port = address
    made: Made = {
        "http.request.method": method,
        "http.route": route,
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
    return Shared(f"{method} {route}", SpanKind.SERVER, made)


def _server_own(record: FlightRecord) -> Made:
    _, queue_s, ttft_s = record.durations_s()
    made: Made = {"weir.request.id": record.request_id, "weir.queue_us": _us(queue_s), "weir.chunks": record.chunks}
    if ttft_s is not None:
        made["weir.ttft_us"] = _us(ttft_s)
        made["weir.longest_gap_us"] = _us(record.longest_gap_s)
    sent_s = record.attempts[0].sent_s if record.attempts else None
    if sent_s is not None:
        made["weir.overhead_us"] = _us(sent_s - record.begun_s - queue_s)
    if record.resume is not None:
        made["weir.resume"] = record.resume
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
