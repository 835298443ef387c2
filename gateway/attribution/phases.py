"""Where a request's time went, by the marks of its record."""

from __future__ import annotations

from itertools import chain

from ..flight import AttemptRecord, FlightRecord
from .engine_share import until_first_output, whole_answer
from .phase import Phase


def wall_s(record: FlightRecord) -> float:
    """Returns the time from a request's head to the last byte of its answer."""
    return max((record.done_s or record.received_s) - record.received_s, 0.0)


def phases(record: FlightRecord) -> tuple[Phase, ...]:
    """Returns the parts of a closed record's time, in order, without those that took none.

    They sum to ``wall_s``: what no mark tells is ``gateway``.
    """
    end_s = record.received_s + wall_s(record)
    told = [part for part in chain(_before(record, end_s), _final_attempt(record, end_s)) if part.duration_s > 0]
    rest_s = wall_s(record) - sum(part.duration_s for part in told)
    return (*told, Phase("gateway", rest_s)) if rest_s > 0 else tuple(told)


def _before(record: FlightRecord, end_s: float) -> list[Phase]:
    """Until the final attempt began."""
    read_s = end_s if record.body_read_s is None else record.body_read_s
    parts = [Phase("read", read_s - record.received_s)]
    if record.queued_s is None:
        return parts
    admitted_s = end_s if record.admitted_s is None else record.admitted_s
    parts.append(Phase("queue", admitted_s - record.queued_s))
    if (final := record.final) is not None:
        first_s = record.attempts[0].chosen_s
        beside_s = final.chosen_s if (beside := hedged_by(record)) is None else beside.chosen_s
        parts.append(Phase("route", first_s - admitted_s))
        parts.append(Phase("retries", beside_s - first_s))
        parts.append(Phase("hedge_wait", final.chosen_s - beside_s))
    return parts


def hedged_by(record: FlightRecord) -> AttemptRecord | None:
    """Returns the attempt beside which the final one began; None if it began alone."""
    final = record.final
    if final is None or final.role != "hedge":
        return None
    at = next(at for at, attempt in enumerate(record.attempts) if attempt is final)
    return record.attempts[at - 1] if at else None


def _final_attempt(record: FlightRecord, end_s: float) -> list[Phase]:
    attempt = record.final
    if attempt is None:
        return []
    ended_s = end_s if attempt.ended_s is None else attempt.ended_s
    if attempt.sent_s is None:
        return [Phase("connect", ended_s - attempt.chosen_s)]
    connected_s = attempt.chosen_s if attempt.reused or attempt.connected_s is None else attempt.connected_s
    connect = Phase("connect", connected_s - attempt.chosen_s)
    return [connect, *_answer(record, attempt, attempt.sent_s, ended_s)]


def _answer(record: FlightRecord, attempt: AttemptRecord, sent_s: float, ended_s: float) -> list[Phase]:
    """From the attempt sent to its end. While a slow client takes nothing, the engine is held back too."""
    write_wait_s = min(record.client_write_wait_s, ended_s - sent_s)
    span_s = ended_s - sent_s - write_wait_s
    if attempt.first_output_s is not None:
        wait_s = min(attempt.first_output_s - sent_s, span_s)
        answer = [*until_first_output(attempt, wait_s), Phase("decode", span_s - wait_s)]
    elif record.stream:
        answer = until_first_output(attempt, span_s)  # it never came
    else:
        answer = whole_answer(attempt, span_s, record.usage.completion_tokens if record.usage is not None else None)
    return [*answer, Phase("client_write_wait", write_wait_s)]
