"""What happened, in the order in which it happened: decisions, and what came of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Literal, NamedTuple

from policies.types import Answered, FirstOutput

from ..flight import AttemptRecord, Decision, FlightRecord
from ..lessons import answered

HORIZON_S = 300.0
"""Few requests take longer."""


class Decided(NamedTuple):
    """An endpoint was chosen.

    Attributes:
        took_s: From then to its first output; None if there was none that counts.
    """

    pool: str
    request_id: str
    decision: Decision
    endpoint_id: str
    reason: str
    took_s: float | None


class Taught(NamedTuple):
    """An endpoint answered: what a policy could learn."""

    pool: str
    endpoint_id: str
    sample: FirstOutput | Answered


Event = Decided | Taught
_Kind = Literal[0, 1]


def history(records: Iterable[FlightRecord]) -> Iterator[Event]:
    """Yields what the records tell, in the order in which it happened.

    Attempts whose decision was not noted tell nothing. Only what happened within ``HORIZON_S`` is kept at a time: what
    a request that took longer tells of its beginning comes late.

    Args:
        records: About in the order in which they ended.
    """
    waiting: list[tuple[float, _Kind, int, Event]] = []
    number, latest_unix_s = 0, 0.0
    for record in records:
        latest_unix_s = max(latest_unix_s, record.received_unix_s + record.duration_s)
        while waiting and waiting[0][0] < latest_unix_s - HORIZON_S:
            yield heappop(waiting)[3]
        # Processes of different starts of the machine have different clocks; the wall's is one for all
        zero_unix_s = record.received_unix_s - record.received_s
        for attempt in record.attempts:
            if attempt.decision is None:
                continue
            for at_s, kind, event in _told(record, attempt, attempt.decision):
                heappush(waiting, (zero_unix_s + at_s, kind, number, event))
                number += 1
    while waiting:
        yield heappop(waiting)[3]


def _told(record: FlightRecord, attempt: AttemptRecord, decision: Decision) -> Iterable[tuple[float, _Kind, Event]]:
    endpoint_id, sent_s, first_s = attempt.endpoint_id, attempt.sent_s, attempt.first_output_s
    took_s = None if first_s is None or attempt.outcome == "cancelled" else first_s - attempt.chosen_s
    # What is learnt at the moment of a decision was not known to it
    yield (
        attempt.chosen_s,
        0,
        Decided(record.pool, record.request_id, decision, endpoint_id, attempt.reason, took_s),
    )
    if sent_s is not None and first_s is not None:
        yield first_s, 1, Taught(record.pool, endpoint_id, _first_output(attempt, decision, sent_s, first_s))
    if attempt is record.final and attempt.outcome == "ok" and attempt.ended_s is not None:
        sample = answered(attempt, record)
        if sample is not None:
            yield attempt.ended_s, 1, Taught(record.pool, endpoint_id, sample)


def _first_output(attempt: AttemptRecord, decision: Decision, sent_s: float, first_s: float) -> FirstOutput:
    query = decision.query
    there = next(e for e in decision.view.endpoints if e.endpoint_id == attempt.endpoint_id)
    uncached_tokens = query.prompt_tokens - query.cached_tokens.get(attempt.endpoint_id, 0)
    return FirstOutput(
        sent_s,
        first_s,
        query.prompt_tokens,
        uncached_tokens,
        there.pending,
        there.pending_tokens,
        there.held_tokens,
        attempt.in_flight,
    )
