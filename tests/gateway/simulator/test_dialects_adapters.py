"""The gateway's adapters read what the simulated engine of the same name writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters import ADAPTERS
from adapters.types import GatewayRequest
from gateway.simulator.dialects import DIALECTS
from tests.fakes.answer_heads import answer_head
from tests.gateway.simulator.dialect_calls import LONG, SKY, TOOLS, WEATHER, settings
from tests.gateway.simulator.served import serve

BOTH = [name for name in DIALECTS if name in ADAPTERS]
CALLS: dict[str, dict[str, Any]] = {
    "prose": {"messages": SKY, "max_completion_tokens": 20},
    "tool": {"messages": WEATHER, "tools": TOOLS},
    "thoughts": {"messages": SKY, "reasoning_effort": "low"},
    "usage": {"messages": SKY, "stream_options": {"include_usage": True}},
}


def gateway_request(body: dict[str, Any], *, stream: bool) -> GatewayRequest:
    body = body | {"model": "asked", "stream": stream}
    if not stream:
        body.pop("stream_options", None)
    raw = json.dumps(body).encode()
    return GatewayRequest("r", "chat", "/v1/chat/completions", "POST", "asked", stream, raw, body, 0)


@pytest.mark.parametrize("cut_bytes", [1, 7, 1_000_000])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", BOTH)
async def test_a_stream_is_whole_for_the_adapter_however_it_is_cut(name: str, call: str, cut_bytes: int) -> None:
    adapter, request = ADAPTERS[name], gateway_request(CALLS[call], stream=True)
    upstream = adapter.encode(request, "m")
    async with serve(settings(name)) as engine:
        headers = {"content-type": "application/json"}
        response = await engine.http.post(upstream.path, content=upstream.body, headers=headers)
    assert response.status_code == 200, response.text
    decoder = adapter.stream_decoder(request)
    out = b""
    for at in range(0, len(response.content), cut_bytes):
        out += decoder.feed(response.content[at : at + cut_bytes])
    out += decoder.close()
    assert decoder.error is None
    assert decoder.outputs > 0
    assert not decoder.tokens().estimated
    chunks = [json.loads(line[6:]) for line in out.decode().split("\n") if line.startswith("data: {")]
    assert {chunk["model"] for chunk in chunks} == {"asked"}
    finishes = [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c.get("finish_reason")]
    assert finishes == [{"prose": "length", "tool": "tool_calls"}.get(call, "stop")]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", BOTH)
async def test_a_whole_answer_is_read_by_the_adapter(name: str, call: str) -> None:
    adapter, request = ADAPTERS[name], gateway_request(CALLS[call], stream=False)
    upstream = adapter.encode(request, "m")
    async with serve(settings(name)) as engine:
        headers = {"content-type": "application/json"}
        response = await engine.http.post(upstream.path, content=upstream.body, headers=headers)
    assert response.status_code == 200, response.text
    reader = adapter.answer_reader(request, answer_head(response.headers["content-type"]), streamed=upstream.stream)
    reader.feed(response.content)
    answer = reader.close()
    body = json.loads(answer.body)
    assert answer.usage is not None
    assert not answer.usage.estimated
    message = body["choices"][0]["message"]
    assert (body["model"], bool(message.get("tool_calls"))) == ("asked", call == "tool")


@pytest.mark.parametrize("name", [name for name in BOTH if name != "ollama"])
async def test_a_prompt_that_is_too_long_is_the_clients_mistake(name: str) -> None:
    adapter, request = ADAPTERS[name], gateway_request({"messages": LONG}, stream=False)
    upstream = adapter.encode(request, "m")
    async with serve(settings(name)) as engine:
        headers = {"content-type": "application/json"}
        response = await engine.http.post(upstream.path, content=upstream.body, headers=headers)
    if response.status_code != 200:
        assert 400 <= adapter.read_error(response.status_code, response.content).status < 500
