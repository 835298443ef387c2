"""A request's place in a trace: W3C Trace Context in, and out with each attempt."""

from __future__ import annotations

import re
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace.span import TraceState
from starlette.types import Scope

from gateway.caller_facts import CallerFacts
from gateway.flight import AttemptRecord, FlightRecord
from gateway.request_head import RequestHead, pick, read_head
from gateway.trace_context import TraceHeads, context_headers, new_span_id, state_text
from policies.sampling import HeadSampling

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENT = f"00-{TRACE}-{PARENT}-01".encode()


def head(*headers: tuple[bytes, bytes]) -> RequestHead:
    scope: Scope = {"headers": list(headers)}
    return read_head(scope)


def joined(heads: TraceHeads, *headers: tuple[bytes, bytes]) -> FlightRecord:
    record = FlightRecord("id", "POST", "/", 0.0, 0.0, [])
    heads.join(record, head(*headers))
    return record


def sent(record: FlightRecord) -> dict[bytes, bytes]:
    return dict(context_headers(record, AttemptRecord("e", "", 0.0, span_id="c" * 16)))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"00",
        SENT.upper(),
        SENT + b"-extra",  # version 00 ends with the flags
        b"ff" + SENT[2:],
        b"0" + SENT,
        b"00-" + b"0" * 32 + SENT[35:],
        SENT[:36] + b"0" * 16 + b"-01",
        SENT.replace(b"-", b"_"),
        SENT[:-2] + b"zz",
        b"01-" + SENT[3:] + b"more",
        SENT + b"\xff",
        b"a" * 1_000_000,
        SENT + b"," + SENT,
    ],
)
def test_a_traceparent_that_is_none_begins_a_new_trace(value: bytes) -> None:
    record = joined(TraceHeads(HeadSampling(0.0)), (b"traceparent", value), (b"tracestate", b"a=1"))
    assert record.trace_id != TRACE
    assert re.fullmatch("[0-9a-f]{32}", record.trace_id)
    assert (record.parent_span_id, record.sampled) == ("", False)
    assert sent(record) == {b"traceparent": f"00-{record.trace_id}-{'c' * 16}-00".encode()}


def test_two_traceparents_are_none() -> None:
    assert head((b"traceparent", SENT), (b"traceparent", SENT)).traceparent is None
    assert head((b"traceparent", SENT), (b"traceparent", SENT), (b"traceparent", SENT)).traceparent is None


def test_a_later_version_is_read_as_this_one() -> None:
    record = joined(TraceHeads(HeadSampling(0.0)), (b"traceparent", b"42" + SENT[2:] + b"-what-comes"))
    assert (record.trace_id, record.parent_span_id, record.sampled) == (TRACE, PARENT, True)
    assert sent(record)[b"traceparent"].startswith(b"00-")


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("03", True), ("ff", True)])
def test_the_callers_flag_decides_and_no_other_flag_goes_on(flags: str, sampled: bool) -> None:
    for ratio in (0.0, 1.0):
        record = joined(TraceHeads(HeadSampling(ratio)), (b"traceparent", SENT[:-2] + flags.encode()))
        assert record.sampled == sampled
        assert sent(record)[b"traceparent"] == f"00-{TRACE}-{'c' * 16}-{'01' if sampled else '00'}".encode()


def test_a_sampler_that_follows_no_parent_goes_by_the_id() -> None:
    for ratio in (0.0, 1.0):
        heads = TraceHeads(HeadSampling(ratio, follows_parent=False))
        record = joined(heads, (b"traceparent", SENT))
        assert (record.trace_id, record.parent_span_id, record.sampled) == (TRACE, PARENT, ratio == 1.0)


def test_a_stranger_gets_a_trace_of_weirs() -> None:
    for heads in (TraceHeads(HeadSampling(1.0, trusts_parent=False)), TraceHeads(None, trusts_parent=False)):
        record = joined(heads, (b"traceparent", SENT), (b"tracestate", b"a=1"))
        assert record.trace_id != TRACE
        assert record.parent_span_id == ""
        assert sent(record).keys() == {b"traceparent"}


