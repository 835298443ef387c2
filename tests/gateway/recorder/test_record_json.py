"""Records are the same after they were written and read."""

from __future__ import annotations

from dataclasses import asdict

import orjson
import pytest

from adapters.types import EngineTimings, Usage
from gateway.attribution.explanation import explanation
from gateway.flight import FlightRecord
from gateway.recorder.record_json import dump, load
from tests.fakes.flight_records import attempt, flight, loaded


@pytest.mark.parametrize(
    "record",
    [
        flight(),
        flight(attempt(timings=EngineTimings(queue_s=0.1), load=loaded(3, 7), expected_prefill_s=0.2), attempt()),
        flight(usage=Usage(1, 2, cached_tokens=1, estimated=True), model="modèle \ud83d", traceparent=b"00-a-b-01"),
        FlightRecord("r", "GET", "/", 1.0, 2.0, []),
    ],
)
def test_a_record_comes_back_as_it_was(record: FlightRecord) -> None:
    if record.traceparent is not None:
        record.traceparent, record.model = None, "modèle"
    found = load(dump(record))
    assert asdict(found) == asdict(record)
    assert explanation(found) == explanation(record)


def test_a_newer_versions_fields_are_left_out_and_an_older_ones_keep_their_defaults() -> None:
    told = orjson.loads(dump(flight(attempt(timings=EngineTimings(queue_s=0.1)))))
    told["not_invented_yet"] = told["attempts"][0]["nor_this"] = 1
    del told["longest_gap_s"], told["attempts"][0]["load"], told["attempts"][0]["engine"]
    told["usage"] = told["usage"][:2]
    found = load(orjson.dumps(told))
    assert found.longest_gap_s == 0.0
    assert found.usage == Usage(100, 21)
    assert found.attempts[0].engine == ""
    assert found.attempts[0].load.load.waiting is None


@pytest.mark.parametrize("data", [b"", b"nonsense", b"[]", b"{}", b'{"attempts":1}', b'{"attempts":[1]}', b"null"])
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        load(data)
