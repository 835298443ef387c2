"""What is told of one request: the JSON of ``GET /weir/requests/{id}`` and ``weir explain --json``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ..flight import AttemptRecord, FlightRecord
from .phases import phases, wall_s
from .verdict import verdict

Explanation = dict[str, Any]
"""The shape, as it goes over the wire."""


def explanation(record: FlightRecord) -> Explanation:
    """Returns the shape that scripts rely on. Durations in seconds; offsets count from the request's head."""
    parts = phases(record)
    usage = record.usage
    return {
        "request_id": record.request_id,
        "trace_id": record.trace_id or None,
        "received": datetime.fromtimestamp(record.received_unix_s, UTC).isoformat(timespec="milliseconds"),
        "pool": record.pool,
        "model": record.model,
        "operation": record.operation,
        "stream": record.stream,
        "endpoint": record.endpoint_id,
        "status": record.status,
        "outcome": record.outcome,
        "error_type": record.error_type,
        "resume": record.resume,
        "not_resumed": record.not_resumed or None,
        "duration_s": wall_s(record),
        "ttft_s": record.ttft_s,
        "longest_gap_s": record.longest_gap_s,
        "input_tokens": None if usage is None else usage.prompt_tokens,
        "output_tokens": None if usage is None else usage.completion_tokens,
        "tokens_source": None if usage is None else "estimate" if usage.estimated else "usage",
        "verdict": verdict(record, parts),
        "slowest_phase": max(parts, key=lambda part: part.duration_s).name if parts else None,
        "phases": [part._asdict() for part in parts],
        "attempts": [_attempt(record, attempt) for attempt in record.attempts],
    }


def _attempt(record: FlightRecord, attempt: AttemptRecord) -> dict[str, Any]:
    def offset_s(at_s: float | None) -> float | None:
        return None if at_s is None else at_s - record.received_s

    asked_s = attempt.load.asked_s
    return {
        "endpoint": attempt.endpoint_id,
        "engine": attempt.engine,
        "reason": attempt.reason,
        "role": attempt.role,
        "outcome": attempt.outcome,
        "lost": attempt.lost,
        "error_type": attempt.error_type,
        "status": attempt.status,
        "reused_connection": attempt.reused,
        "resumes": attempt.resumes,
        "chunks": attempt.chunks,
        "chosen_at_s": offset_s(attempt.chosen_s),
        "sent_at_s": offset_s(attempt.sent_s),
        "first_output_at_s": offset_s(attempt.first_output_s),
        "ended_at_s": offset_s(attempt.ended_s),
        "in_flight": attempt.in_flight,
        **attempt.load.load._asdict(),
        "load_age_s": None if asked_s is None else attempt.chosen_s - asked_s,
        "engine_timings": None if attempt.timings is None else attempt.timings._asdict(),
    }
