"""Records are the same after they were written and read."""

from __future__ import annotations

from dataclasses import asdict, fields

import pytest

from adapters.types import EngineTimings, Usage
from gateway.attribution.explanation import explanation
from gateway.flight import AttemptRecord, Decision, FlightRecord, Stall
from gateway.recorder.record_json import FIELDS, LEFT_OUT, dump, load
from policies.types import EndpointSnapshot, PoolView, RouteQuery
from tests.fakes.flight_records import attempt, flight, loaded

_IDLE = EndpointSnapshot("m-0", "healthy", 0, frozenset({"tools"}), ttft_s=0.25)
_BUSY = EndpointSnapshot("m-1", "ejected", 7, oldest_s=12.5, learnt="is learnt again")
_VIEW = PoolView(13.0, 8, (_IDLE, _BUSY), (1 << 64) - 1)
_QUERY = RouteQuery(frozenset({"m-1"}), frozenset({"tools"}), 900, (5, 6), {"m-0": 512}, b"session")

RECORDS = [
    flight(),
    flight(attempt(timings=EngineTimings(queue_s=0.1), load=loaded(3, 7), expected_prefill_s=0.2), attempt()),
    flight(attempt(joined=("a", "b"), stalls=(Stall(1.0, 0.5, 2), Stall(2.0, 0.6, 3)), span_id="c"), sampled=True),
    flight(usage=Usage(1, 2, cached_tokens=1, estimated=True), model="modèle"),
    flight(attempt(outcome="upstream_error"), resume="no_endpoint", not_resumed="nobody is left"),
    FlightRecord("r", "GET", "/", 1.0, 2.0, []),
]


def test_records_come_back_as_they_were() -> None:
    found = load(dump(RECORDS))
    assert [asdict(record) for record in found] == [asdict(record) for record in RECORDS]
    assert [explanation(record) for record in found] == [explanation(record) for record in RECORDS]


def test_a_decision_comes_back_without_what_was_learnt_the_later_blocks_and_the_name_of_the_session() -> None:
    again = PoolView(14.0, 9, (_IDLE, _BUSY), 0)
    written = [flight(attempt(decision=Decision(view, _QUERY))) for view in (_VIEW, again)]
    data = dump(written)
    assert data.count(b'"m-1"') == 1 + 2, "an endpoint's state is written once, and each time that it was tried"
    assert b"session" not in data
    first, second = (record.attempts[0].decision for record in load(data))
    assert first is not None
    assert second is not None
    assert first.view == _VIEW._replace(endpoints=(_IDLE, _BUSY._replace(learnt=None)))
    assert second.view.endpoints[0] is first.view.endpoints[0]
    assert first.query._replace(session=None) == _QUERY._replace(blocks=(5,), session=None)
    assert first.query.session == second.query.session


def test_every_field_is_written_or_left_out_on_purpose() -> None:
    assert sorted((*FIELDS, *LEFT_OUT)) == sorted(
        field.name for kind in (FlightRecord, AttemptRecord) for field in fields(kind)
    )


@pytest.mark.parametrize("data", [b"", b"nonsense", b"{}x", b"[{}]", b'[{"a":1}]', b"[1]", b"null", b"[[1,2,3]]"])
def test_what_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        load(data)
