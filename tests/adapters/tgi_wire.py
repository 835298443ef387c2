"""TGI's events and answers, as its page has them, and a client's call."""

from __future__ import annotations

import json
from typing import Any

from adapters.bodies import read_object
from adapters.types import GatewayRequest, Operation

Json = dict[str, Any]

PATHS: dict[Operation, str] = {
    "chat": "/v1/chat/completions",
    "text_completion": "/v1/completions",
    "embeddings": "/v1/embeddings",
    "other": "/v1/rerank",
}
CLIENT_MODEL = "the-client's-name"
DONE = b"data: [DONE]\n\n"
COMMENT = b":\n\n"
USAGE = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}


def call(body: Json, operation: Operation = "chat") -> GatewayRequest:
    """A client's request with this body."""
    raw = json.dumps(body).encode()
    return GatewayRequest(
        request_id="r1",
        operation=operation,
        path=PATHS[operation],
        method="POST",
        model=str(body.get("model", CLIENT_MODEL)),
        stream=body.get("stream") is True,
        raw=raw,
        body=read_object(raw),
        created_unix_s=0,
    )


def event(value: Json) -> bytes:
    """One event, spelled as serde spells it."""
    return b"data: " + json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def chunk(choices: list[Json], usage: Json | None = None, created: int = 1766000000) -> bytes:
    """A chunk of a chat."""
    return event(
        {
            "object": "chat.completion.chunk",
            "id": "",
            "created": created,
            "model": "org/model",
            "system_fingerprint": "3.3.7-sha-1234567",
            "choices": choices,
            "usage": usage,
        }
    )


def content(text: str, finish_reason: str | None = None, logprobs: Json | None = None, created: int = 1) -> bytes:
    delta = {"role": "assistant", "content": text}
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
    return chunk([choice], created=created)


def tool_piece(arguments: str, name: str | None = None, finish_reason: str | None = None) -> bytes:
    function = {"name": name, "arguments": arguments}
    called = {"index": 0, "id": "0", "type": "function", "function": function}
    delta = {"role": "assistant", "tool_calls": [called]}
    return chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}])


def usage_chunk(usage: Json = USAGE) -> bytes:
    return chunk([], usage)


def text(piece: str, finish_reason: str = "", index: int = 0, usage: Json | None = None) -> bytes:
    """A chunk of a text completion; only the last one of a prompt has usage."""
    value: Json = {
        "object": "text_completion",
        "id": "",
        "created": 1766000000,
        "choices": [{"index": index, "text": piece, "logprobs": None, "finish_reason": finish_reason}],
        "model": "org/model",
        "system_fingerprint": "3.3.7-native",
    }
    return event(value if usage is None else {**value, "usage": usage})


def failed(message: str) -> bytes:
    return event({"error": {"message": message, "http_status_code": 422}})


def answer(message: Json, finish_reason: str = "stop") -> Json:
    """A whole chat answer."""
    return {
        "object": "chat.completion",
        "id": "",
        "created": 1766000000,
        "model": "org/model",
        "system_fingerprint": "3.3.7-sha-1234567",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}],
        "usage": USAGE,
    }
