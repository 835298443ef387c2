"""Closed records: told to everybody, in batches, however the readers behave."""

from __future__ import annotations

from contextlib import suppress

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

    def fails(record: FlightRecord) -> None:
        raise RuntimeError("telemetry")

    flights = FlightLog((fails, told.append))
    flown = _flown(flights, 2)
    with suppress(RuntimeError):
        flights.settle()
    assert told == flown
    assert flights.in_flight == 0


async def test_each_record_is_told_once_in_order_when_a_batch_is_full_or_somebody_asks() -> None:
    told: list[FlightRecord] = []
    flights = FlightLog((told.append,))
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
    flown = _flown(FlightLog((told.append,)), 1)
    await eventually(lambda: told == flown)
