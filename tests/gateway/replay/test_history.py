"""What records tell, in the order in which it happened."""

from __future__ import annotations

from typing import Any

from adapters.types import Usage
from gateway.flight import AttemptRecord, Decision, FlightRecord
from gateway.replay.history import HORIZON_S, Decided, Taught, history
from policies.types import Answered, EndpointSnapshot, FirstOutput, PoolView, RouteQuery
from tests.fakes.flight_records import UNIX_S, attempt, flight

VIEW = PoolView(1000.0, 1, (EndpointSnapshot("m-0", "healthy", 0), EndpointSnapshot("m-1", "healthy", 0)))


def tried(endpoint: str = "m-0", **marks: Any) -> AttemptRecord:
    return attempt(endpoint_id=endpoint, decision=Decision(VIEW, RouteQuery(prompt_tokens=100)), **marks)


def told(*records: FlightRecord) -> list[tuple[str, str]]:
    """Endpoint and kind of each event."""
    return [
        (event.endpoint_id, "chosen" if isinstance(event, Decided) else type(event.sample).__name__)
        for event in history(records)
    ]


def test_requests_that_overlap_are_told_by_the_time_of_each_event_not_by_which_ended_first() -> None:
    long = flight(tried(first_output_s=3.0, ended_s=9.0), request_id="long", done_s=9.1)
    short = flight(tried("m-1", chosen_s=0.5, sent_s=0.6, first_output_s=1.0), request_id="short")
    assert told(short, long) == [
        ("m-0", "chosen"),
        ("m-1", "chosen"),
        ("m-1", "FirstOutput"),
        ("m-1", "Answered"),
        ("m-0", "FirstOutput"),
        ("m-0", "Answered"),
    ]


def test_no_more_is_kept_than_can_still_be_overtaken() -> None:
    later_s = 2 * HORIZON_S
    seen: list[str] = []

    def records() -> Any:
        yield flight(tried(), request_id="early")
        yield flight(tried(), request_id="late", received_unix_s=UNIX_S + later_s)
        seen.append("all read")

    events = history(records())
    assert [type(next(events)).__name__ for _ in range(3)] == ["Decided", "Taught", "Taught"]
    assert not seen


def test_an_answer_teaches_although_a_second_attempt_beside_it_lost() -> None:
    lost = tried("m-1", chosen_s=0.3, sent_s=0.31, first_output_s=None, ended_s=0.5, outcome="cancelled")
    lost.role, lost.lost = "hedge", True
    assert ("m-0", "Answered") in told(flight(tried(), lost))


def test_an_attempt_that_went_on_with_a_stream_teaches_its_own_pace() -> None:
    broken = tried(outcome="upstream_error", ended_s=1.0)
    further = tried("m-1", chosen_s=1.0, sent_s=1.1, first_output_s=1.5, ended_s=2.5)
    further.resumes, further.chunks = True, 11
    record = flight(broken, further, usage=Usage(100, 500), last_output_s=2.5, chunks=500)
    (sample,) = [event.sample for event in history([record]) if isinstance(event, Taught)][-1:]
    assert isinstance(sample, Answered)
    assert (sample.output_tokens, sample.prompt_tokens, sample.cached_tokens) == (11, None, None)
    assert sample.token_s is not None
    assert abs(sample.token_s - 0.1) < 1e-6


def test_an_attempt_without_an_output_teaches_nothing() -> None:
    refused = tried(first_output_s=None, outcome="upstream_error")
    samples = [event.sample for event in history([flight(refused)]) if isinstance(event, Taught)]
    assert not [sample for sample in samples if isinstance(sample, FirstOutput)]
