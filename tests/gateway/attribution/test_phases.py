"""Where a request's time went: the parts, where each comes from, and that they are the whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.types import EngineTimings, Usage
from gateway.attribution.phases import phases, wall_s
from gateway.attribution.verdict import verdict
from gateway.flight import AttemptRecord, FlightRecord
from gateway.tracing.spans import Peer, SpanMaker
from tests.fakes.flight_records import T0_S, attempt, flight, loaded

Told = dict[str, tuple[Any, str]]
PEERS = {"m-0": Peer("m-0", "vllm", "127.0.0.1", 8000, "latency")}


def told(record: FlightRecord) -> Told:
    return {phase.name: (pytest.approx(phase.duration_s), phase.source) for phase in phases(record)}


def of(record: FlightRecord, *names: str) -> Told:
    """These parts as they were found, and the engine's share of nothing else."""
    found = told(record)
    engine = {"engine_wait", "engine_queue", "engine_load", "prefill", "engine_other"}
    assert engine & found.keys() <= set(names)
    return {name: found[name] for name in names}


# --- the way of a request


def test_a_streams_parts_come_in_order_and_sum_to_its_time() -> None:
    record = flight()
    assert [phase.name for phase in phases(record)] == ["read", "route", "connect", "engine_wait", "decode", "gateway"]
    assert told(record) == {
        "read": (0.002, "measured"),
        "route": (0.007, "measured"),
        "connect": (0.005, "measured"),
        "engine_wait": (0.48, "measured"),
        "decode": (1.0, "measured"),
        "gateway": (0.016, "measured"),
    }
    assert wall_s(record) == pytest.approx(1.51)


def test_a_connection_that_was_open_already_took_no_time() -> None:
    assert "connect" not in told(flight(attempt(reused=True)))


def test_weirs_own_queue_is_not_the_engines() -> None:
    record = flight(attempt(chosen_s=0.41, connected_s=0.41, sent_s=0.42), admitted_s=0.403)
    assert told(record)["queue"] == (0.4, "measured")


def test_what_failed_attempts_took_is_told_apart() -> None:
    failed = attempt(endpoint_id="m-1", sent_s=0.02, first_output_s=None, ended_s=0.3, outcome="upstream_error")
    second = attempt(chosen_s=0.31, connected_s=0.31, sent_s=0.311)
    assert told(flight(failed, second))["retries"] == (0.3, "measured")


def test_a_slow_clients_time_is_not_the_engines() -> None:
    found = told(flight(client_write_wait_s=0.7))
    assert found["client_write_wait"] == (0.7, "measured")
    assert found["decode"] == (0.3, "measured")


@pytest.mark.parametrize(
    ("record", "name", "duration_s"),
    [
        (
            flight(attempt(connected_s=None, sent_s=None, head_s=None, first_output_s=None, ended_s=1.5)),
            "connect",
            1.49,
        ),
        (flight(attempt(head_s=None, first_output_s=None, ended_s=1.5), outcome="timeout"), "engine_wait", 1.48),
        (flight(body_read_s=None, queued_s=None, admitted_s=None, outcome="cancelled"), "read", 1.51),
    ],
)
def test_what_was_never_reached_took_no_time(record: FlightRecord, name: str, duration_s: float) -> None:
    if name == "read":
        record.attempts.clear()
    assert told(record)[name] == (duration_s, "measured")


def test_a_request_that_no_endpoint_took_has_no_engine() -> None:
    record = flight(done_s=0.004, first_output_s=None, outcome="shed")
    record.attempts.clear()
    assert set(told(record)) == {"read", "gateway"}


# --- the engine's share


def test_an_engines_own_times_are_measured_and_their_rest_is_told() -> None:
    timed = attempt(timings=EngineTimings(queue_s=0.3, prefill_s=0.1, decode_s=0.9))
    assert of(flight(timed), "engine_queue", "prefill", "engine_other") == {
        "engine_queue": (0.3, "measured"),
        "prefill": (0.1, "measured"),
        "engine_other": (0.08, "inferred"),
    }


