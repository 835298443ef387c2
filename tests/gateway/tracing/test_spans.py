"""Records to spans, without a gateway."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanKind

from adapters.types import Usage
from gateway.caller_facts import CallerFacts
from gateway.flight import AttemptRecord, FlightRecord, Stall
from gateway.tracing import spans as spans_module
from gateway.tracing.otlp_json import encode
from gateway.tracing.spans import Peer, SpanMaker
from gateway.tracing.trace_span import Process, TraceSpan

PEERS = {"e": Peer("e", "llamacpp", "10.0.0.1", 8000, "least_in_flight")}
PROCESS = Process(Resource({"service.name": "weir"}), InstrumentationScope("weir", "1"))
TRACE, SPAN = "0a" * 16, "f" * 16


def maker() -> SpanMaker:
    return SpanMaker(("0.0.0.0", 8080))


def attempt(**changes: Any) -> AttemptRecord:
    made = AttemptRecord("e", "0 in flight", 10.3, span_id="c" * 16, outcome="ok")
    for name, value in {"sent_s": 10.4, "status": 200, "ended_s": 12.0, **changes}.items():
        setattr(made, name, value)
    return made


def record(*attempts: AttemptRecord, **changes: Any) -> FlightRecord:
    made = FlightRecord("r", "POST", "/v1/chat/completions", 10.0, 1_700_000_000.0, list(attempts))
    fields = {
        "trace_id": TRACE, "span_id": SPAN, "operation": "chat", "pool": "m", "model": "m", "status": 200,
        "outcome": "ok", "body_read_s": 10.1, "admitted_s": 10.2, "done_s": 12.0,
    }  # fmt: skip
    for name, value in {**fields, **changes}.items():
        setattr(made, name, value)
    return made


def made(flown: FlightRecord) -> dict[str, TraceSpan]:
    found = maker().spans(flown, PEERS)
    assert found[-1].kind is SpanKind.SERVER
    return {span.name: span for span in found}


def attributes(span: TraceSpan) -> dict[str, Any]:
    return dict(span.attributes)


def ns(at_s: float) -> int:
    return 1_700_000_000_000_000_000 + round((at_s - 10.0) * 1e9)


def test_each_span_lasts_as_long_as_what_it_tells_of() -> None:
    flown = record(
        attempt(first_output_s=10.9),
        stream=True, first_output_s=10.9, last_output_s=11.9, chunks=5, longest_gap_s=0.5, usage=Usage(7, 5, 2, 1),
    )  # fmt: skip
    spans = made(flown)
    times = {name: (span.start_ns, span.end_ns) for name, span in spans.items()}
    expected = {
        "weir.queue": (10.1, 10.2),
        "weir.first_token": (10.4, 10.9),
        "weir.stream": (10.9, 11.9),
        "chat m": (10.3, 12.0),
        "POST /v1/chat/completions": (10.1, 12.0),
    }
    assert times.keys() == expected.keys()
    for name, (from_s, to_s) in expected.items():
        assert times[name] == pytest.approx((ns(from_s), ns(to_s)), abs=1000)
    server, client = attributes(spans["POST /v1/chat/completions"]), attributes(spans["chat m"])
    assert (server["weir.ttft_us"], server["weir.queue_us"], server["weir.overhead_us"]) == (800_000, 100_000, 200_000)
    assert (client["weir.itl_mean_us"], client["weir.longest_gap_us"]) == (250_000, 500_000)
    assert client["gen_ai.provider.name"] == "llama_cpp"
    assert client["gen_ai.usage.cache_read.input_tokens"] == 2
    assert client["gen_ai.usage.reasoning.output_tokens"] == 1


def test_a_short_wait_is_no_span() -> None:
    assert "weir.queue" not in made(record(attempt(), admitted_s=10.1009))
    assert "weir.queue" in made(record(attempt(), admitted_s=10.1011))


def test_the_ids_of_one_trace_differ_even_where_they_run_over() -> None:
    flown = record(attempt(first_output_s=10.9), stream=True, last_output_s=11.9, chunks=2, first_output_s=10.9)
    spans = list(made(flown).values())
    assert len({span.span_id for span in spans}) == len(spans)
    contexts = [span.readable(PROCESS).context for span in spans]
    assert all(context is not None and context.is_valid for context in contexts)


def test_a_links_trace_has_a_state_that_nobody_knows() -> None:
    client = made(record(attempt(joined=("d" * 32, "e" * 16)), tracestate=b"a=1"))["chat m"].readable(PROCESS)
    assert client.context is not None
    assert client.context.trace_state.to_header() == "a=1"
    (link,) = client.links
    assert not link.context.trace_state


def test_estimated_tokens_are_not_told_as_the_engines() -> None:
    client = attributes(made(record(attempt(), usage=Usage(7, 5, estimated=True)))["chat m"])
    assert not any(name.startswith("gen_ai.usage") for name in client)


@pytest.mark.parametrize(
    ("outcome", "status", "error_type", "failed"),
    [
        ("ok", 200, None, False),
        ("client_error", 404, None, False),
        ("shed", 503, "shed", True),
        ("shed", 429, "429", False),
        ("shed", 503, "shutting_down", True),
        ("shed", 200, "shutting_down", True),
        ("shed", 200, "shed", True),  # a keep-alive had begun the answer
        ("upstream_error", 502, "connect", True),
        ("timeout", 200, "stall_timeout", True),
        ("internal_error", 500, "internal", True),
        ("cancelled", 0, None, False),
        ("cancelled", 200, None, False),
    ],
)
def test_only_a_client_that_got_an_error_or_half_an_answer_makes_one(
    outcome: str, status: int, error_type: str | None, failed: bool
) -> None:
    server = made(record(outcome=outcome, status=status, error_type=error_type))["POST /v1/chat/completions"]
    assert server.failed == failed
    assert server.readable(PROCESS).status.is_ok != failed
    assert attributes(server).get("error.type") == error_type
    assert attributes(server).get("http.response.status_code") == (status or None)


def test_a_method_that_nobody_knows_is_not_in_a_name() -> None:
    spans = made(record(method="BREW", operation="other", path="/v1/pot"))
    assert list(spans) == ["weir.queue", "_OTHER /v1/*"]
    assert attributes(spans["_OTHER /v1/*"])["http.request.method_original"] == "BREW"


def test_a_long_reason_is_cut() -> None:
    flown = record(attempt(reason="x" * 1000))
    assert len(attributes(made(flown)["chat m"])["weir.route.reason"]) == 120


HEADERS = st.lists(st.tuples(st.sampled_from([b"host", b"user-agent", b"x-team"]), st.binary(max_size=400))).map(tuple)
NUMBERS = st.lists(st.tuples(st.sampled_from(["n", "seed", "top_p", "max_tokens"]), st.integers() | st.floats())).map(
    tuple
)


@given(HEADERS, NUMBERS, st.floats(-5, 5))
def test_whatever_a_client_sends_spans_can_be_made_and_written(headers: Any, numbers: Any, back_s: float) -> None:
    caller = CallerFacts("1.1", "http", headers, numbers)
    spans = maker().spans(record(attempt(ended_s=10.3 + back_s), caller=caller, done_s=10.1 + back_s), PEERS)
    assert encode(spans, PROCESS)
    for span in spans:
        assert span.end_ns >= span.start_ns
        assert "x-team" not in str(attributes(span))


def test_so_many_kinds_of_spans_are_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans_module, "KNOWN_KINDS", 3)
    subject = maker()
    for n in range(10):
        *_, span = subject.spans(record(path=f"/v1/{n}", operation="other"), PEERS)
        assert attributes(span)["url.path"] == f"/v1/{n}"


def test_stalls_are_told_with_their_chunk() -> None:
    flown = record(
        attempt(first_output_s=10.9, stalls=(Stall(11.9, 1.0, 2),)),
        stream=True, first_output_s=10.9, last_output_s=11.9, chunks=2, longest_gap_s=1.0,
    )  # fmt: skip
    (event,) = made(flown)["weir.stream"].events
    assert event.at_ns == pytest.approx(ns(11.9), abs=1000)
    assert event.attributes == {"gap_us": 1_000_000, "chunk": 2}


def test_what_became_of_a_broken_stream_is_on_the_requests_own_span() -> None:
    *_, server = maker().spans(record(attempt(), stream=True, resume="budget", not_resumed="used up"), PEERS)
    assert attributes(server)["weir.resume"] == "budget"
    *_, server = maker().spans(record(attempt(), stream=True), PEERS)
    assert "weir.resume" not in attributes(server)


def test_two_attempts_beside_each_other_are_siblings_and_told_apart() -> None:
    flown = record(
        attempt(outcome="cancelled", lost=True, span_id="b" * 16, ended_s=11.2),
        attempt(role="hedge", chosen_s=10.8, sent_s=10.9, first_output_s=11.2),
        stream=True, first_output_s=11.2, last_output_s=11.9, chunks=5, usage=Usage(7, 5),
    )  # fmt: skip
    first, second = [span for span in maker().spans(flown, PEERS) if span.kind is SpanKind.CLIENT]
    assert first.parent_id == second.parent_id == SPAN
    assert not first.failed
    lost, won = attributes(first), attributes(second)
    assert (lost["weir.role"], lost["weir.attempt"], lost["weir.lost"]) == ("primary", 1, True)
    assert (won["weir.role"], won["weir.attempt"]) == ("hedge", 2)
    assert "weir.lost" not in won
    assert "http.request.resend_count" not in won
    assert "gen_ai.usage.output_tokens" not in lost
    assert won["gen_ai.usage.output_tokens"] == 5
    stream = made(flown)["weir.stream"]
    assert (stream.parent_id, attributes(stream)["weir.role"]) == (second.span_id, "hedge")


def test_the_answer_is_the_first_attempts_when_the_second_lost() -> None:
    flown = record(
        attempt(first_output_s=11.2),
        attempt(role="hedge", chosen_s=10.8, sent_s=10.9, outcome="cancelled", lost=True, span_id="b" * 16),
        stream=True, first_output_s=11.2, last_output_s=11.9, chunks=5, usage=Usage(7, 5),
    )  # fmt: skip
    first, second = [span for span in maker().spans(flown, PEERS) if span.kind is SpanKind.CLIENT]
    assert attributes(first)["gen_ai.usage.output_tokens"] == 5
    assert "gen_ai.usage.output_tokens" not in attributes(second)
    assert made(flown)["weir.stream"].parent_id == first.span_id
