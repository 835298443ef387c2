"""RW-06, tools: calls stay apart, their arguments parse, and the finish reason says that tools were called."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes.engines import ENGINES, WHOLE_ANSWER_ENGINES, spread
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import Reply, r0
from tests.fakes.scripted import (
    Body,
    Script,
    ScriptedUpstream,
    Step,
    completion,
    delta,
    done,
    end,
    fin,
    head,
    json_answer,
    role,
    usage,
)

TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("f", "g")
]


def whole_call(index: int, call_id: str, name: str, arguments: str) -> Step:
    call = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return delta({"tool_calls": [call]})


def call_head(index: int, call_id: str, name: str, **more: object) -> Step:
    """The head of a call as vLLM writes it: no ``arguments`` key."""
    call = {"id": call_id, "type": "function", "index": index, "function": {"name": name, **more}}
    return delta({"content": None, "tool_calls": [call]})


def call_piece(index: int, arguments: str, **nulls: None) -> Step:
    return delta({"content": None, "tool_calls": [{"index": index, "function": {"arguments": arguments}, **nulls}]})


def calls_of(reply: Reply) -> dict[int, dict[str, str]]:
    """Puts the calls together by index, as every client does."""
    calls: dict[int, dict[str, str]] = {}
    for choice in reply.choices():
        pieces: list[dict[str, Any]] = choice["delta"].get("tool_calls") or []
        for piece in pieces:
            call = calls.setdefault(piece["index"], {"id": "", "name": "", "arguments": ""})
            call["id"] = piece.get("id") or call["id"]
            call["name"] = piece["function"].get("name") or call["name"]
            call["arguments"] += piece["function"].get("arguments") or ""
    return calls


def assert_both_calls(calls: dict[int, dict[str, str]]) -> None:
    assert sorted(calls) == [0, 1]
    assert [calls[i]["name"] for i in (0, 1)] == ["f", "g"]
    assert [json.loads(calls[i]["arguments"]) for i in (0, 1)] == [{"x": 1}, {"y": 2}]
    assert all(calls[i]["id"] for i in (0, 1))
    assert calls[0]["id"] != calls[1]["id"]


def stream(*steps: Step) -> Script:
    return [head(200, "sse"), role(), *steps, usage(5, 9), done(), end()]


ONE_INDEX = stream(whole_call(0, "call_a", "f", '{"x":1}'), whole_call(0, "call_b", "g", '{"y":2}'), fin("stop"))
ONE_DELTA = stream(
    delta(
        {
            "tool_calls": [
                {"index": 0, "id": "call_a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
                {"index": 0, "id": "call_b", "type": "function", "function": {"name": "g", "arguments": '{"y":2}'}},
            ]
        }
    ),
    fin("tool_calls"),
)
CORRECT = {
    "vLLM: head without arguments, then pieces": stream(
        call_head(0, "call_a", "f"),
        call_piece(0, '{"x"'),
        call_piece(0, ":1}"),
        call_head(1, "call_b", "g"),
        call_piece(1, '{"y":'),
        call_piece(1, "2}"),
        fin("tool_calls"),
    ),
    "SGLang: nulls after the head": stream(
        call_head(0, "call_a", "f", arguments=""),
        call_piece(0, '{"x":1}', id=None, type=None),
        call_head(1, "call_b", "g", arguments=""),
        call_piece(1, '{"y":2}', id=None, type=None),
        fin("tool_calls"),
    ),
    "whole calls": stream(
        whole_call(0, "call_a", "f", '{"x":1}'), whole_call(1, "call_b", "g", '{"y":2}'), fin("tool_calls")
    ),
    "interleaved": stream(
        call_head(0, "call_a", "f"),
        call_head(1, "call_b", "g"),
        call_piece(1, '{"y":'),
        call_piece(0, '{"x":'),
        call_piece(1, "2}"),
        call_piece(0, "1}"),
        fin("tool_calls"),
    ),
}


async def sdk_calls(gateway: RunningGateway) -> tuple[dict[int, dict[str, str]], list[str]]:
    """What the official client's stream holds: calls by index, and finish reasons."""
    calls: dict[int, dict[str, str]] = {}
    finishes: list[str] = []
    pieces = await gateway.sdk().chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hi"}], tools=TOOLS, stream=True
    )
    async for piece in pieces:
        for choice in piece.choices:
            if choice.finish_reason:
                finishes.append(choice.finish_reason)
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
                call["id"] = part.id or call["id"]
                if part.function:
                    call["name"] = part.function.name or call["name"]
                    call["arguments"] += part.function.arguments or ""
    return calls, finishes


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("script", [ONE_INDEX, ONE_DELTA], ids=["two deltas", "one delta"])
async def test_rw_06_parallel_calls_with_one_index_are_told_apart(engine: str, script: Script) -> None:
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, engine=engine)) as gw:
        reply = await gw.post(r0(tools=TOOLS))
        assert_both_calls(calls_of(reply))
        assert reply.finishes() == ["tool_calls"]
        assert len({piece["id"] for piece in reply.chunks}) == 1
        assert reply.done
        calls, finishes = await sdk_calls(gw)
        assert_both_calls(calls)
        assert finishes == ["tool_calls"]