def test_an_engines_times_are_never_more_than_there_was() -> None:
    timed = attempt(timings=EngineTimings(queue_s=3.0, load_s=0.2, prefill_s=0.1))
    assert of(flight(timed), "engine_load", "prefill", "engine_queue") == {
        "engine_load": (0.2, "measured"),
        "prefill": (0.1, "measured"),
        "engine_queue": (0.18, "measured"),
    }


def test_of_a_prefill_alone_the_rest_is_the_queue() -> None:
    timed = attempt(timings=EngineTimings(prefill_s=0.1))
    found = of(flight(timed), "engine_queue", "prefill")
    assert found == {"engine_queue": (0.38, "inferred"), "prefill": (0.1, "measured")}


def test_of_a_queue_alone_the_rest_is_the_prefill() -> None:
    timed = attempt(timings=EngineTimings(queue_s=0.4))
    found = of(flight(timed), "engine_queue", "prefill")
    assert found == {"engine_queue": (0.4, "measured"), "prefill": (0.08, "inferred")}


def test_llamacpps_head_comes_when_a_slot_takes_the_request() -> None:
    found = of(flight(attempt(engine="llamacpp", head_s=0.42)), "engine_queue", "prefill")
    assert found == {"engine_queue": (0.4, "measured"), "prefill": (0.08, "measured")}


def test_llamacpps_prefill_and_its_head_go_together() -> None:
    timed = attempt(engine="llamacpp", head_s=0.32, timings=EngineTimings(prefill_s=0.1, decode_s=0.9))
    assert of(flight(timed), "engine_queue", "prefill", "engine_other") == {
        "engine_queue": (0.3, "measured"),
        "prefill": (0.1, "measured"),
        "engine_other": (0.08, "inferred"),
    }


def test_with_nobody_ahead_all_is_prefill() -> None:
    alone = attempt(in_flight=1, load=loaded(waiting=0), expected_prefill_s=0.1)
    assert of(flight(alone), "prefill") == {"prefill": (0.48, "inferred")}


@pytest.mark.parametrize("load", [loaded(waiting=4), loaded(waiting=None), loaded(waiting=0, age_s=60)])
def test_what_is_more_than_usual_was_the_queue_if_anybody_was_ahead(load: Any) -> None:
    found = of(flight(attempt(load=load, expected_prefill_s=0.1)), "engine_queue", "prefill")
    assert found == {"engine_queue": (0.38, "inferred"), "prefill": (0.1, "inferred")}


def test_where_nothing_is_usual_yet_the_engines_gauge_decides() -> None:
    assert of(flight(attempt(load=loaded(waiting=4))), "engine_queue") == {"engine_queue": (0.48, "inferred")}
    assert of(flight(attempt()), "engine_wait") == {"engine_wait": (0.48, "measured")}


# --- whole answers


def whole(**changes: Any) -> FlightRecord:
    return flight(attempt(first_output_s=None, **changes), stream=False, first_output_s=None, last_output_s=None)


def test_a_whole_answer_is_taken_apart_by_the_engines_times() -> None:
    found = told(whole(timings=EngineTimings(queue_s=0.4, prefill_s=0.08, decode_s=1.0)))
    assert (found["engine_queue"], found["prefill"], found["decode"]) == (
        (0.4, "measured"),
        (0.08, "measured"),
        (1.0, "measured"),
    )


def test_tgis_inference_is_both() -> None:
    found = told(whole(timings=EngineTimings(queue_s=0.4, inference_s=1.0)))
    assert (found["engine_queue"], found["engine_wait"]) == ((0.4, "measured"), (1.0, "measured"))
    assert found["engine_other"] == (0.08, "inferred")


def test_a_whole_answers_decode_is_inferred_from_the_usual_pace() -> None:
    found = told(whole(expected_token_s=0.05, expected_prefill_s=0.4))
    assert found["decode"] == (1.0, "inferred")
    assert found["prefill"] == (0.4, "inferred")
    assert told(whole())["engine_wait"] == (1.48, "measured")


# --- always

some_s = st.floats(0, 10)
maybe_s = st.none() | some_s


