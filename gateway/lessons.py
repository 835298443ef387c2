"""What a closed attempt teaches the pool's policy."""

from __future__ import annotations

from policies.types import Answered

from .flight import AttemptRecord, FlightRecord


def answered(attempt: AttemptRecord, record: FlightRecord) -> Answered | None:
    """Returns what a good attempt, the record's last one, tells; None of what is no answer of a model."""
    if attempt.sent_s is None or attempt.ended_s is None or record.operation == "other":
        return None
    usage, first_s, token_s = record.usage, attempt.first_output_s, None
    output_tokens = record.chunks if usage is None else usage.completion_tokens
    if first_s is not None and output_tokens > 1 and not record.client_write_wait_s:
        token_s = ((record.last_output_s or attempt.ended_s) - first_s) / (output_tokens - 1)
    counted = usage is not None and not usage.estimated
    return Answered(
        attempt.sent_s,
        attempt.ended_s,
        first_s,
        usage.prompt_tokens if usage is not None and counted else None,
        usage.cached_tokens if usage is not None and counted else None,
        output_tokens,
        token_s,
    )
