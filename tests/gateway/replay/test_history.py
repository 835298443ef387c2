"""What records tell of what was learnt."""

from __future__ import annotations

from adapters.types import Usage
from gateway.flight import AttemptRecord, Decision
from gateway.replay.history import Taught, history
from policies.types import NO_QUERY, Answered, EndpointSnapshot, PoolView
from tests.fakes.flight_records import attempt, flight

DECISION = Decision(
    PoolView(0.0, 1, (EndpointSnapshot("m-0", "healthy", 0), EndpointSnapshot("m-1", "healthy", 0))), NO_QUERY
)


def answers(*attempts: AttemptRecord) -> list[tuple[str, int]]:
    for each in attempts:
        each.decision = DECISION
    events = history([flight(*attempts, usage=Usage(5, 7))])
    taught = [event for event in events if isinstance(event, Taught)]
    return [(each.endpoint_id, each.sample.output_tokens) for each in taught if isinstance(each.sample, Answered)]


def test_an_answer_teaches_also_where_a_second_attempt_began_beside_it() -> None:
    lost = attempt(endpoint_id="m-1", role="hedge", first_output_s=None, outcome="cancelled", lost=True)
    assert answers(attempt(), lost) == [("m-0", 7)]


def test_of_an_answer_in_two_parts_neither_teaches_what_only_the_whole_is_known_of() -> None:
    broke = attempt(outcome="upstream_error", chunks=3)
    assert answers(broke, attempt(endpoint_id="m-1", chosen_s=2.0, resumes=True)) == []
