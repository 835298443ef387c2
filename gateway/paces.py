"""What is usual for each endpoint: learnt from closed records, and noted on the next ones."""

from __future__ import annotations

from policies.engine_pace import SAMPLES_NEEDED, moving_mean, next_level_s, prompt_size

from .flight import FlightRecord

_NOTHING_SEEN = (0.0, 0)


class Paces:
    """An observer of ``FlightLog``, ahead of those who tell where the time went."""

    def __init__(self) -> None:
        # As many as there are endpoints, by the sizes of prompts: a level in seconds, and of how many answers
        self._first_output: dict[tuple[str, int], tuple[float, int]] = {}
        self._token_s: dict[str, float] = {}

    def observe(self, record: FlightRecord) -> None:
        """Notes on the final attempt what was usual before it, and learns from it."""
        attempt, usage = record.final, record.usage
        if attempt is None or record.operation not in ("chat", "text_completion"):
            return
        endpoint = attempt.endpoint_id
        prompt_tokens = record.bytes_in // 4 if usage is None else usage.prompt_tokens - (usage.cached_tokens or 0)
        size = endpoint, prompt_size(prompt_tokens)
        level_s, samples = self._first_output.get(size, _NOTHING_SEEN)
        if samples >= SAMPLES_NEEDED:
            attempt.expected_prefill_s = level_s
        known_s = attempt.expected_token_s = self._token_s.get(endpoint)
        sent_s, first_s, ended_s = attempt.sent_s, attempt.first_output_s, attempt.ended_s
        if attempt.outcome != "ok" or sent_s is None or first_s is None or ended_s is None:
            return
        sample_s = first_s - sent_s
        self._first_output[size] = (next_level_s(level_s, sample_s) if samples else sample_s), samples + 1
        whole = not (record.client_write_wait_s or attempt.resumes)  # the attempt's own time for all the tokens
        if usage is not None and usage.completion_tokens > 1 and whole:
            token_s = (ended_s - first_s) / (usage.completion_tokens - 1)
            self._token_s[endpoint] = moving_mean(known_s, token_s)
