"""What the tests of the Ollama adapter share: calls, lines as the engine writes them, and what comes out."""

from __future__ import annotations

import json
from typing import Any

from adapters.bodies import read_object
from adapters.ollama import OLLAMA
from adapters.ollama_stream import OllamaStream
from adapters.types import GatewayRequest, Operation

Json = dict[str, Any]
PATHS: dict[Operation, str] = {
    "chat": "/v1/chat/completions",
    "text_completion": "/v1/completions",
    "embeddings": "/v1/embeddings",
    "other": "/v1/responses",
}
HI: Json = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
END: Json = {
    "done": True,
    "done_reason": "stop",
    "total_duration": 312_000_000,
    "load_duration": 2_000_000,
    "prompt_eval_count": 12,
    "prompt_eval_duration": 40_000_000,
    "eval_count": 9,
    "eval_duration": 180_000_000,
}


def call(body: Json, operation: Operation = "chat", raw: bytes | None = None) -> GatewayRequest:
    data = json.dumps(body).encode() if raw is None else raw
    return GatewayRequest(
        request_id="r1",
        operation=operation,
        path=PATHS[operation],
        method="POST",
        model=str(body.get("model", "")),
        stream=body.get("stream") is True,
        raw=data,
        body=read_object(data),
        created_unix_s=1_787_300_000,
    )


def sent(body: Json, operation: Operation = "chat") -> Json:
    """What the engine gets."""
    answer: Json = json.loads(OLLAMA.encode(call(body, operation), "engine:8b").body)
    return answer


def line(**fields: Any) -> bytes:
    head = {"model": "engine:8b", "created_at": "2026-08-21T10:00:00.123456789Z"}
    return json.dumps({**head, **fields}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def said(content: str = "", **message: Any) -> bytes:
    """A line of ``/api/chat``."""
    return line(message={"role": "assistant", "content": content, **message}, done=False)


def generated(response: str, **fields: Any) -> bytes:
    """A line of ``/api/generate``."""
    return line(response=response, done=False, **fields)


def ended(**fields: Any) -> bytes:
    """The last line of ``/api/chat``; a field of None is left out."""
    told = {key: value for key, value in {**END, **fields}.items() if value is not None}
    return line(message={"role": "assistant", "content": ""}, **told)


def decoder(*, usage: bool = False, operation: Operation = "chat") -> OllamaStream:
    return OLLAMA.stream_decoder(call({**HI, "stream": True, "stream_options": {"include_usage": usage}}, operation))


def decoded(*pieces: bytes, usage: bool = False, operation: Operation = "chat") -> bytes:
    """What a client gets of a whole stream."""
    stream = decoder(usage=usage, operation=operation)
    return b"".join(stream.feed(piece) for piece in pieces) + stream.close()


def chunks(out: bytes) -> list[Json]:
    frames = out.split(b"\n\n")
    assert frames.pop() == b""
    assert all(frame.startswith(b"data: ") and b"\n" not in frame for frame in frames)
    return [json.loads(frame[6:]) for frame in frames]


def choices(out: bytes) -> list[Json]:
    return [chunk["choices"][0] for chunk in chunks(out) if chunk["choices"]]


def deltas(out: bytes) -> list[Json]:
    return [choice["delta"] for choice in choices(out)]
