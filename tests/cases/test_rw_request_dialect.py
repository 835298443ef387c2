"""RW-09 to RW-12, request-dialect: an OpenAI-speaking engine gets the client's body value for value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes.engines import ENGINES
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0, t0
from tests.fakes.scripted import (
    Request,
    Script,
    ScriptedUpstream,
    chat_stream,
    completion,
    json_answer,
    text_completion,
    text_stream,
)

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def answer(request: Request) -> Script:
    """A good answer in the form that the gateway asked for."""
    if request.target.endswith("/chat/completions"):
        return chat_stream("ab") if request.asked_for_stream else json_answer(completion("ab"))
    return text_stream("ab") if request.asked_for_stream else json_answer(text_completion("ab"))


def documented(body: dict[str, Any], sent: dict[str, Any]) -> dict[str, Any]:
    """``body`` with the documented differences: usage is asked for, and an engine may be asked for a stream."""
    expected = dict(body)
    if sent.get("stream"):
        expected["stream"] = True
        expected["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
    return expected


async def sent_to_each(
    body: dict[str, Any], path: str = "/v1/chat/completions", engines: tuple[str, ...] = ENGINES
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """For each engine, streaming and not: the client's body, and what the engine received; each must succeed."""
    found: list[tuple[dict[str, Any], dict[str, Any]]] = []
    async with ScriptedUpstream(answer) as u:
        pools = {engine: {"endpoints": [{"url": u.url, "engine": engine}]} for engine in engines}
        async with running_gateway(json.dumps({"pools": pools})) as gw:
            for engine in engines:
                for stream in (True, False):
                    asked = body | {"model": engine, "stream": stream}
                    reply = await gw.post(asked, path)
                    assert reply.status == 200, reply.raw
                    assert u.last.target == path
                    found.append((asked, u.last.json()))
    return found


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "hi"}],
        [
            {"role": "system", "content": "A"},
            {"role": "developer", "content": "B"},
            {"role": "user", "content": "hi"},
            {"role": "developer", "content": "C"},
        ],
        [{"role": "developer", "content": [{"type": "text", "text": "be brief"}]}, {"role": "user", "content": "hi"}],
        [{"role": "developer", "content": "be brief", "name": "d"}, {"role": "user", "content": "hi"}],
    ],
    ids=["first", "amid", "parts", "named"],
)
async def test_rw_09_the_developer_role_reaches_the_engine_in_order(
    messages: list[dict[str, Any]],
) -> None:
    for asked, sent in await sent_to_each(r0(messages=messages)):
        assert sent["messages"] == messages, asked["model"]


CAPS: list[dict[str, Any]] = [
    {"max_completion_tokens": 16},
    {"max_tokens": 16},
    {"max_tokens": 16, "max_completion_tokens": 8},
    {},
]


@pytest.mark.parametrize("caps", CAPS, ids=["new name", "old name", "both", "neither"])
async def test_rw_10_the_cap_reaches_the_engine_under_the_names_it_knows(
    caps: dict[str, Any],
) -> None:
    for asked, sent in await sent_to_each(r0(**caps)):
        assert {key: sent[key] for key in sent if key.startswith("max_")} == caps, asked["model"]


async def test_rw_10_the_cap_of_a_completions_call_reaches_the_engine() -> None:
    for asked, sent in await sent_to_each(t0(max_tokens=16), "/v1/completions"):
        assert sent["max_tokens"] == 16, asked["model"]


@pytest.mark.parametrize("engine", ENGINES)
async def test_rw_10_a_cap_hit_is_reported_as_length(engine: str) -> None:
    def capped(request: Request) -> Script:
        if request.asked_for_stream:
            return chat_stream("ab", finish="length")
        return json_answer(completion("ab", finish="length"))

    async with ScriptedUpstream(capped) as u, running_gateway(config(u.url, engine=engine)) as gw:
        assert (await gw.post(r0(max_completion_tokens=2))).finishes() == ["length"]
        whole = await gw.post(r0(max_completion_tokens=2, stream=False))
        assert whole.json()["choices"][0]["finish_reason"] == "length"


PARTS: list[dict[str, Any]] = [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]
IMAGE: dict[str, Any] = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}", "detail": "low"}}
REMOTE: dict[str, Any] = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
AUDIO: dict[str, Any] = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
CALL = {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": PARTS}],
        [{"role": "system", "content": PARTS}, {"role": "user", "content": PARTS}],
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_a", "content": PARTS},
        ],
        [{"role": "user", "content": [*PARTS, IMAGE]}],
        [{"role": "user", "content": [REMOTE, *PARTS]}],
        [{"role": "user", "content": [AUDIO, {"type": "not_invented_yet", "x": {"y": [1, 2.5]}}]}],
        [{"role": "user", "content": []}],
    ],
    ids=["text", "system", "tool", "data URL", "remote image", "audio and unknown", "empty"],
)
async def test_rw_11_content_parts_reach_the_engine_untouched(
    messages: list[dict[str, Any]],
) -> None:
    for asked, sent in await sent_to_each(r0(messages=messages)):
        assert sent["messages"] == messages, asked["model"]


