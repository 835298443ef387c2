"""A real Weir in front of one scripted engine, and what every answer to a client must look like."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import openai
import pytest

from adapters import ADAPTERS
from tests.fakes.dialects.answer import Call, Say
from tests.fakes.dialects.registry import DIALECTS
from tests.fakes.dialects.serving import Dialect, DialectEngine, serving
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import Reply

ENGINES = [name for name in DIALECTS if name in ADAPTERS]
"""Engines that Weir speaks to; one that is registered later is tested from then on."""

MODEL = "m"
"""The client's name of the model; no engine knows it."""

every_engine = pytest.mark.parametrize("name", ENGINES)


def engines_that(can: Callable[[type[Dialect]], bool]) -> pytest.MarkDecorator:
    """Like ``every_engine``, for those of which this holds."""
    return pytest.mark.parametrize("name", [name for name in ENGINES if can(DIALECTS[name])])


both_ways = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])

TEXT = "".join(Say().text)
REASONED = Say(reasoning=("Let me ", "think"))
ONE_CALL = Say(text=(), calls=(Call("get_weather", ('{"ci', 'ty":"Os', 'lo"}')),))
TWO_CALLS = Say(text=(), calls=(*ONE_CALL.calls, Call("get_time", ('{"zone":', '"Europe/Oslo"}'))))
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("get_weather", "get_time")
]


class Rig(NamedTuple):
    """Weir and the engine behind it."""

    weir: RunningGateway
    engine: DialectEngine

    @property
    def sdk(self) -> openai.AsyncOpenAI:
        return self.weir.sdk()


@asynccontextmanager
async def behind_weir(name: str, say: Say | None = None) -> AsyncGenerator[Rig]:
    """Starts both; the pool is called ``MODEL``."""
    async with serving(DIALECTS[name](say)) as engine, running_gateway(config(engine.endpoint, pool=MODEL)) as weir:
        yield Rig(weir, engine)


def assert_answered(reply: Reply, can: bool | None, engine: str, param: str) -> bool:
    """Whether there is an answer to look at.

    An engine that lacks what the answer's shape depends on must not be asked: the client gets a 400 that names both.

    Args:
        reply: What the client got.
        can: Whether the engine can do it; None allows either.
        engine: Its name.
        param: The request field.
    """
    if can or (can is None and reply.status == 200):
        assert reply.status == 200, reply.body
        return True
    assert reply.status == 400, reply.body
    assert reply.error["code"] == "unsupported_parameter"
    assert reply.error["param"] == param
    assert engine in reply.error["message"]
    return False


def assert_openai_error(reply: Reply) -> dict[str, Any]:
    """Returns the error object, which must have OpenAI's shape."""
    assert reply.header("content-type") == "application/json"
    error = reply.error
    assert error.keys() >= {"message", "type", "param", "code", "weir"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    assert isinstance(error["code"], str)
    return error


def assert_openai_stream(reply: Reply, kind: str = "chat.completion.chunk") -> None:
    """Checks what holds for every chunk of a whole stream."""
    assert reply.status == 200, reply.body
    assert (reply.header("content-type") or "").startswith("text/event-stream")
    assert reply.whole
    assert reply.payloads[-1] == "[DONE]"
    assert reply.payloads.count("[DONE]") == 1
    chunks = reply.chunks
    (ident,) = {chunk["id"] for chunk in chunks}
    assert isinstance(ident, str)
    assert ident
    assert {chunk["object"] for chunk in chunks} == {kind}
    assert {chunk["model"] for chunk in chunks} == {MODEL}
    assert all(isinstance(chunk["created"], int) for chunk in chunks)
    assert all(block.data is not None or block.comments for block in reply.blocks)


def usage_chunks(reply: Reply) -> list[dict[str, Any]]:
    """Chunks that carry usage, or no choice."""
    return [chunk for chunk in reply.chunks if chunk.get("usage") or not chunk["choices"]]


def joined(reply: Reply, key: str) -> str:
    """One text field of all deltas."""
    return "".join(choice["delta"].get(key) or "" for choice in reply.choices())


def calls_of(reply: Reply) -> list[dict[str, Any]]:
    """Tool calls of a stream, put together by index as every client does."""
    calls: dict[int, dict[str, Any]] = {}
    for choice in reply.choices():
        pieces: list[dict[str, Any]] = choice["delta"].get("tool_calls") or []
        for piece in pieces:
            call = calls.setdefault(piece["index"], {"id": "", "name": "", "arguments": ""})
            call["id"] = piece.get("id") or call["id"]
            call["name"] = piece["function"].get("name") or call["name"]
            call["arguments"] += piece["function"].get("arguments") or ""
    assert sorted(calls) == list(range(len(calls)))
    return [calls[i] for i in sorted(calls)]
