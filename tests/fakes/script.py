"""The notation of the cases: what a scripted engine does, step by step, and the chunks that engines send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

Ending = Literal["end", "eof", "rst", "hang"]

CREATED_UNIX_S = 1_700_000_000
ENGINE_MODEL = "engine-model"
"""What the engine calls its model in every chunk, whatever it was asked for."""


class Step:
    """One thing a script does."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Head(Step):
    """Status line and headers; ``length_bytes`` replaces chunked coding, None with ``chunked=False`` ends by close."""

    status: int
    headers: tuple[tuple[str, str], ...]
    chunked: bool
    length_bytes: int | None


@dataclass(frozen=True, slots=True)
class Body(Step):
    """Body bytes, one write: one HTTP chunk when the body is chunked."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wire(Step):
    """Bytes as they are, whatever HTTP says."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Pause(Step):
    seconds: float


@dataclass(frozen=True, slots=True)
class Gate(Step):
    """Waits until the test sets the event."""

    event: asyncio.Event


@dataclass(frozen=True, slots=True)
class Flood(Step):
    """Body 0, 1, 2, ... until the peer takes no more for now, however much the sockets on the way hold."""

    body: Callable[[int], Body]


@dataclass(frozen=True, slots=True)
class Finish(Step):
    how: Ending


Script = Sequence[Step]


def head(
    status: int,
    kind: Literal["sse", "json", "text", "html", ""] = "json",
    *headers: tuple[str, str],
    chunked: bool = True,
    length: int | None = None,
) -> Head:
    """Status and headers; ``kind`` gives the content type ("" for none)."""
    types = {
        "sse": "text/event-stream; charset=utf-8",
        "json": "application/json",
        "text": "text/plain; charset=utf-8",
        "html": "text/html; charset=utf-8",
    }
    own = (("content-type", types[kind]),) if kind else ()
    return Head(status, own + headers, chunked and length is None, length)


def raw(data: bytes) -> Body:
    return Body(data)


def wire(data: bytes) -> Wire:
    return Wire(data)


def pause(seconds: float) -> Pause:
    return Pause(seconds)


def gate(event: asyncio.Event) -> Gate:
    return Gate(event)


def flood(body: Callable[[int], Body]) -> Flood:
    return Flood(body)


def end() -> Finish:
    """The proper end of the body; the connection stays open for another request."""
    return Finish("end")


def eof() -> Finish:
    """Closes the socket as it is, without the last chunk."""
    return Finish("eof")


def rst() -> Finish:
    return Finish("rst")


def hang() -> Finish:
    """Says nothing more and keeps the socket open until the peer leaves."""
    return Finish("hang")


def to_json(value: object) -> bytes:
    """JSON as engines write it: compact, UTF-8 as it is; NaN and Infinity as Python's literals."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def event(payload: object) -> Body:
    """One SSE event: ``payload`` is bytes as they are, or a value to be written as JSON."""
    data = payload if isinstance(payload, bytes) else to_json(payload)
    return Body(b"data: " + data + b"\n\n")


def comment(text: str = "ping") -> Body:
    return Body(b": " + text.encode() + b"\n\n")


def chunk(choices: Sequence[Mapping[str, Any]] | None, **more: object) -> dict[str, Any]:
    """One ``chat.completion.chunk``; ``choices`` None leaves the key out."""
    made: dict[str, Any] = {
        "id": "chatcmpl-engine-1",
        "object": "chat.completion.chunk",
        "created": CREATED_UNIX_S,
        "model": ENGINE_MODEL,
    }
    if choices is not None:
        made["choices"] = list(choices)
    return made | more


def delta(fields: Mapping[str, Any], index: int = 0, finish: str | None = None, **choice: object) -> Body:
    """One chunk with this delta at this index; ``choice`` adds fields beside it (logprobs)."""
    return event(chunk([{"index": index, "delta": dict(fields), "finish_reason": finish, **choice}]))


def role(index: int = 0) -> Body:
    return delta({"role": "assistant", "content": ""}, index)


def tok(text: str, index: int = 0, **choice: object) -> Body:
    return delta({"content": text}, index, None, **choice)


def fin(reason: str, index: int = 0) -> Body:
    return delta({}, index, reason)


def usage(prompt: int, completion: int) -> Body:
    return event(chunk([], usage=usage_object(prompt, completion)))


def done() -> Body:
    return event(b"[DONE]")


def text(content: str, index: int = 0, finish: str | None = None) -> Body:
    """One chunk of a ``/v1/completions`` stream."""
    choice = {"index": index, "text": content, "logprobs": None, "finish_reason": finish}
    return event(chunk([choice], id="cmpl-engine-1", object="text_completion"))


def text_usage(prompt: int, completion: int) -> Body:
    counts = usage_object(prompt, completion)
    return event(chunk([], id="cmpl-engine-1", object="text_completion", usage=counts))


def usage_object(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def completion(
    content: str = "ab", *, finish: str = "stop", message: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A whole chat answer."""
    said: dict[str, Any] = {"role": "assistant", "content": content, **(message or {})}
    return {
        "id": "chatcmpl-engine-1",
        "object": "chat.completion",
        "created": CREATED_UNIX_S,
        "model": ENGINE_MODEL,
        "choices": [{"index": 0, "message": said, "logprobs": None, "finish_reason": finish}],
        "usage": usage_object(5, 2),
    }


def text_completion(content: str = "ab", *, finish: str = "stop") -> dict[str, Any]:
    """A whole ``/v1/completions`` answer."""
    return {
        "id": "cmpl-engine-1",
        "object": "text_completion",
        "created": CREATED_UNIX_S,
        "model": ENGINE_MODEL,
        "choices": [{"index": 0, "text": content, "logprobs": None, "finish_reason": finish}],
        "usage": usage_object(5, 2),
    }


def json_answer(value: object, status: int = 200, *headers: tuple[str, str]) -> list[Step]:
    """A whole answer with a length."""
    data = value if isinstance(value, bytes) else to_json(value)
    return [head(status, "json", *headers, length=len(data)), raw(data), end()]


def chat_stream(content: str = "ab", *, finish: str = "stop") -> list[Step]:
    """A whole well-behaved chat stream, one token a character."""
    return [head(200, "sse"), role(), *(tok(c) for c in content), fin(finish), usage(5, 2), done(), end()]


def text_stream(content: str = "ab", *, finish: str = "stop") -> list[Step]:
    """A whole well-behaved ``/v1/completions`` stream."""
    tokens = [text(c) for c in content]
    return [head(200, "sse"), *tokens, text("", finish=finish), text_usage(5, 2), done(), end()]


def joined(steps: Iterable[Step]) -> bytes:
    """The body bytes of a script."""
    return b"".join(step.data for step in steps if isinstance(step, Body))


def cut(data: bytes, edges: Iterable[int]) -> list[Step]:
    """``data`` as writes that are cut at these offsets."""
    marks = [0, *sorted({e for e in edges if 0 < e < len(data)}), len(data)]
    return [Body(data[a:b]) for a, b in pairwise(marks)]
