"""LightLLM's errors, and whose fault they are: its statuses do not always say.

An error answer is ``{"error": {"message", "type", "param", "code"}}`` (v1.0: ``{"message"}``), FastAPI's
``{"detail": [...]}`` or plain text; an event is ``{"error": {"message", "type"}}``, perhaps with the code
``stream_error``.
"""

from __future__ import annotations

import re
from typing import Any

from .openai_errors import error_in, read_error
from .types import EngineFailed

_STATUS = {"invalid_request_error": 400, "BadRequestError": 400, "NotFoundError": 404, "RateLimitError": 429}
# Sent as the client's mistakes: an answer that ended as "abort" or "error" fails the check of its own shape, and a tool
# call that the model wrote in no known form cannot be read.
_OWN_FAULT = re.compile(r"\d+ validation errors? for .*\bfinish_reason\b|Failed to parse fc related info", re.DOTALL)
# How it spells a KeyError, when a native request lacks one of its two fields
_MISSING_KEYS = ("'inputs'", "'parameters'")
_ASSERTION = (
    "the engine gave up on the request and gave no reason (500 Internal Server Error). LightLLM does so when it cannot"
    " use a value of the request: too many or too long stop strings, a long JSON schema"
)


def error_in_answer(value: Any) -> EngineFailed | None:
    """Returns the error that a chunk or a body reports inside a 200, or None if it is none."""
    failed = error_in(value)
    return None if failed is None else judged(failed)


def judged(failed: EngineFailed) -> EngineFailed:
    """Returns an error from inside a 200 with the status that its type stands for, if it named no other."""
    if failed.status != 502:
        return _blamed(failed, failed.status)
    return _blamed(failed, _STATUS.get(failed.type or "", 502))


def read_lightllm_error(status: int, body: bytes) -> EngineFailed:
    """Reads the body of an error answer; never raises."""
    failed = read_error(status, body)
    if status == 500 and body.strip() == b"Internal Server Error":
        return EngineFailed(400, _ASSERTION, type="invalid_request_error")
    if status == 417:  # of the native routes, and of nodes that only prefill or only decode, which serve no client
        return _blamed(failed, 400 if failed.message in _MISSING_KEYS else 502)
    if status == 499:  # it took our connection for closed
        return _blamed(failed, 502)
    return _blamed(failed, status)


def _blamed(failed: EngineFailed, status: int) -> EngineFailed:
    if status < 500 and _OWN_FAULT.match(failed.message):
        status = 502
    return failed.meant(status)
