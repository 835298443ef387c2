"""Takes an engine's time apart: its queue, its prefill, its decode."""

from __future__ import annotations

from adapters.types import EngineTimings
from policies.types import FRESH_S

from ..flight import AttemptRecord
from .phase import Phase


def until_first_output(attempt: AttemptRecord, wait_s: float) -> list[Phase]:
    """Splits the time from the attempt sent to its first output.

    What the engine itself says comes first; then llama.cpp's head, which comes when a slot takes the request; then what
    is usual for the endpoint, as far as anything could have been ahead of the request there; then the engine's gauge.
    """
    timings = attempt.timings
    if timings is not None and (timings.prefill_s is not None or timings.queue_s is not None):
        return _as_told(attempt, timings, wait_s)
    if (queue_s := _until_slot_s(attempt)) is not None:
        queue_s = min(queue_s, wait_s)
        return [Phase("engine_queue", queue_s), Phase("prefill", wait_s - queue_s)]
    if _ahead(attempt) == 0:
        return [Phase("prefill", wait_s, "inferred")]
    if attempt.expected_prefill_s is not None:
        prefill_s = min(attempt.expected_prefill_s, wait_s)
        return [Phase("engine_queue", wait_s - prefill_s, "inferred"), Phase("prefill", prefill_s, "inferred")]
    if attempt.load.load.waiting:
        return [Phase("engine_queue", wait_s, "inferred")]
    return [Phase("engine_wait", wait_s)]


def whole_answer(attempt: AttemptRecord, span_s: float, completion_tokens: int | None) -> list[Phase]:
    """Splits the time of an answer that came in one piece, of which no first output was seen."""
    timings = attempt.timings
    if timings is not None and timings.inference_s is not None and timings.decode_s is None:
        inference_s = min(timings.inference_s, span_s)
        queue_s = min(timings.queue_s or 0.0, span_s - inference_s)
        other = Phase("engine_other", span_s - inference_s - queue_s, "inferred")
        return [Phase("engine_queue", queue_s), Phase("engine_wait", inference_s), other]
    if timings is not None and timings.decode_s is not None:
        decode_s = min(timings.decode_s, span_s)
        return [*until_first_output(attempt, span_s - decode_s), Phase("decode", decode_s)]
    if attempt.expected_token_s is None or not completion_tokens:
        return [Phase("engine_wait", span_s)]
    decode_s = min(attempt.expected_token_s * (completion_tokens - 1), span_s)
    return [*until_first_output(attempt, span_s - decode_s), Phase("decode", decode_s, "inferred")]


def _as_told(attempt: AttemptRecord, timings: EngineTimings, wait_s: float) -> list[Phase]:
    """By the engine's own times, each at most what is left of the time there was."""
    load_s = min(timings.load_s or 0.0, wait_s)
    rest_s = wait_s - load_s
    parts = [Phase("engine_load", load_s)] if load_s else []
    if timings.prefill_s is None:
        queue_s = min(timings.queue_s or 0.0, rest_s)
        return [*parts, Phase("engine_queue", queue_s), Phase("prefill", rest_s - queue_s, "inferred")]
    prefill_s = min(timings.prefill_s, rest_s)
    rest_s -= prefill_s
    told_s = _until_slot_s(attempt) if timings.queue_s is None else timings.queue_s
    if told_s is None:
        return [*parts, Phase("engine_queue", rest_s, "inferred"), Phase("prefill", prefill_s)]
    queue_s = min(told_s, rest_s)
    other = Phase("engine_other", rest_s - queue_s, "inferred")
    return [*parts, Phase("engine_queue", queue_s), Phase("prefill", prefill_s), other]


def _until_slot_s(attempt: AttemptRecord) -> float | None:
    """How long llama.cpp let a stream wait for a slot: its head comes when one takes the request."""
    if attempt.engine != "llamacpp" or attempt.head_s is None or attempt.sent_s is None:
        return None
    return max(attempt.head_s - attempt.sent_s, 0.0) if attempt.first_output_s is not None else None


def _ahead(attempt: AttemptRecord) -> int | None:
    """How many requests may have been ahead in the engine when this one came; None if that is not known."""
    ours, sample = max(attempt.in_flight - 1, 0), attempt.load
    if sample.load.waiting is None or sample.asked_s is None or attempt.chosen_s - sample.asked_s > FRESH_S:
        return ours or None
    return ours + sample.load.waiting
