"""Tool calls: one or several, streamed or whole, and their results in the next request."""

from __future__ import annotations

import json
from typing import Any

from tests.conformance.rig import (
    MODEL,
    ONE_CALL,
    TEXT,
    TOOLS,
    TWO_CALLS,
    assert_answered,
    assert_openai_stream,
    behind_weir,
    both_ways,
    calls_of,
    every_engine,
)
from tests.fakes.dialects.registry import DIALECTS
from tests.fakes.raw_client import r0

WEATHER = ("get_weather", {"city": "Oslo"})
TIME = ("get_time", {"zone": "Europe/Oslo"})


def assert_calls(name: str, calls: list[dict[str, Any]]) -> None:
    """Both calls, or the one that this engine can make."""
    expected = [WEATHER, TIME] if DIALECTS[name].parallel_calls else [WEATHER]
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == expected
    idents = [call["id"] for call in calls]
    assert all(isinstance(ident, str) and ident for ident in idents)
    assert len(set(idents)) == len(idents)


@every_engine
async def test_one_call_streams(name: str) -> None:
    async with behind_weir(name, ONE_CALL) as rig:
        reply = await rig.weir.post(r0(tools=TOOLS))
    assert_openai_stream(reply)
    (call,) = calls_of(reply)
    assert (call["name"], json.loads(call["arguments"])) == WEATHER
    assert call["id"]
    assert reply.content() == ""
    assert reply.finishes() == ["tool_calls"]


@every_engine
async def test_parallel_calls_stream_apart(name: str) -> None:
    async with behind_weir(name, TWO_CALLS) as rig:
        reply = await rig.weir.post(r0(tools=TOOLS, stream_options={"include_usage": True}))
    assert_openai_stream(reply)
    assert_calls(name, calls_of(reply))
    assert reply.finishes() == ["tool_calls"]


@every_engine
async def test_calls_come_whole(name: str) -> None:
    async with behind_weir(name, TWO_CALLS) as rig:
        reply = await rig.weir.post(r0(tools=TOOLS, stream=False))
    assert reply.status == 200, reply.body
    (choice,) = reply.json()["choices"]
    made = choice["message"]["tool_calls"]
    assert {call["type"] for call in made} == {"function"}
    assert_calls(name, [{"id": call["id"], **call["function"]} for call in made])
    assert choice["finish_reason"] == "tool_calls"


@every_engine
async def test_the_sdks_helper_puts_a_call_together(name: str) -> None:
    async with behind_weir(name, ONE_CALL) as rig:
        messages: list[Any] = [{"role": "user", "content": "hi"}]
        async with rig.sdk.chat.completions.stream(model=MODEL, messages=messages, tools=TOOLS) as stream:
            final = await stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert calls is not None
    assert (calls[0].function.name, json.loads(calls[0].function.arguments)) == WEATHER
    assert final.choices[0].finish_reason == "tool_calls"


@every_engine
async def test_a_call_cut_by_the_limit_says_so(name: str) -> None:
    async with behind_weir(name, ONE_CALL) as rig:
        reply = await rig.weir.post(r0(tools=TOOLS, max_tokens=2))
    assert_openai_stream(reply)
    assert reply.finishes() == ["length"]


@every_engine
async def test_the_result_of_a_call_can_be_sent_back(name: str) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'}}
    messages = [
        {"role": "user", "content": "what weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(messages=messages, tools=TOOLS))
    assert_openai_stream(reply)
    assert reply.content() == TEXT
    assert [role for role, _ in rig.engine.asks[-1].turns] == ["user", "assistant", "tool"]
    assert rig.engine.asks[-1].turns[-1][1] == "rain"


@every_engine
@both_ways
async def test_a_tool_that_the_client_names_is_called(name: str, stream: bool) -> None:
    choice = {"type": "function", "function": {"name": "get_weather"}}
    async with behind_weir(name, ONE_CALL) as rig:
        reply = await rig.weir.post(r0(tools=TOOLS[:1], tool_choice=choice, stream=stream))
    if not assert_answered(reply, DIALECTS[name].obeys_tool_choice, name, "tool_choice"):
        return
    (finish,) = reply.finishes() if stream else [reply.json()["choices"][0]["finish_reason"]]
    assert finish == "tool_calls"


@every_engine
async def test_no_tool_is_called_if_the_client_forbids_it(name: str) -> None:
    async with behind_weir(name, ONE_CALL) as rig:
        reply = await rig.weir.post(r0(tools=TOOLS, tool_choice="none"))
    assert_openai_stream(reply)
    assert calls_of(reply) == []
