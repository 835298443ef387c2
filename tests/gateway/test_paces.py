"""What was usual at an endpoint before a request is noted on it."""

from __future__ import annotations

import pytest

from adapters.types import Usage
from gateway.flight import AttemptRecord, FlightRecord
from gateway.paces import Paces
from policies.engine_pace import SAMPLES_NEEDED
from tests.fakes.flight_records import attempt, flight


def noted(*records: FlightRecord) -> AttemptRecord:
    """What the last of them was told."""
    paces = Paces()
    for record in records:
        paces.observe((record,))
    return records[-1].attempts[-1]


def test_a_few_answers_are_needed() -> None:
    assert noted(*(flight() for _ in range(SAMPLES_NEEDED))).expected_prefill_s is None
    assert noted(*(flight() for _ in range(SAMPLES_NEEDED + 1))).expected_prefill_s == pytest.approx(0.48)


def test_the_time_of_a_token_is_known_after_one() -> None:
    assert noted(flight()).expected_token_s is None
    assert noted(flight(), flight()).expected_token_s == pytest.approx(0.05)
    assert noted(flight(usage=Usage(100, 1)), flight()).expected_token_s is None
    assert noted(flight(client_write_wait_s=0.5), flight()).expected_token_s is None


@pytest.mark.parametrize(
    "other",
    [
        flight(attempt(endpoint_id="m-1")),
        flight(usage=Usage(5000, 21)),
        flight(usage=Usage(5100, 21, cached_tokens=100)),
        flight(usage=None, bytes_in=20_000),
        flight(operation="embeddings"),
    ],
)
def test_other_endpoints_and_other_sizes_of_prompts_are_another_matter(other: FlightRecord) -> None:
    assert noted(*(flight() for _ in range(9)), other).expected_prefill_s is None


def test_tokens_that_were_cached_are_not_read_again() -> None:
    assert noted(*(flight() for _ in range(9)), flight(usage=Usage(5100, 21, cached_tokens=5000))).expected_prefill_s


@pytest.mark.parametrize("failed", [attempt(outcome="timeout"), attempt(first_output_s=None), attempt(sent_s=None)])
def test_an_attempt_that_failed_teaches_nothing(failed: AttemptRecord) -> None:
    assert noted(*(flight(failed) for _ in range(9)), flight()).expected_prefill_s is None


def test_a_request_without_an_attempt_is_none_of_its_business() -> None:
    shed = flight()
    shed.attempts.clear()
    Paces().observe((shed,))
