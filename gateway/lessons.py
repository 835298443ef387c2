"""What a closed attempt teaches: the pool's policy, and what is usual in the pool."""

from __future__ import annotations

from policies.named_tuples import named
from policies.types import Answered
from policies.usual_waits import UsualWaits

from .flight import AttemptRecord, FlightRecord

MOST_TOKENS_PER_S = 100_000
"""Of one answer, all its choices together: no engine is nearly as quick, so a count above it is none."""
_FEW_TOKENS = 10_000  # as many may come at once out of a cache


def answered(attempt: AttemptRecord, record: FlightRecord) -> Answered | None:
    """Returns what a good attempt, the record's final one, tells; None of what is no answer of a model.

    Of one that went on with a stream its own chunks count: the tokens are of another prompt, or of the whole answer.
    So they do where the engine's count cannot be.
    """
    sent_s, ended_s = attempt.sent_s, attempt.ended_s
    if sent_s is None or ended_s is None or record.operation == "other":
        return None
    first_s, prompt_tokens, cached_tokens, token_s = attempt.first_output_s, None, None, None
    usage = record.usage
    if usage is None or attempt.resumes:
        output_tokens = attempt.chunks
    else:
        most_tokens = _FEW_TOKENS + MOST_TOKENS_PER_S * (ended_s - sent_s)
        output_tokens = usage.completion_tokens if usage.completion_tokens <= most_tokens else attempt.chunks
        if not usage.estimated:
            prompt_tokens, cached_tokens = usage.prompt_tokens, usage.cached_tokens
    if first_s is not None and output_tokens > 1 and not record.client_write_wait_s:
        token_s = ((record.last_output_s or ended_s) - first_s) / (output_tokens - 1)
    sample = (sent_s, ended_s, first_s, prompt_tokens, cached_tokens, output_tokens, token_s)
    return named(Answered, sample)


def learn_waits(usual: UsualWaits, attempt: AttemptRecord, record: FlightRecord, prompt_tokens: int) -> None:
    """Tells how long the attempt was silent; nothing if it failed, or is no answer of a model.

    One that lost to another would have been silent for longer still: what it took is counted all the same, or else the
    slow ones would be forgotten, and the quick ones be taken for slow.
    """
    sent_s, ended_s = attempt.sent_s, attempt.ended_s
    if sent_s is None or ended_s is None or record.operation not in ("chat", "text_completion"):
        return
    if attempt.outcome == "ok":
        usual.first_output(record.stream, prompt_tokens, (attempt.first_output_s or ended_s) - sent_s)
        if record.stream and record.chunks > 1 and not attempt.resumes:  # until it went on is no engine's gap
            usual.longest_gap(record.longest_gap_s)
    elif attempt.lost and attempt.role == "primary":  # a second one has not waited for as long as is late
        usual.first_output(record.stream, prompt_tokens, ended_s - sent_s)
