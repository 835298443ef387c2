"""Records are the same after they were written and read."""

from __future__ import annotations

from dataclasses import asdict, fields

import pytest

from adapters.types import EngineTimings, Usage
from gateway.attribution.explanation import explanation
from gateway.flight import AttemptRecord, FlightRecord, Stall
from gateway.recorder.record_json import FIELDS, LEFT_OUT, dump, load
from tests.fakes.flight_records import attempt, flight, loaded

RECORDS = [
    flight(),
    flight(attempt(timings=EngineTimings(queue_s=0.1), load=loaded(3, 7), expected_prefill_s=0.2), attempt()),
    flight(attempt(joined=("a", "b"), stalls=(Stall(1.0, 0.5, 2), Stall(2.0, 0.6, 3)), span_id="c"), sampled=True),
    flight(usage=Usage(1, 2, cached_tokens=1, estimated=True), model="modèle"),
    FlightRecord("r", "GET", "/", 1.0, 2.0, []),
]


def test_records_come_back_as_they_were() -> None:
    found = load(dump(RECORDS))
    assert [asdict(record) for record in found] == [asdict(record) for record in RECORDS]
    assert [explanation(record) for record in found] == [explanation(record) for record in RECORDS]


def test_every_field_is_written_or_left_out_on_purpose() -> None:
    assert sorted((*FIELDS, *LEFT_OUT)) == sorted(
        field.name for kind in (FlightRecord, AttemptRecord) for field in fields(kind)
    )


@pytest.mark.parametrize("data", [b"", b"nonsense", b"{}x", b"[{}]", b'[{"a":1}]', b"[1]", b"null", b"[[1,2,3]]"])
def test_what_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        load(data)
