"""The flight record: everything that is ever said about one request. Closed exactly once, however it ends."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple

from adapters.types import BYTES_PER_TOKEN, AnswerFacts, EngineTimings, Usage
from policies.types import PoolView, RouteQuery

from .caller_facts import CallerFacts
from .errors import GatewayError, Outcome
from .probing.load_sample import NO_SAMPLE, LoadSample

if TYPE_CHECKING:
    from .content import Content

Operation = Literal["chat", "text_completion", "embeddings", "other"]
Role = Literal["primary", "hedge"]
ResumeResult = Literal["resumed", "failed", "inexact", "no_endpoint", "budget", "off"]


class Stall(NamedTuple):
    """A long silence in the middle of an answer.

    Attributes:
        ended_s: When it was over, monotonic.
        gap_s: How long it was.
        chunk: The chunk with output that ended it, counted from 1.
    """

    ended_s: float
    gap_s: float
    chunk: int


class Decision(NamedTuple):
    """What an endpoint was chosen from: the same policy chooses the same endpoint from it."""

    view: PoolView
    query: RouteQuery


@dataclass(slots=True)
class AttemptRecord:
    """One try at one endpoint. Times are monotonic seconds, None for what did not happen.

    Attributes:
        span_id: 16 hexadecimal digits; what the engine is told as the parent of its spans.
        joined: Trace and span id of the attempt whose request to the engine carried this one too; None if its own did.
        stalls: The first silences longer than ``telemetry.stall``.
        chunks: Chunks with output that it gave to the client of a stream.
        resumes: It goes on with the stream that the attempt before it, or before others like it, broke off.
        timings: Where the engine says that its time went; None if it does not say.
        answer: What its answer says of itself; None if it says nothing, or no traces are made.
        engine: The dialect that was spoken.
        in_flight: Requests of ours open at the endpoint, this one included.
        load: What the engine had last said of its load.
        expected_prefill_s: When the first output of such a prompt usually comes there; None if that is not known.
        expected_token_s: The usual time between two tokens there, likewise.
        route_s: How long the choice of the endpoint took; None if the attempt before it had made it.
        decision: What it was chosen from; None if that was not noted.
        role: ``hedge`` if it began beside the attempt before it, which had said nothing yet.
        lost: The other one of the two was first; this one was ended for that.
    """

    endpoint_id: str
    reason: str
    chosen_s: float
    route_s: float | None = 0.0
    span_id: str = ""
    decision: Decision | None = None
    connected_s: float | None = None
    sent_s: float | None = None
    head_s: float | None = None
    first_byte_s: float | None = None
    first_output_s: float | None = None
    ended_s: float | None = None
    reused: bool = False
    status: int | None = None
    timings: EngineTimings | None = None
    outcome: Outcome | None = None
    error_type: str | None = None
    engine: str = ""
    in_flight: int = 0
    load: LoadSample = NO_SAMPLE
    expected_prefill_s: float | None = None
    expected_token_s: float | None = None
    joined: tuple[str, str] | None = None
    stalls: tuple[Stall, ...] = ()
    role: Role = "primary"
    lost: bool = False
    chunks: int = 0
    resumes: bool = False
    answer: AnswerFacts | None = None

    @property
    def gave(self) -> bool:
        """Whether the client has a part of its stream from this attempt, be it only the end."""
        return self.chunks > 0 or (self.resumes and self.outcome == "ok")


@dataclass(slots=True)
class FlightRecord:
    """One request, from its first byte to its last.

    Attributes:
        received_s: The head was read. Other marks likewise, monotonic, None for what did not happen.
        body_read_s: The body was read whole; TTFT and the duration count from here.
        queued_s: It waits to be admitted.
        admitted_s: It may go to an engine.
        first_output_s: The first chunk with output was handed to the client's socket.
        last_output_s: The last one was.
        done_s: The last byte was, or the client had left.
        longest_gap_s: The longest wait between two reads with output.
        chunks: Chunks with output.
        client_write_wait_s: Time in which the client took no bytes.
        trace_id: 32 hexadecimal digits, the client's or ours; "" while it is not known.
        span_id: Of the request itself, 16 hexadecimal digits; "" while it is not known.
        parent_span_id: The client's span, "" if it told none.
        sampled: Its trace is kept whatever happens, and engines are told so.
        traceparent: Goes to engines unchanged; None if each attempt tells of its own span.
        tracestate: The client's, for engines.
        caller: What only a trace tells of the client; None if none are made.
        content: What was said, for pools that capture it; for the access log alone.
        resume: What became of a stream that an engine broke off; None if none did, or its client left meanwhile.
        not_resumed: Why no endpoint went on with it, "" if one did.
        keep_reason: Why its trace is exported; None if it is not. Set by the first reader of closed records.
    """

    request_id: str
    method: str
    path: str
    received_s: float
    received_unix_s: float
    attempts: list[AttemptRecord]
    operation: Operation = "other"
    pool: str = ""
    model: str = ""
    stream: bool = False
    traceparent: bytes | None = None
    body_read_s: float | None = None
    queued_s: float | None = None
    admitted_s: float | None = None
    first_output_s: float | None = None
    last_output_s: float | None = None
    done_s: float | None = None
    longest_gap_s: float = 0.0
    chunks: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    client_write_wait_s: float = 0.0
    usage: Usage | None = None
    status: int = 0
    outcome: Outcome | None = None
    error_type: str | None = None
    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str = ""
    sampled: bool = False
    tracestate: bytes | None = None
    caller: CallerFacts | None = None
    content: Content | None = None
    resume: ResumeResult | None = None
    not_resumed: str = ""
    keep_reason: str | None = None

    @property
    def final(self) -> AttemptRecord | None:
        """The last attempt that answered, be it in part; if none did, the one that was waited for to the end.

        That is the last to end of those that lost to no other. None before any.
        """
        attempts = self.attempts
        if len(attempts) == 1:
            return attempts[0]
        last, last_s = None, 0.0
        for attempt in reversed(attempts):
            if attempt.outcome == "ok" or attempt.chunks:
                return attempt
            ended_s = inf if attempt.ended_s is None else attempt.ended_s
            if not attempt.lost and (last is None or ended_s > last_s):
                last, last_s = attempt, ended_s
        return last

    @property
    def endpoint_id(self) -> str:
        """The endpoint of the final attempt, "" before any."""
        final = self.final
        return "" if final is None else final.endpoint_id

    @property
    def ttft_s(self) -> float | None:
        """From the body read whole to the first output handed over; streams only."""
        return self.durations_s()[2]

    @property
    def prompt_tokens(self) -> int:
        """As the engine counted them, else estimated by the size of the request."""
        return self.bytes_in // BYTES_PER_TOKEN if self.usage is None else self.usage.prompt_tokens

    @property
    def resumed(self) -> bool:
        """Whether an attempt went on with a stream that another had broken off."""
        return any(attempt.resumes and attempt.gave for attempt in self.attempts)

    def durations_s(self) -> tuple[float, float, float | None]:
        """Returns ``duration_s``, the wait for admission (0 if there was none) and ``ttft_s``, from ``begun_s``."""
        read_s, admitted_s, first_s = self.body_read_s, self.admitted_s, self.first_output_s
        begun_s = self.received_s if read_s is None else read_s
        return (
            (self.done_s or begun_s) - begun_s,
            0.0 if admitted_s is None else admitted_s - begun_s,
            None if first_s is None or read_s is None or not self.stream else first_s - read_s,
        )

    @property
    def begun_s(self) -> float:
        """Where TTFT, wait and duration begin: the body read whole, or the head, if it never was."""
        return self.received_s if self.body_read_s is None else self.body_read_s

    @property
    def duration_s(self) -> float:
        return self.durations_s()[0]

    @property
    def tpot_s(self) -> float | None:
        """Mean decode time per token after the first, by the engine's own count; None without it."""
        if self.usage is None or self.first_output_s is None or self.last_output_s is None or not self.stream:
            return None
        tokens = self.usage.completion_tokens
        return (self.last_output_s - self.first_output_s) / (tokens - 1) if tokens > 1 else None

    def failed(self, error: GatewayError) -> None:
        """Takes the outcome from the error that ended the request."""
        self.outcome = error.outcome
        self.error_type = error.error_type
