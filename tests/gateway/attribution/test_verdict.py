"""The sentence about a request: it names what took long, and with what."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.types import EngineTimings
from gateway.attribution.phases import phases
from gateway.attribution.verdict import MOST_CLAUSES, verdict, written
from gateway.flight import FlightRecord
from tests.fakes.flight_records import attempt, flight, loaded


def said(record: FlightRecord) -> str:
    return verdict(record, phases(record))


def test_a_queue_is_told_with_who_was_in_it() -> None:
    timed = attempt(
        endpoint_id="vllm-2", first_output_s=4.52, ended_s=4.6, load=loaded(31, running=256),
        timings=EngineTimings(queue_s=4.1, prefill_s=0.4),
    )  # fmt: skip
    assert said(flight(timed, done_s=4.61)) == (
        "answered in 4.6 s: waited 4.1 s in vllm-2's queue behind 31 requests, while it ran 256"
    )


def test_a_queue_that_no_gauge_shows_is_told_with_our_own_requests() -> None:
    timed = attempt(in_flight=4, timings=EngineTimings(queue_s=0.4, prefill_s=0.08))
    assert "waited 400 ms in m-0's queue, with 3 more of Weir's requests there" in said(flight(timed))


def test_what_is_inferred_says_so() -> None:
    assert "in m-0's queue behind 2 requests (inferred)" in said(flight(attempt(load=loaded(2))))


def test_a_decode_is_told_with_its_pace_and_a_pause_in_it() -> None:
    assert said(flight()).startswith("answered in 1.5 s: decode took 1.0 s for 21 tokens, 45 ms each; waited 480 ms")
    assert "with a pause of 700 ms" in said(flight(longest_gap_s=0.7))


def test_failed_attempts_are_told_with_their_causes() -> None:
    failed = attempt(endpoint_id="m-1", outcome="upstream_error", error_type="reset", first_output_s=None, ended_s=0.9)
    second = attempt(chosen_s=0.91, connected_s=0.91, sent_s=0.911, first_output_s=1.0)
    assert "lost 900 ms to 1 failed attempt (m-1: reset)" in said(flight(failed, second))


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (
            flight(attempt(first_output_s=None), outcome="timeout", error_type="first_token_timeout"),
            "failed at m-0 with first_token_timeout after 1.5 s: waited 1.5 s for m-0, which does not say for what, "
            "with one more of Weir's requests there",
        ),
        (
            flight(
                attempt(outcome="cancelled", lost=True, first_output_s=None),
                attempt(endpoint_id="m-1", role="hedge", chosen_s=0.41, connected_s=0.41, sent_s=0.42),
            ),
            "waited 400 ms for m-0 until m-1 was asked beside it (hedging)",
        ),
        (flight(outcome="cancelled"), "the client left after 1.5 s: decode took 1.0 s for 21 tokens, 45 ms each"),
        (flight(outcome="shed", done_s=0.002, body_read_s=0.002), "refused after 2.0 ms, as no endpoint could take it"),
        (flight(outcome="shed", error_type="shutting_down"), "ended after 1.5 s, as Weir was being stopped"),
        (flight(outcome="client_error", status=404), "refused after 1.5 s with status 404, the request's own fault"),
        (flight(body_read_s=1.2, outcome="ok"), "the client took 1.2 s to send its body"),
        (flight(client_write_wait_s=0.9), "the client took nothing for 900 ms"),
        (flight(attempt(first_output_s=None), stream=False), "waited 1.5 s for m-0"),
    ],
)
def test_each_end_and_each_part_has_its_words(record: FlightRecord, sentence: str) -> None:
    if record.outcome == "shed":
        record.attempts.clear()
    if sentence.startswith("the client took 1.2"):
        record.attempts.clear()
    assert sentence in said(record)


def test_few_parts_are_named_and_at_least_one() -> None:
    timed = attempt(timings=EngineTimings(queue_s=0.2, prefill_s=0.2))
    assert said(flight(timed, client_write_wait_s=0.4)).count(";") == MOST_CLAUSES - 1
    assert ": " in said(flight())


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [(4.06, "4.1 s"), (0.9999, "1.0 s"), (0.32, "320 ms"), (0.0099, "9.9 ms"), (0.00997, "10 ms"), (0.0, "0.0 ms")],
)
def test_durations_are_written_for_people(duration_s: float, text: str) -> None:
    assert written(duration_s) == text


def test_why_nobody_went_on_with_a_broken_answer_is_told() -> None:
    broken = {"outcome": "upstream_error", "error_type": "truncated_stream", "chunks": 3}
    first = attempt(endpoint_id="a", ended_s=0.9, **broken)
    second = attempt(endpoint_id="b", resumes=True, chosen_s=0.9, sent_s=0.9, first_output_s=1.0, **broken)
    ended: dict[str, Any] = {"outcome": "upstream_error", "error_type": "truncated_stream"}
    budget = flight(first, second, resume="budget", not_resumed="retries.attempts are used up", **ended)
    assert said(budget).startswith(
        "failed at b with truncated_stream after 1.5 s, not resumed (retries.attempts are used up): "
    )
    vain = attempt(
        endpoint_id="c", resumes=True, outcome="upstream_error", error_type="not_counted", chosen_s=1.5,
        connected_s=None, sent_s=None, first_output_s=None,
    )  # fmt: skip
    failed = flight(first, second, vain, resume="failed", not_resumed="no other endpoint takes traffic", **ended)
    assert "not resumed (asked in vain: c: not_counted; no other endpoint takes traffic): " in said(failed)


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (405, "refused after 1.5 s with status 405, the request's own fault"),
        (431, "refused after 1.5 s with status 431, the request's own fault"),
        (
            408,
            "refused after 1.5 s with status 408, the request's own fault: the client took 1.5 s to send its body",
        ),
    ],
)
def test_a_body_that_nobody_asked_for_is_not_said_to_be_late(status: int, sentence: str) -> None:
    record = flight(outcome="client_error", status=status, body_read_s=None, queued_s=None, admitted_s=None)
    record.attempts.clear()
    assert said(record) == sentence