@pytest.mark.parametrize(("form", "engine"), spread([*CORRECT, "whole calls"]))
async def test_rw_06_correct_calls_pass_unchanged(engine: str, form: str) -> None:
    async with ScriptedUpstream(CORRECT[form]) as u, running_gateway(config(u.url, engine=engine)) as gw:
        reply = await gw.post(r0(tools=TOOLS))
        sent = [
            json.loads(step.data.removeprefix(b"data: "))["choices"][0]["delta"]
            for step in CORRECT[form]
            if isinstance(step, Body) and b'"tool_calls":[' in step.data
        ]
        assert [c["delta"] for c in reply.choices() if c["delta"].get("tool_calls")] == sent
        assert_both_calls(calls_of(reply))
        assert reply.finishes() == ["tool_calls"]
        assert reply.done
        calls, _ = await sdk_calls(gw)
        assert_both_calls(calls)


@pytest.mark.parametrize("engine", ENGINES)
async def test_rw_06_a_stop_after_calls_is_reported_as_tool_calls(engine: str) -> None:
    script = stream(whole_call(0, "call_a", "f", '{"x":1}'), whole_call(1, "call_b", "g", '{"y":2}'), fin("stop"))
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url, engine=engine)) as gw:
        assert (await gw.post(r0(tools=TOOLS))).finishes() == ["tool_calls"]


async def test_rw_06_a_cap_hit_within_a_call_is_still_length() -> None:
    script = stream(call_head(0, "call_a", "f"), call_piece(0, '{"x"'), fin("length"))
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(tools=TOOLS))
        assert reply.finishes() == ["length"]
        assert reply.done


async def test_rw_06_a_tool_call_alone_is_output() -> None:
    async with ScriptedUpstream(CORRECT["whole calls"]) as u, running_gateway(config(u.url)) as gw:
        await gw.post(r0(tools=TOOLS))
        metrics = await gw.outcome("ok")
        assert metrics.total("weir_time_to_first_token_seconds_count") == 1


@pytest.mark.parametrize("engine", ENGINES)
async def test_rw_06_tools_and_tool_messages_reach_the_engine_as_sent(engine: str) -> None:
    messages = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "1"},
    ]
    body = r0(messages=messages, tools=TOOLS, tool_choice="auto", parallel_tool_calls=False)
    async with ScriptedUpstream(CORRECT["whole calls"]) as u, running_gateway(config(u.url, engine=engine)) as gw:
        await gw.post(body)
        sent = u.last.json()
        assert {key: sent[key] for key in ("messages", "tools", "tool_choice", "parallel_tool_calls")} == {
            key: body[key] for key in ("messages", "tools", "tool_choice", "parallel_tool_calls")
        }


def called(*, finish: str) -> dict[str, Any]:
    calls = [
        {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for name, arguments in (("f", '{"x":1}'), ("g", '{"y":2}'))
    ]
    answer = completion("", finish=finish, message={"content": None, "tool_calls": calls})
    return answer


@pytest.mark.parametrize("engine", WHOLE_ANSWER_ENGINES)
async def test_rw_06_a_whole_answer_with_calls_is_untouched(engine: str) -> None:
    answer = called(finish="tool_calls")
    async with ScriptedUpstream(json_answer(answer)) as u, running_gateway(config(u.url, engine=engine)) as gw:
        assert (await gw.post(r0(stream=False, tools=TOOLS))).json() == answer | {"model": "m"}


async def test_rw_06_a_whole_answer_that_stopped_with_calls_says_tool_calls() -> None:
    async with ScriptedUpstream(json_answer(called(finish="stop"))) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(stream=False, tools=TOOLS))
        assert reply.json()["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("form", CORRECT)
async def test_rw_06_calls_put_together_from_a_stream_are_whole(form: str) -> None:
    answer = json_answer(called(finish="tool_calls"))
    async with (
        ScriptedUpstream(lambda r: CORRECT[form] if r.asked_for_stream else answer) as u,
        running_gateway(config(u.url, engine="llamacpp")) as gw,
    ):
        choice = (await gw.post(r0(stream=False, tools=TOOLS))).json()["choices"][0]
        calls = choice["message"]["tool_calls"]
        assert [call["function"]["name"] for call in calls] == ["f", "g"]
        assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"x": 1}, {"y": 2}]
        assert [call["id"] for call in calls] == ["call_a", "call_b"] or not u.last.asked_for_stream
        assert choice["finish_reason"] == "tool_calls"
