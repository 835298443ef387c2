"""What is usual for each endpoint: learnt from closed records, and noted on the next ones."""

from __future__ import annotations

from policies.engine_pace import EnginePace

from .flight import AttemptRecord, FlightRecord

UNKNOWN = EnginePace()


class Paces:
    """An observer of ``FlightLog``, ahead of those who tell where the time went."""

    def __init__(self) -> None:
        self._by_endpoint: dict[str, EnginePace] = {}  # as many as the configuration has

    def observe(self, record: FlightRecord) -> None:
        """Notes on the last attempt what was usual before it, and learns from it."""
        if not record.attempts or record.operation not in ("chat", "text_completion"):
            return
        attempt, usage = record.attempts[-1], record.usage
        known = self._by_endpoint.get(attempt.endpoint_id, UNKNOWN)
        prompt_tokens = max(usage.prompt_tokens - (usage.cached_tokens or 0), 1) if usage else record.bytes_in // 4
        attempt.expected_prefill_s = known.expected_prefill_s(prompt_tokens)
        attempt.expected_token_s = known.token_s
        if attempt.outcome == "ok" and attempt.sent_s is not None and attempt.first_output_s is not None:
            first_s = attempt.first_output_s - attempt.sent_s
            token_s = _token_s(record, attempt)
            self._by_endpoint[attempt.endpoint_id] = known.answered(prompt_tokens, first_s, token_s)


def _token_s(record: FlightRecord, attempt: AttemptRecord) -> float | None:
    if record.usage is None or record.usage.completion_tokens < 2 or record.client_write_wait_s:
        return None
    assert attempt.first_output_s is not None
    ended_s = attempt.first_output_s if attempt.ended_s is None else attempt.ended_s
    return (ended_s - attempt.first_output_s) / (record.usage.completion_tokens - 1)
