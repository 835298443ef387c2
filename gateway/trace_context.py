"""W3C Trace Context: the trace that a request belongs to, taken from its client or begun here, and told to engines.

Ids are drawn early and cheaply, since an engine is told of a span that is built, if at all, after the last byte.
"""

from __future__ import annotations

import re
from random import getrandbits

from policies.sampling import HeadSampling
from policies.types import Header

from .flight import AttemptRecord, FlightRecord
from .request_head import RequestHead

# A key that may name a tenant before an @, and a value that does not end in a space.
_STATE_MEMBER = re.compile(
    rb"([a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    rb"=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
)
_STATE_MEMBERS = 32


class TraceHeads:
    """Gives each request its place in a trace.

    Args:
        sampling: The decision on new traces; None if this process makes no traces. Then a client's context goes on
            to engines unchanged, so that no engine's span hangs from one of ours that never comes.
        trusts_parent: As in ``HeadSampling``, where there is none.
    """

    def __init__(self, sampling: HeadSampling | None, *, trusts_parent: bool = True) -> None:
        self._traced = sampling is not None
        self._trusts_parent = sampling.trusts_parent if sampling else trusts_parent
        self._follows_parent = sampling.follows_parent if sampling else True
        self._bound = sampling.bound if sampling else 0

    def join(self, record: FlightRecord, head: RequestHead) -> None:
        """Writes the request's trace id, span id, parent and sampled flag into its record."""
        came = head.traceparent
        if came is None or not self._trusts_parent:
            drawn = f"{getrandbits(192):048x}"
            record.trace_id, record.span_id = drawn[:32], drawn[32:]
            record.sampled = self._bound > 0 and int(drawn[16:32], 16) < self._bound
            return
        record.span_id = new_span_id()
        text = came.decode("ascii")
        record.trace_id = text[3:35]
        record.parent_span_id = text[36:52]
        record.tracestate = head.tracestate
        if not self._traced:
            record.traceparent = came
        if self._follows_parent:
            record.sampled = int(text[53:55], 16) & 1 == 1
        else:
            record.sampled = int(record.trace_id[16:], 16) < self._bound


def new_span_id() -> str:
    """Returns 16 hexadecimal digits."""
    return f"{getrandbits(64):016x}"


def state_text(tracestate: bytes) -> str:
    """Returns a client's state as its spans tell it: its members, and nothing between them; "" if one is none.

    As strict as the SDK, which would write a log line, and a client's words in it, for each span.
    """
    members = [member for part in tracestate.split(b",") if (member := part.strip(b" \t"))]
    matches = [_STATE_MEMBER.fullmatch(member) for member in members[: _STATE_MEMBERS + 1]]
    keys = {match[1] for match in matches if match is not None}
    return b",".join(members).decode("ascii") if len(keys) == len(members) <= _STATE_MEMBERS else ""


def context_headers(record: FlightRecord, attempt: AttemptRecord) -> tuple[Header, ...]:
    """Returns ``traceparent``, and ``tracestate`` if the client sent one, for an attempt.

    Of the flags only "sampled" is sent: OpenTelemetry for Rust, which TGI has, takes no version 00 with both bits set.
    """
    parent = record.traceparent
    if parent is None:
        form = "00-%s-%s-01" if record.sampled else "00-%s-%s-00"
        parent = (form % (record.trace_id, attempt.span_id)).encode("ascii")
    if record.tracestate is None:
        return ((b"traceparent", parent),)
    return ((b"traceparent", parent), (b"tracestate", record.tracestate))
