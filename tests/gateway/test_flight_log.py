"""Closed records: told to everybody, in batches, however the readers behave."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gateway.flight import FlightRecord
from gateway.flight_log import BATCH, FlightLog
from tests.fakes.scripted import eventually


def _flown(flights: FlightLog, count: int) -> list[FlightRecord]:
    records = [flights.open(f"id-{number}", "POST", "/") for number in range(count)]
    for record in records:
        flights.close(record)
    return records


async def test_one_that_reads_closed_records_and_fails_keeps_them_from_nobody() -> None:
    told: list[FlightRecord] = []
    asked: list[None] = []

    def fails(records: Iterable[FlightRecord]) -> None:
        asked.append(None)
        raise RuntimeError("telemetry")

    flights = FlightLog((fails, told.extend))
    flown = _flown(flights, 2)
    flights.settle()
    assert told == flown
    assert len(asked) == 2
    assert flights.in_flight == 0


async def test_one_that_fails_at_a_record_goes_on_with_the_next(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    def fails_at_some(records: Iterable[FlightRecord]) -> None:
        for record in records:
            told.append(record.request_id)
            if record.request_id in ("id-0", "id-2", "id-4"):
                raise RuntimeError(record.request_id)

    flights = FlightLog((fails_at_some,))
    _flown(flights, 5)
    flights.settle()
    assert told == [f"id-{number}" for number in range(5)]
    assert caplog.text.count("a reader of closed records failed") == 3


async def test_each_record_is_told_once_in_order_when_a_batch_is_full_or_somebody_asks() -> None:
    told: list[FlightRecord] = []
    flights = FlightLog((told.extend,))
    few = _flown(flights, BATCH - 1)
    assert told == []
    more = _flown(flights, 2)
    assert told == [*few, more[0]]
    flights.settle()
    assert told == [*few, *more]
    flights.settle()
    assert told == [*few, *more]


async def test_a_single_record_is_told_soon() -> None:
    told: list[FlightRecord] = []
    flown = _flown(FlightLog((told.extend,)), 1)
    await eventually(lambda: told == flown)
