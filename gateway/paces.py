"""What is usual for each endpoint: learnt from closed records, and noted on the next ones."""

from __future__ import annotations

from policies.engine_pace import NOTHING_SEEN, Level, moving_mean, prompt_size

from .flight import AttemptRecord, FlightRecord


class Paces:
    """An observer of ``FlightLog``, ahead of those who tell where the time went."""

    def __init__(self) -> None:
        # As many as the configuration has endpoints, by the sizes of prompts
        self._first_output: dict[tuple[str, int], Level] = {}
        self._token_s: dict[str, float] = {}

    def observe(self, record: FlightRecord) -> None:
        """Notes on the last attempt what was usual before it, and learns from it."""
        if not record.attempts or record.operation not in ("chat", "text_completion"):
            return
        attempt, usage = record.attempts[-1], record.usage
        endpoint = attempt.endpoint_id
        prompt_tokens = record.bytes_in // 4 if usage is None else usage.prompt_tokens - (usage.cached_tokens or 0)
        size = endpoint, prompt_size(prompt_tokens)
        level = self._first_output.get(size, NOTHING_SEEN)
        attempt.expected_prefill_s = level.expected_s
        attempt.expected_token_s = self._token_s.get(endpoint)
        if attempt.outcome == "ok" and attempt.sent_s is not None and attempt.first_output_s is not None:
            self._first_output[size] = level.after(attempt.first_output_s - attempt.sent_s)
            if (token_s := _token_s(record, attempt)) is not None:
                self._token_s[endpoint] = moving_mean(attempt.expected_token_s, token_s)


def _token_s(record: FlightRecord, attempt: AttemptRecord) -> float | None:
    if record.usage is None or record.usage.completion_tokens < 2 or record.client_write_wait_s:
        return None
    assert attempt.first_output_s is not None
    ended_s = attempt.first_output_s if attempt.ended_s is None else attempt.ended_s
    return (ended_s - attempt.first_output_s) / (record.usage.completion_tokens - 1)
