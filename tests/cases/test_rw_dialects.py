"""RW-05, 06, 09, 10, 11 and 12 on every engine: what it understood, and what the client got."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.capabilities import capabilities
from tests.conformance.rig import (
    MODEL,
    assert_openai_stream,
    behind_weir,
    both_ways,
    calls_of,
    every_engine,
    joined,
)
from tests.fakes.dialects.answer import Call, Say
from tests.fakes.dialects.registry import DIALECTS
from tests.fakes.dialects.voice import OWN_MODEL
from tests.fakes.raw_client import Reply, r0, t0

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TRANSLATED = ("ollama", "tgi", "lightllm")
"""Engines whose requests are put into other words; the others get the client's body value for value."""


def documented(name: str, asked: dict[str, Any], sent: dict[str, Any]) -> dict[str, Any]:
    """What was asked, with the documented differences: the engine's name of its model, and usage wherever it streams.

    TGI's completions know no such option and tell usage unasked.
    """
    expected = asked | {"model": OWN_MODEL}
    if sent.get("stream"):
        expected["stream"] = True
    if sent.get("stream") and (name != "tgi" or "messages" in asked):
        expected["stream_options"] = {**(asked.get("stream_options") or {}), "include_usage": True}
    return expected


def message_of(reply: Reply) -> dict[str, Any]:
    """The message of a whole answer."""
    assert reply.status == 200, reply.body
    message: dict[str, Any] = reply.json()["choices"][0]["message"]
    return message


def finish_of(reply: Reply, *, stream: bool) -> str:
    assert reply.status == 200, reply.body
    (finish,) = reply.finishes() if stream else [reply.json()["choices"][0]["finish_reason"]]
    return str(finish)


def dropped(reply: Reply) -> list[str]:
    """The parameters that Weir says it left out."""
    names = reply.header("x-weir-dropped-params")
    return [] if names is None else sorted(name.strip() for name in names.split(","))


def assert_refused(reply: Reply, name: str, param: str) -> str:
    """The 400 of the rule: it names the engine and the field. Returns its message."""
    assert reply.status == 400, reply.raw
    error = reply.error
    assert error["code"] == "unsupported_parameter"
    assert error["param"] == param
    assert name in error["message"]
    message: str = error["message"]
    return message


THOUGHTS = Say(reasoning=("r", "r", "r"), text=("a",))


@every_engine
async def test_rw_05_reasoning_streams_under_both_names_and_not_as_content(name: str) -> None:
    async with behind_weir(name, THOUGHTS) as rig:
        reply = await rig.weir.post(r0())
    assert_openai_stream(reply)
    assert joined(reply, "reasoning") == joined(reply, "reasoning_content") == "rrr"
    assert reply.content() == "a"
    assert reply.finishes() == ["stop"]


@every_engine
async def test_rw_05_reasoning_comes_whole_as_it_streams(name: str) -> None:
    async with behind_weir(name, THOUGHTS) as rig:
        message = message_of(await rig.weir.post(r0(stream=False)))
    assert message["reasoning"] == message["reasoning_content"] == "rrr"
    assert message["content"] == "a"


@every_engine
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_rw_05_reasoning_of_an_earlier_turn_reaches_the_engine(name: str, field: str) -> None:
    earlier = {"role": "assistant", "content": "a", field: "rrr"}
    messages = [{"role": "user", "content": "hi"}, earlier, {"role": "user", "content": "and?"}]
    async with behind_weir(name, THOUGHTS) as rig:
        reply = await rig.weir.post(r0(messages=messages))
    assert reply.content() == "a"
    assert rig.engine.asks[-1].turns == (("user", "hi"), ("assistant", "a"), ("user", "and?"))
    thoughts = {"thinking": "rrr"} if name == "ollama" else {field: "rrr"}
    assert rig.engine.bodies[-1]["messages"][1] == {"role": "assistant", "content": "a", **thoughts}