EXTRAS: dict[str, Any] = {
    "chat_template_kwargs": {"enable_thinking": False},
    "top_k": 20,
    "min_p": 0.1,
    "guided_json": {"type": "object", "properties": {"a": {"type": "string", "enum": ["x", "é"]}}},
    "seed": 7,
    "user": "u",
    "metadata": {"a": 1},
    "zzz": 1,
    "temperature": 0,
    "top_p": 1.0,
    "logit_bias": {"50256": -100},
    "stop": ["\n", "\u2028"],
    "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}},
}


async def test_rw_12_fields_no_one_here_knows_reach_the_engine_value_for_value() -> None:
    body = r0(messages=[{"role": "user", "content": "hi", "name": "n", "zzz": [1]}], **EXTRAS)
    for asked, sent in await sent_to_each(body):
        assert sent == documented(asked, sent)


async def test_rw_12_a_completions_body_reaches_the_engine_value_for_value() -> None:
    body = t0(echo=True, suffix="s", best_of=1, logprobs=3, **EXTRAS)
    can_all = tuple(engine for engine in ENGINES if engine != "llamacpp")  # which has neither echo nor suffix
    for asked, sent in await sent_to_each(body, "/v1/completions", can_all):
        assert sent == documented(asked, sent)


@pytest.mark.parametrize("prompt", ["hi", ["hi", "ho"], [1, 2, 3], [[1, 2], [3]]], ids=["text", "list", "ids", "lists"])
async def test_rw_12_every_form_of_a_prompt_reaches_the_engine(prompt: object) -> None:
    for asked, sent in await sent_to_each(t0(prompt=prompt), "/v1/completions"):
        assert sent["prompt"] == prompt, asked["model"]


async def test_rw_12_only_the_model_name_is_replaced_by_the_endpoints() -> None:
    body = r0(**EXTRAS)
    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(config({"url": u.url, "model": "org/real:7b"})) as gw,
    ):
        reply = await gw.post(body)
        sent = u.last.json()
        assert sent == documented(body, sent) | {"model": "org/real:7b"}
        assert {piece["model"] for piece in reply.chunks} == {"m"}
        whole = await gw.post(r0(stream=False))
        assert whole.json()["model"] == "m"


async def test_rw_12_a_model_key_deeper_in_the_body_is_not_replaced() -> None:
    body = r0(metadata={"model": "m"}, messages=[{"role": "user", "content": '{"model":"m"}', "model": "m"}])
    async with (
        ScriptedUpstream(answer) as u,
        running_gateway(config({"url": u.url, "model": "real"})) as gw,
    ):
        await gw.post(body)
        sent = u.last.json()
        assert sent == documented(body, sent) | {"model": "real"}


@pytest.mark.parametrize("engine", ENGINES)
async def test_rw_12_nothing_private_to_the_gateway_goes_upstream(engine: str) -> None:
    async with ScriptedUpstream(answer) as u, running_gateway(config(u.url, engine=engine)) as gw:
        await gw.post(r0(), headers=[("x-weir-anything", "1"), ("x-session-id", "s")])
        assert b"weir" not in u.last.body.lower()
        assert not [name for name, _ in u.last.headers if name.lower().startswith(b"x-weir")]


@pytest.mark.parametrize("engine", ["openai", "vllm"])
async def test_rw_12_an_embeddings_body_and_answer_pass_value_for_value(engine: str) -> None:
    body = {"model": "m", "input": ["a", "é"], "encoding_format": "float", "dimensions": 3, "zzz": {"a": None}}
    vectors = [{"object": "embedding", "index": i, "embedding": [0.1, -1e-7, float(i)]} for i in range(2)]
    made = {"object": "list", "data": vectors, "model": "real", "usage": {"prompt_tokens": 2, "total_tokens": 2}}
    async with (
        ScriptedUpstream(json_answer(made)) as u,
        running_gateway(config({"url": u.url, "model": "real"}, engine=engine)) as gw,
    ):
        reply = await gw.post(body, "/v1/embeddings")
        assert u.last.target == "/v1/embeddings"
        assert u.last.json() == body | {"model": "real"}
        assert reply.json() == made | {"model": "m"}
