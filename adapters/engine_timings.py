"""Where an engine says that the time of one answer went, in the forms that engines have for it.

llama.cpp puts ``timings`` and vLLM, with ``--enable-per-request-metrics``, ``metrics`` beside the choices of a whole
answer or of a stream's last chunk; TGI has headers, on whole answers only. Ollama's are in ``ollama_lines``.
"""

from __future__ import annotations

from typing import Any

from .json_values import Json, as_object
from .types import AnswerHead, EngineTimings

_NOTHING = EngineTimings()
_MS_PER_S = 1000.0
_LONGEST_MS = 1e10  # a hundred days; what is above it is no duration


def timings_in(fields: Json) -> EngineTimings | None:
    """Returns what a chunk or a whole answer says; None if it says nothing."""
    if (told := as_object(fields.get("timings"))) is not None:
        timings = EngineTimings(prefill_s=_seconds(told.get("prompt_ms")), decode_s=_seconds(told.get("predicted_ms")))
    elif (told := as_object(fields.get("metrics"))) is not None:
        timings = EngineTimings(
            queue_s=_seconds(told.get("queue_time_ms")),
            prefill_s=_seconds(told.get("time_to_first_token_ms")),  # counts from when it was scheduled
            decode_s=_seconds(told.get("generation_time_ms")),  # from the first token to the last
        )
    else:
        return None
    return None if timings == _NOTHING else timings


def tgi_timings(head: AnswerHead) -> EngineTimings | None:
    """Returns what TGI's headers say: milliseconds, of which the inference is prefill and decode together."""
    timings = EngineTimings(
        queue_s=_header_s(head.get(b"x-queue-time")), inference_s=_header_s(head.get(b"x-inference-time"))
    )
    return None if timings == _NOTHING else timings


def _seconds(duration_ms: Any) -> float | None:
    """Converts a duration as an engine wrote it; None if it is no duration."""
    if isinstance(duration_ms, bool) or not isinstance(duration_ms, int | float):
        return None
    return duration_ms / _MS_PER_S if 0 <= duration_ms <= _LONGEST_MS else None


def _header_s(value: bytes | None) -> float | None:
    try:
        return None if value is None else _seconds(float(value))
    except ValueError:
        return None