@st.composite
def flights(draw: st.DrawFn) -> FlightRecord:
    """Marks in order, some of them missing; the rest in any shape."""
    marks = sorted(draw(st.lists(some_s, min_size=14, max_size=14)))
    reached = draw(st.integers(0, 3))
    tries: list[AttemptRecord] = []
    for at in range(draw(st.integers(0, 2)) if reached == 3 else 0):
        chosen_s, connected_s, sent_s, head_s, first_s, ended_s = marks[3 + at * 5 : 9 + at * 5]
        depth = draw(st.integers(0, 3))
        tries.append(
            attempt(
                chosen_s=chosen_s,
                connected_s=connected_s if depth > 0 else None,
                sent_s=sent_s if depth > 0 else None,
                head_s=head_s if depth > 1 else None,
                first_output_s=first_s if depth > 2 else None,
                ended_s=ended_s,
                engine=draw(st.sampled_from(["vllm", "llamacpp"])),
                in_flight=draw(st.integers(0, 3)),
                load=loaded(draw(st.none() | st.integers(0, 3))),
                timings=draw(st.none() | st.builds(EngineTimings, maybe_s, maybe_s, maybe_s, maybe_s, maybe_s)),
                expected_prefill_s=draw(maybe_s),
                expected_token_s=draw(maybe_s),
            )
        )
    record = flight(
        body_read_s=marks[0] if reached > 0 else None,
        queued_s=marks[1] if reached > 1 else None,
        admitted_s=marks[2] if reached > 2 else None,
        done_s=marks[-1],
        stream=draw(st.booleans()),
        client_write_wait_s=draw(some_s),
        usage=draw(st.none() | st.builds(Usage, st.integers(0, 9), st.integers(0, 9))),
    )
    record.attempts = tries
    return record


@settings(max_examples=300, deadline=None)
@given(record=flights())
def test_the_parts_of_any_record_are_its_time_and_nothing_else(record: FlightRecord) -> None:
    parts = phases(record)
    assert all(part.duration_s > 0 for part in parts)
    assert sum(part.duration_s for part in parts) == pytest.approx(wall_s(record), abs=1e-6)
    assert len({part.name for part in parts}) == len(parts)


# --- two attempts beside each other


def overlapping(*, first: str, second: str) -> FlightRecord:
    """A second attempt that began 0.3 s after the first; which of them answered."""
    lost = {"outcome": "cancelled", "lost": True, "first_output_s": None, "ended_s": 0.5}
    began = {"endpoint_id": "m-1", "role": "hedge", "chosen_s": 0.31, "connected_s": 0.31, "sent_s": 0.32}
    one = attempt(**(lost if first == "lost" else {}))
    two = attempt(**began, **({"lost": lost, "ok": {}}[second]))
    return flight(one, two)


def test_the_wait_before_a_second_attempt_that_answered_is_told_apart() -> None:
    record = overlapping(first="lost", second="ok")
    found = told(record)
    assert found["hedge_wait"] == (0.3, "measured")
    assert "retries" not in found
    assert sum(phase.duration_s for phase in phases(record)) == pytest.approx(wall_s(record))


def test_a_second_attempt_that_lost_took_no_time() -> None:
    assert told(overlapping(first="ok", second="lost")) == told(flight())


def test_failed_attempts_before_the_two_are_retries() -> None:
    failed = attempt(endpoint_id="m-2", sent_s=0.02, first_output_s=None, ended_s=0.1, outcome="upstream_error")
    lost = attempt(chosen_s=0.12, sent_s=0.13, first_output_s=None, ended_s=0.5, outcome="cancelled", lost=True)
    answered = attempt(endpoint_id="m-1", role="hedge", chosen_s=0.32, connected_s=0.32, sent_s=0.33)
    found = told(flight(failed, lost, answered))
    assert found["retries"] == (0.11, "measured")
    assert found["hedge_wait"] == (0.2, "measured")


# --- all of them together: a race, attempts again, and an answer that breaks off