BOTH_CALLS = Say(text=(), calls=(Call("f", ('{"x"', ":1}")), Call("g", ('{"y":', "2}"))))
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("f", "g")
]


@every_engine
@both_ways
async def test_rw_06_two_calls_stay_apart(name: str, stream: bool) -> None:
    async with behind_weir(name, BOTH_CALLS) as rig:
        reply = await rig.weir.post(r0(tools=TOOLS, stream=stream))
    if stream:
        assert_openai_stream(reply)
        calls = calls_of(reply)
    else:
        calls = [{"id": call["id"], **call["function"]} for call in message_of(reply)["tool_calls"]]
    expected = [("f", {"x": 1}), ("g", {"y": 2})][: 2 if DIALECTS[name].parallel_calls else 1]
    assert rig.engine.asks[-1].tools == ("f", "g")
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == expected
    assert all(call["id"] for call in calls)
    assert len({call["id"] for call in calls}) == len(expected)
    assert finish_of(reply, stream=stream) == "tool_calls"


@every_engine
async def test_rw_06_the_sdk_puts_the_calls_together(name: str) -> None:
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    async with (
        behind_weir(name, BOTH_CALLS) as rig,
        rig.sdk.chat.completions.stream(model=MODEL, messages=messages, tools=TOOLS) as stream,
    ):
        final = await stream.get_final_completion()
    made = [
        (call.function.name, json.loads(call.function.arguments)) for call in final.choices[0].message.tool_calls or ()
    ]
    assert made == [("f", {"x": 1}), ("g", {"y": 2})][: 2 if DIALECTS[name].parallel_calls else 1]
    assert final.choices[0].finish_reason == "tool_calls"


@every_engine
async def test_rw_06_calls_and_results_of_an_earlier_turn_reach_the_engine(name: str) -> None:
    calls = [
        {"id": f"call_{called}", "type": "function", "function": {"name": called, "arguments": arguments}}
        for called, arguments in (("f", '{"x":1}'), ("g", '{"y":2}'))
    ]
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_f", "content": "one"},
        {"role": "tool", "tool_call_id": "call_g", "content": "two"},
    ]
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(messages=messages, tools=TOOLS))
    assert_openai_stream(reply)
    turns = rig.engine.asks[-1].turns
    assert turns == (("user", "hi"), ("assistant", ""), ("tool", "one"), ("tool", "two"))
    sent = rig.engine.bodies[-1]["messages"]
    made = [call["function"] for call in sent[1]["tool_calls"]]
    assert [call["name"] for call in made] == ["f", "g"]
    arguments = [call["arguments"] for call in made]
    assert arguments == ([{"x": 1}, {"y": 2}] if name == "ollama" else ['{"x":1}', '{"y":2}'])
    assert [message["tool_call_id"] for message in sent[2:]] == ["call_f", "call_g"]


@every_engine
@both_ways
@pytest.mark.parametrize(
    "turns",
    [
        [("developer", "be brief"), ("user", "hi")],
        [("system", "A"), ("developer", "B"), ("user", "hi"), ("developer", "C")],
    ],
    ids=["first", "amid"],
)
async def test_rw_09_a_developer_is_heard_in_the_engines_words(
    name: str, turns: list[tuple[str, str]], stream: bool
) -> None:
    messages = [{"role": role, "content": content} for role, content in turns]
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(messages=messages, stream=stream))
    assert finish_of(reply, stream=stream) == "stop"
    role = "system" if name in TRANSLATED else "developer"
    assert list(rig.engine.asks[-1].turns) == [(role if who == "developer" else who, words) for who, words in turns]