def test_where_no_traces_are_made_a_callers_context_goes_on_unchanged() -> None:
    record = joined(TraceHeads(None), (b"traceparent", SENT), (b"tracestate", b"a=1"))
    assert record.trace_id == TRACE
    assert sent(record) == {b"traceparent": SENT, b"tracestate": b"a=1"}
    fresh = joined(TraceHeads(None))
    assert sent(fresh) == {b"traceparent": f"00-{fresh.trace_id}-{'c' * 16}-00".encode()}


def test_the_state_is_passed_on_with_all_its_lines() -> None:
    record = joined(
        TraceHeads(HeadSampling(0.0)), (b"traceparent", SENT), (b"tracestate", b"a=1,b=2"), (b"tracestate", b"c=3")
    )
    assert sent(record)[b"tracestate"] == b"a=1,b=2,c=3"


@pytest.mark.parametrize("state", [b"", b"a" * 4097, b"a=\xff", b"a=\x00", b"a" * 1_000_000])
def test_a_state_that_is_too_long_or_no_text_is_left_out(state: bytes) -> None:
    record = joined(TraceHeads(HeadSampling(0.0)), (b"traceparent", SENT), (b"tracestate", state))
    assert (record.trace_id, record.tracestate) == (TRACE, None)


@given(st.binary(max_size=80) | st.binary(max_size=30).map(lambda tail: SENT + tail), st.binary(max_size=80))
def test_whatever_a_client_sends_a_request_has_a_place_in_a_trace(parent: bytes, state: bytes) -> None:
    record = joined(TraceHeads(HeadSampling(0.5)), (b"traceparent", parent), (b"tracestate", state))
    for name, value in sent(record).items():
        pattern = rb"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]" if name == b"traceparent" else rb"[\t -~]{1,4096}"
        assert re.fullmatch(pattern, value)


@pytest.mark.parametrize(
    ("came", "told"),
    [
        (b"a=1", "a=1"),
        (b"a=1,\tb=2 ,, c@d=3 4", "a=1,b=2,c@d=3 4"),
        (b",".join(b"k%d=%d" % (n, n) for n in range(32)), ",".join(f"k{n}={n}" for n in range(32))),
        (b",".join(b"k%d=%d" % (n, n) for n in range(33)), ""),
        (b"a=1,a=2", ""),
        (b"a=1,b", ""),
        (b"a=1=2", ""),
        (b"A=1", ""),
        (b"a=", ""),
        (b"a=" + b"x" * 257, ""),
        (b"k" * 257 + b"=1", ""),
        (b" ", ""),
    ],
)
def test_of_a_state_spans_tell_all_members_or_if_one_is_none_nothing(came: bytes, told: str) -> None:
    assert state_text(came) == told


@given(st.from_regex(rb"[\t -~]{1,200}", fullmatch=True) | st.from_regex(rb"([a-c@]=[12 ],?){1,20}", fullmatch=True))
def test_a_state_that_spans_tell_is_what_the_sdk_reads_without_a_word(came: bytes) -> None:
    with mock.patch("opentelemetry.trace.span._logger") as log:
        assert TraceState.from_header([told := state_text(came)]).to_header() == told
        assert not log.warning.called
        assert TraceState.from_header([came.decode()]).to_header() == told


def test_ids_differ() -> None:
    records = [joined(TraceHeads(HeadSampling(0.5))) for _ in range(200)]
    assert len({record.trace_id for record in records}) == 200
    assert len({record.span_id for record in records} | {new_span_id() for _ in range(200)}) == 400
    assert 50 < sum(record.sampled for record in records) < 150


def test_of_the_headers_only_those_asked_for_are_kept() -> None:
    scope: Scope = {"headers": [(b"x-team", b"a"), (b"authorization", b"Bearer x"), (b"x-team", b"b")]}
    assert pick(scope, frozenset((b"x-team", b"host"))) == ((b"x-team", b"a"), (b"x-team", b"b"))


def test_of_the_body_only_numbers_are_kept() -> None:
    caller = CallerFacts("1.1", "http", ())
    told = caller.asking({"max_tokens": 5, "temperature": "hot", "top_p": [1] * 1000, "messages": ["secret"], "n": 2})
    assert told.parameters == (("max_tokens", 5), ("n", 2))
    assert caller.asking({"messages": []}) is caller


def test_the_rules_key_that_a_client_has_is_known_by_its_number_with_and_without_parameters() -> None:
    caller = CallerFacts("1.1", "http", (), key=2)
    assert [caller.asking(body).key for body in ({}, {"n": 2})] == [2, 2]
