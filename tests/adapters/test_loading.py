"""An engine that loads its model is told from one that is broken or busy."""

from __future__ import annotations

import pytest

from adapters.failures import EngineFailed
from adapters.loading import READ_BYTES, probe_says_loading, says_loading
from adapters.openai_errors import read_error

# As llama.cpp writes it
LLAMACPP = b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'


@pytest.mark.parametrize(
    ("engine", "status", "body", "loads"),
    [
        ("llamacpp", 503, LLAMACPP, True),
        ("openai", 503, LLAMACPP, True),
        ("llamacpp", 503, b"", False),
        ("llamacpp", 500, LLAMACPP, False),
        ("sglang", 503, b"", True),
        ("sglang", 500, b"", False),
        ("vllm", 503, b"", False),
        ("tgi", 503, b'{"error":"unhealthy","error_type":"healthcheck"}', False),
        ("lightllm", 503, b'{"message":"Error"}', False),
        ("openai", 503, b"x" * READ_BYTES + b"loading", False),
    ],
)
def test_what_a_probe_is_told(engine: str, status: int, body: bytes, loads: bool) -> None:
    assert probe_says_loading(engine, status, body) is loads


@pytest.mark.parametrize(
    ("failure", "loads"),
    [
        (read_error(503, LLAMACPP), True),
        (read_error(503, b'{"error":"server busy, please try again. maximum pending requests exceeded"}'), False),
        (EngineFailed(503, "The request queue is full."), False),
        (EngineFailed(500, "loading failed"), False),
    ],
)
def test_what_a_refused_request_is_told(failure: EngineFailed, loads: bool) -> None:
    assert says_loading(failure) is loads
