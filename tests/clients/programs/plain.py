"""The calls as bodies, and what is read from the answers, for clients that know HTTP and nothing of OpenAI."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.clients.programs.calls import (
    MAX_TOKENS,
    PERSON_QUESTION,
    PERSON_SCHEMA,
    PROMPT,
    QUESTION,
    TEXTS,
    TOOL,
    UNKNOWN_MODEL,
    WEATHER_QUESTION,
    Found,
    user,
)

_CHAT = {"messages": user(QUESTION), "max_tokens": MAX_TOKENS}
_COMPLETION = {"prompt": PROMPT, "max_tokens": MAX_TOKENS}
_SCHEMA = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON_SCHEMA}}

# By the call's name: the path below the base URL, and the body, but for its model.
_CALLS: Mapping[str, tuple[str, Found]] = {
    "chat": ("/chat/completions", _CHAT),
    "chat_stream": ("/chat/completions", {**_CHAT, "stream": True, "stream_options": {"include_usage": True}}),
    "tool_stream": ("/chat/completions", {"messages": user(WEATHER_QUESTION), "tools": [TOOL], "stream": True}),
    "structured": ("/chat/completions", {"messages": user(PERSON_QUESTION), "response_format": _SCHEMA}),
    "embeddings": ("/embeddings", {"input": TEXTS}),
    "completion": ("/completions", _COMPLETION),
    "completion_stream": ("/completions", {**_COMPLETION, "stream": True}),
    "unknown_model": ("/chat/completions", {"model": UNKNOWN_MODEL, "messages": user(QUESTION)}),
}

CALLS = tuple(_CALLS)


def request(call: str, model: str) -> tuple[str, Found]:
    """Returns the path below the base URL, and the body."""
    path, body = _CALLS[call]
    return path, {"model": model, **body}


def read(call: str, status: int, body: str) -> Found:
    """Reads the answer to a call."""
    if status != 200:
        error = json.loads(body)["error"]
        return {"status": status, "code": error["code"], "message": error["message"]}
    if call.endswith("_stream"):
        return _stream(call, _chunks(body))
    answer = json.loads(body)
    if call == "embeddings":
        return {"vectors": [entry["embedding"] for entry in answer["data"]]}
    (choice,) = answer["choices"]
    if call == "structured":
        return dict(json.loads(choice["message"]["content"]))
    if call == "completion":
        return {"text": choice["text"], "finish_reason": choice["finish_reason"]}
    return {
        "text": choice["message"]["content"],
        "finish_reason": choice["finish_reason"],
        "completion_tokens": answer["usage"]["completion_tokens"],
    }


def _stream(call: str, chunks: list[Any]) -> Found:
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    found: Found = {"finish_reason": choices[-1]["finish_reason"]}
    if call == "tool_stream":
        calls = [call for choice in choices for call in choice["delta"].get("tool_calls") or ()]
        found["name"] = "".join(call["function"].get("name") or "" for call in calls)
        found["arguments"] = json.loads("".join(call["function"].get("arguments") or "" for call in calls))
        return found
    if call == "completion_stream":
        pieces = [choice["text"] for choice in choices if choice["text"]]
    else:
        pieces = [choice["delta"]["content"] for choice in choices if choice["delta"].get("content")]
        found["completion_tokens"] = chunks[-1]["usage"]["completion_tokens"]
    return {**found, "text": "".join(pieces), "pieces": len(pieces)}


def _chunks(body: str) -> list[Any]:
    """Reads a stream line by line, as a program would that knows no more of it than ``data:`` and ``[DONE]``."""
    lines = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]", body
    return [json.loads(line) for line in lines[:-1]]