@st.composite
def mixed(draw: st.DrawFn) -> FlightRecord:
    """As the request's path makes them: a first attempt, perhaps raced; others; and what goes on with the answer."""
    now_s = 0.01
    tries: list[AttemptRecord] = []

    def passes() -> float:
        nonlocal now_s
        now_s += draw(st.floats(0.001, 3))
        return now_s

    def failed(**changes: Any) -> AttemptRecord:
        chosen_s = passes()
        sent_s = passes() if draw(st.booleans()) else None
        return attempt(
            chosen_s=chosen_s, connected_s=sent_s, sent_s=sent_s, head_s=None, first_output_s=None, ended_s=passes(),
            **{"outcome": "upstream_error", "error_type": "reset", **changes},
        )  # fmt: skip

    def gave(chunks: int, **changes: Any) -> AttemptRecord:
        chosen_s, sent_s, first_s = passes(), passes(), passes()
        reused = draw(st.booleans())
        return attempt(
            chosen_s=chosen_s, connected_s=sent_s, sent_s=sent_s, reused=reused, first_output_s=first_s,
            ended_s=passes(), chunks=chunks, **{"outcome": "upstream_error", "error_type": "truncated", **changes},
        )  # fmt: skip

    race = draw(st.sampled_from(["none", "first wins", "second wins", "second fails", "both fail"]))
    answers = race in ("first wins", "second wins", "second fails")
    if race in ("second wins", "both fail"):
        tries.append(failed(outcome="cancelled", lost=True) if race == "second wins" else failed())
    if race == "both fail":
        tries.append(failed(role="hedge"))
    if not answers:
        tries += [failed() for _ in range(draw(st.integers(0, 2)))]
        answers = draw(st.booleans())
    breaks = answers and draw(st.booleans())
    end: dict[str, Any] = {} if breaks else {"outcome": "ok", "error_type": None}
    if answers:
        tries.append(gave(draw(st.integers(1, 5)), role="hedge" if race == "second wins" else "primary", **end))
    if race in ("first wins", "second fails"):
        beside = tries[-1]
        began_s = draw(st.floats(beside.chosen_s - T0_S, (beside.first_output_s or 0.0) - T0_S))
        over = {"outcome": "cancelled", "lost": True} if race == "first wins" else {"outcome": "upstream_error"}
        tries.append(
            attempt(chosen_s=began_s, connected_s=None, sent_s=None, head_s=None, first_output_s=None,
                    ended_s=(beside.first_output_s or 0.0) - T0_S, role="hedge", **over)
        )  # fmt: skip
    outcome = "ok" if answers else "upstream_error"
    if breaks:
        for _ in range(draw(st.integers(0, 2))):
            tries.append(gave(draw(st.integers(1, 5)), resumes=True) if draw(st.booleans()) else failed(resumes=True))
        outcome = draw(st.sampled_from(["ok", "upstream_error", "cancelled"]))
        if outcome == "ok":
            tries.append(gave(draw(st.integers(0, 5)), resumes=True, outcome="ok", error_type=None))
    if not tries:
        tries.append(failed())
    for each in tries:
        each.expected_prefill_s = draw(maybe_s)
    record = flight(
        done_s=passes(), outcome=outcome, span_id="00f067aa0ba902b7", client_write_wait_s=draw(st.just(0.0) | some_s)
    )
    record.attempts = tries
    return record


@settings(max_examples=500, deadline=None)
@given(record=mixed())
def test_the_parts_of_a_request_with_many_attempts_are_its_time(record: FlightRecord) -> None:
    parts = phases(record)
    assert all(part.duration_s > 0 for part in parts)
    assert sum(part.duration_s for part in parts) == pytest.approx(wall_s(record), abs=1e-6)
    names = [part.name for part in parts]
    assert len(set(names)) == len(names)
    final = record.final
    assert final is not None
    assert not final.lost
    given = [each for each in record.attempts if each.chunks or each.outcome == "ok"]
    assert final is (given[-1] if given else record.attempts[-1])
    if not any(each.role == "hedge" for each in given):
        assert "hedge_wait" not in names or not given
    assert ("resume" in names) is any(each.resumes for each in record.attempts)
    assert verdict(record, parts)
    assert SpanMaker(("127.0.0.1", 80)).spans(record, PEERS)
