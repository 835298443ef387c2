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
    broken = any([attempt.resumes for attempt in record.attempts])
    answer = (
        _broken(record, end_s) if broken else _attempt(answering(record), end_s, record, record.client_write_wait_s)
    )
    told = [part for part in chain(_before(record, end_s), answer) if part.duration_s > 0]
    rest_s = wall_s(record) - sum(part.duration_s for part in told)
    return (*told, Phase("gateway", rest_s)) if rest_s > 0 else tuple(told)


def _before(record: FlightRecord, end_s: float) -> list[Phase]:
    """Until the attempt began that answered, or was to."""
    read_s = end_s if record.body_read_s is None else record.body_read_s
    parts = [Phase("read", read_s - record.received_s)]
    if record.queued_s is None:
        return parts
    admitted_s = end_s if record.admitted_s is None else record.admitted_s
    parts.append(Phase("queue", admitted_s - record.queued_s))
    for begun in answering(record)[:1]:
        first_s = record.attempts[0].chosen_s
        beside_s = begun.chosen_s if (beside := hedged_by(record)) is None else beside.chosen_s
        parts.append(Phase("route", first_s - admitted_s))
        parts.append(Phase("retries", beside_s - first_s))
        parts.append(Phase("hedge_wait", begun.chosen_s - beside_s))
    return parts


def answering(record: FlightRecord) -> list[AttemptRecord]:
    """Returns the attempts that gave the client a part of its answer; the final one if none did; nothing before any."""
    gave = [attempt for attempt in record.attempts if attempt.gave] if record.resumed else []
    if gave:
        return gave
    return [] if record.final is None else [record.final]


def hedged_by(record: FlightRecord) -> AttemptRecord | None:
    """Returns the attempt beside which the one that answered began; None if it began alone."""
    begun = next(iter(answering(record)), None)
    if begun is None or begun.role != "hedge":
        return None
    at = next(at for at, attempt in enumerate(record.attempts) if attempt is begun)
    return record.attempts[at - 1] if at else None


def _broken(record: FlightRecord, end_s: float) -> list[Phase]:
    """Of an answer that broke off: the wait for the first part, the decodes together, the breaks together."""
    parts, last = answering(record), record.attempts[-1]
    waits = [part for part in _attempt(parts[:1], end_s, record, 0.0) if part.name != "decode"]
    ends_s = [end_s if part.ended_s is None else part.ended_s for part in parts]
    firsts_s = [part.first_output_s or ended_s for part, ended_s in zip(parts, ends_s, strict=True)]
    if last is not parts[-1]:  # nobody went on at last
        firsts_s.append(end_s if last.ended_s is None else last.ended_s)
    decode_s = sum(ended_s - first_s for first_s, ended_s in zip(firsts_s, ends_s, strict=False))
    broken_s = sum(first_s - ended_s for first_s, ended_s in zip(firsts_s[1:], ends_s, strict=False))
    slow_s = min(record.client_write_wait_s, decode_s)
    return [*waits, Phase("decode", decode_s - slow_s), Phase("resume", broken_s), Phase("client_write_wait", slow_s)]


def _attempt(attempts: list[AttemptRecord], end_s: float, record: FlightRecord, write_wait_s: float) -> list[Phase]:
    if not attempts:
        return []
    attempt = attempts[0]
    ended_s = end_s if attempt.ended_s is None else attempt.ended_s
    if attempt.sent_s is None:
        return [Phase("connect", ended_s - attempt.chosen_s)]
    connected_s = attempt.chosen_s if attempt.reused or attempt.connected_s is None else attempt.connected_s
    connect = Phase("connect", connected_s - attempt.chosen_s)
    return [connect, *_answer(record, attempt, attempt.sent_s, ended_s, write_wait_s)]


def _answer(
    record: FlightRecord, attempt: AttemptRecord, sent_s: float, ended_s: float, write_wait_s: float
) -> list[Phase]:
    """From the attempt sent to its end. While a slow client takes nothing, the engine is held back too."""
    write_wait_s = min(write_wait_s, ended_s - sent_s)
    span_s = ended_s - sent_s - write_wait_s
    if attempt.first_output_s is not None:
        wait_s = min(attempt.first_output_s - sent_s, span_s)
        answer = [*until_first_output(attempt, wait_s), Phase("decode", span_s - wait_s)]
    elif record.operation == "other":  # passed on undecoded: its first byte is all that is known of it
        wait_s = span_s if attempt.first_byte_s is None else min(attempt.first_byte_s - sent_s, span_s)
        answer = [Phase("engine_wait", wait_s), Phase("decode", span_s - wait_s)]
    elif record.stream:
        answer = until_first_output(attempt, span_s)  # it never came
    else:
        answer = whole_answer(attempt, span_s, record.usage.completion_tokens if record.usage is not None else None)
    return [*answer, Phase("client_write_wait", write_wait_s)]