@every_engine
@both_ways
@pytest.mark.parametrize(
    ("caps", "cap"),
    [
        ({"max_completion_tokens": 16}, 16),
        ({"max_tokens": 16}, 16),
        ({"max_tokens": 16, "max_completion_tokens": 8}, 8),
        ({}, None),
    ],
    ids=["new name", "old name", "both", "neither"],
)
async def test_rw_10_the_engine_keeps_to_the_cap(
    name: str, caps: dict[str, int], cap: int | None, stream: bool
) -> None:
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(**caps, stream=stream))
    assert finish_of(reply, stream=stream) == "stop"
    assert rig.engine.asks[-1].max_tokens == cap


@every_engine
@both_ways
async def test_rw_10_the_engine_keeps_to_the_cap_of_a_completion(name: str, stream: bool) -> None:
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(t0(max_tokens=16, stream=stream), "/v1/completions")
        assert rig.engine.asks[-1].max_tokens == 16
        hit = await rig.weir.post(t0(max_tokens=2, stream=stream), "/v1/completions")
    assert finish_of(reply, stream=stream) == "stop"
    assert finish_of(hit, stream=stream) == "length"


@every_engine
@both_ways
async def test_rw_10_a_cap_hit_is_reported_as_length(name: str, stream: bool) -> None:
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(max_completion_tokens=2, stream=stream))
    assert (reply.content() if stream else message_of(reply)["content"]) == "Hello, "
    assert finish_of(reply, stream=stream) == "length"


PARTS: list[dict[str, Any]] = [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]
IMAGE: dict[str, Any] = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}", "detail": "low"}}
REMOTE: dict[str, Any] = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
AUDIO: dict[str, Any] = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
UNKNOWN: dict[str, Any] = {"type": "not_invented_yet", "x": {"y": [1, 2.5]}}
CALL = {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@every_engine
async def test_rw_11_text_in_parts_is_heard_in_order_in_every_role(name: str) -> None:
    messages = [
        {"role": "system", "content": PARTS},
        {"role": "user", "content": PARTS},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_a", "content": PARTS},
    ]
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(messages=messages, tools=TOOLS))
    assert_openai_stream(reply)
    turns = [(role, "".join(words.split())) for role, words in rig.engine.asks[-1].turns]
    assert turns == [("system", "AB"), ("user", "AB"), ("assistant", ""), ("tool", "AB")]
    if name != "ollama":
        assert [
            message.get("content") for message in rig.engine.bodies[-1]["messages"] if message["role"] == "user"
        ] == [PARTS]


@every_engine
@both_ways
async def test_rw_11_an_image_reaches_the_engine(name: str, stream: bool) -> None:
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(messages=[{"role": "user", "content": [*PARTS, IMAGE]}], stream=stream))
    assert finish_of(reply, stream=stream) == "stop"
    (message,) = rig.engine.bodies[-1]["messages"]
    if name == "ollama":
        assert message == {"role": "user", "content": "A\nB", "images": [PIXEL]}
    else:
        assert message == {"role": "user", "content": [*PARTS, IMAGE]}


@every_engine
async def test_rw_11_an_image_elsewhere_is_the_engines_to_fetch_or_refused(name: str) -> None:
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(messages=[{"role": "user", "content": [*PARTS, REMOTE]}]))
    if name == "ollama":
        assert "messages[0].content[2]" in assert_refused(reply, name, "messages[0].content[2].image_url")
        assert rig.engine.requests == []
    else:
        assert_openai_stream(reply)
        assert rig.engine.bodies[-1]["messages"] == [{"role": "user", "content": [*PARTS, REMOTE]}]


@every_engine
@both_ways
async def test_rw_11_a_sound_reaches_an_engine_that_hears_or_is_refused(name: str, stream: bool) -> None:
    messages = [{"role": "user", "content": [*PARTS, AUDIO]}]
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(messages=messages, stream=stream))
    if "audio" in capabilities(name):
        assert finish_of(reply, stream=stream) == "stop"
        assert rig.engine.bodies[-1]["messages"] == messages
    else:
        assert_refused(reply, name, "messages")
        assert rig.engine.requests == []


