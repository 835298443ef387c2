"""What is usual for each endpoint: learnt from closed records, and noted on the next ones."""

from __future__ import annotations

from collections.abc import Iterable

from policies.engine_pace import SAMPLES_NEEDED, moving_mean, next_level_s, prompt_size

from .flight import AttemptRecord, FlightRecord

_NOTHING_SEEN = (0.0, 0)


class Paces:
    """An observer of ``FlightLog``, ahead of those who tell where the time went."""

    def __init__(self) -> None:
        # As many as there are endpoints, by the sizes of prompts: a level in seconds, and of how many answers
        self._first_output: dict[tuple[str, int], tuple[float, int]] = {}
        self._token_s: dict[str, float] = {}

    def observe(self, records: Iterable[FlightRecord]) -> None:
        """Notes on each final attempt what was usual before it, and learns from it."""
        first_output, token_s = self._first_output.get, self._token_s.get
        for record in records:
            attempt, usage = record.final, record.usage
            if attempt is None or record.operation not in ("chat", "text_completion"):
                continue
            endpoint = attempt.endpoint_id
            cached_tokens = 0 if usage is None else usage.cached_tokens or 0
            size = endpoint, prompt_size(record.prompt_tokens - cached_tokens)
            seen = first_output(size)
            if seen is not None and seen[1] >= SAMPLES_NEEDED:
                attempt.expected_prefill_s = seen[0]
            attempt.expected_token_s = token_s(endpoint)
            if (first_s := attempt.first_output_s) is not None and attempt.outcome == "ok":
                self._learn(record, attempt, first_s, size)

    def _learn(self, record: FlightRecord, attempt: AttemptRecord, first_s: float, size: tuple[str, int]) -> None:
        """Takes a good answer whose first output was seen."""
        sent_s, ended_s, usage = attempt.sent_s, attempt.ended_s, record.usage
        if sent_s is None or ended_s is None:
            return
        sample_s = first_s - sent_s
        level_s, samples = self._first_output.get(size, _NOTHING_SEEN)
        self._first_output[size] = (next_level_s(level_s, sample_s) if samples else sample_s), samples + 1
        whole = not (record.client_write_wait_s or attempt.resumes)  # the attempt's own time for all the tokens
        if usage is not None and usage.completion_tokens > 1 and whole:
            token_s = (ended_s - first_s) / (usage.completion_tokens - 1)
            self._token_s[attempt.endpoint_id] = moving_mean(attempt.expected_token_s, token_s)