@every_engine
async def test_rw_11_a_part_that_no_one_knows_is_not_dropped_without_a_word(name: str) -> None:
    messages = [{"role": "user", "content": [*PARTS, UNKNOWN]}]
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(messages=messages))
    if name in TRANSLATED:
        assert reply.status == 400, reply.raw
        assert reply.error["param"].startswith("messages")
        assert rig.engine.requests == []
    else:
        assert rig.engine.bodies[-1]["messages"] == messages


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string", "enum": ["x", "é"]}}}
EXTRAS: dict[str, Any] = {
    "chat_template_kwargs": {"enable_thinking": False},
    "top_k": 20,
    "min_p": 0.1,
    "seed": 7,
    "user": "u",
    "metadata": {"a": 1},
    "zzz": 1,
}
DROPPED: dict[str, list[str]] = {
    "ollama": ["chat_template_kwargs", "zzz"],
    "tgi": ["min_p", "top_k"],
    "lightllm": ["min_p"],
}
NAMED = [{"role": "user", "content": "hi", "name": "n"}]


@every_engine
@both_ways
async def test_rw_12_extra_fields_reach_the_engine_or_are_named(name: str, stream: bool) -> None:
    asked = r0(messages=NAMED, stream=stream, **EXTRAS)
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(asked)
    assert finish_of(reply, stream=stream) == "stop"
    lost = [field for field in DROPPED.get(name, []) if field != "chat_template_kwargs"]  # of a chat Ollama has it
    assert dropped(reply) == lost
    sent = rig.engine.bodies[-1]
    sampling = dict(rig.engine.asks[-1].sampling)
    assert sampling == {key: EXTRAS[key] for key in ("top_k", "min_p", "seed") if key not in dropped(reply)}
    if name == "ollama":
        assert sent.keys() == {"model", "messages", "stream", "options", "think"}
        assert sent["think"] is False
        assert sent["messages"] == [{"role": "user", "content": "hi"}]
    else:
        expected = documented(name, asked, sent)
        assert sent == {key: value for key, value in expected.items() if key not in dropped(reply)}


@every_engine
@pytest.mark.parametrize(
    ("asked", "path"),
    [(r0(guided_json=SCHEMA), "/v1/chat/completions"), (t0(guided_json=SCHEMA), "/v1/completions")],
    ids=["chat", "text"],
)
async def test_rw_12_another_engines_name_for_a_schema_is_not_ignored(
    name: str, asked: dict[str, Any], path: str
) -> None:
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(asked, path)
    if name in TRANSLATED:
        assert_refused(reply, name, "guided_json")
        assert rig.engine.requests == []
    else:
        assert rig.engine.bodies[-1]["guided_json"] == SCHEMA


@every_engine
@both_ways
async def test_rw_12_extra_fields_of_a_completion_reach_the_engine_or_are_named(name: str, stream: bool) -> None:
    asked = t0(stream=stream, **EXTRAS)
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(asked, "/v1/completions")
    assert finish_of(reply, stream=stream) == "stop"
    assert dropped(reply) == DROPPED.get(name, [])
    assert rig.engine.asks[-1].turns == (("", "hi"),)
    sent = rig.engine.bodies[-1]
    if name != "ollama":
        expected = documented(name, asked, sent)
        assert sent == {key: value for key, value in expected.items() if key not in dropped(reply)}


@every_engine
async def test_rw_12_nothing_private_to_the_gateway_goes_upstream(name: str) -> None:
    async with behind_weir(name) as rig:
        for body, path in ((r0(messages=NAMED, **EXTRAS), "/v1/chat/completions"), (t0(**EXTRAS), "/v1/completions")):
            await rig.weir.post(body, path, headers=[("x-weir-anything", "1"), ("x-session-id", "s")])
    assert len(rig.engine.requests) == 2
    for request in rig.engine.requests:
        assert b"weir" not in request.body.lower()
        assert not [key for key, _ in request.headers if key.lower().startswith(b"x-weir")]
