"""What OpenAI's clients send, and what the engine makes of it: it refuses nothing, and understands the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.conformance.rig import MODEL, TEXT, behind_weir, both_ways, engines_that, every_engine
from tests.fakes.dialects.registry import DIALECTS
from tests.fakes.dialects.serving import serving
from tests.fakes.gateway import config, running_gateway
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import Reply, r0, t0

NULLS = dict.fromkeys(
    (
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "metadata",
        "n",
        "parallel_tool_calls",
        "presence_penalty",
        "reasoning_effort",
        "response_format",
        "seed",
        "service_tier",
        "stop",
        "store",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
    )
)
TEXT_NULLS = dict.fromkeys(
    (
        "best_of",
        "echo",
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_tokens",
        "n",
        "presence_penalty",
        "seed",
        "stop",
        "stream_options",
        "suffix",
        "temperature",
        "top_p",
        "user",
    )
)
# OpenAI's own defaults, which many clients send along
DEFAULTS: dict[str, Any] = {
    "temperature": 1,
    "top_p": 1,
    "n": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logit_bias": {},
    "logprobs": False,
    "user": "u",
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def text_of(reply: Reply, *, stream: bool) -> str:
    assert reply.status == 200, reply.body
    if stream:
        assert reply.done
        return reply.content()
    choice = reply.json()["choices"][0]
    text: str = choice["text"] if "text" in choice else choice["message"]["content"]
    return text


def finish_of(reply: Reply, *, stream: bool) -> str:
    (finish,) = reply.finishes() if stream else [reply.json()["choices"][0]["finish_reason"]]
    return str(finish)


@every_engine
@both_ways
async def test_null_is_as_good_as_left_out(name: str, stream: bool) -> None:
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(**NULLS, stream=stream or None))
    assert text_of(reply, stream=stream) == TEXT
    assert rig.engine.asks[-1].max_tokens is None


@every_engine
@both_ways
async def test_null_is_as_good_as_left_out_of_a_completion(name: str, stream: bool) -> None:
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(t0(**TEXT_NULLS, stream=stream or None), "/v1/completions")
    assert text_of(reply, stream=stream) == TEXT


@every_engine
async def test_openais_defaults_change_nothing(name: str) -> None:
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(**DEFAULTS))
    assert text_of(reply, stream=True) == TEXT
    sampling = dict(rig.engine.asks[-1].sampling)
    assert sampling.get("repetition_penalty", 1) == 1
    assert sampling.get("repeat_penalty", 1) == 1
    assert sampling.get("temperature", 1) == 1


@every_engine
@both_ways
@pytest.mark.parametrize("stop", ["wörld", ["nowhere", "wörld"]], ids=["string", "list"])
async def test_a_stop_string_ends_the_answer(name: str, stream: bool, stop: object) -> None:
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(stream=stream, stop=stop))
    assert text_of(reply, stream=stream) == "Hello, "
    assert finish_of(reply, stream=stream) == "stop"
    assert "wörld" in rig.engine.asks[-1].stop


@every_engine
@both_ways
@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_a_limit_ends_the_answer_by_length(name: str, stream: bool, field: str) -> None:
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(**{field: 2}, stream=stream))
    assert text_of(reply, stream=stream) == "Hello, "
    assert finish_of(reply, stream=stream) == "length"


@every_engine
async def test_of_two_limits_one_holds(name: str) -> None:
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(max_tokens=3, max_completion_tokens=2))
    assert reply.status == 200, reply.body
    assert rig.engine.asks[-1].max_tokens in (2, 3)
    assert reply.finishes() == ["length"]


@every_engine
async def test_a_developer_is_understood(name: str) -> None:
    messages = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "hi"}]
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(messages=messages))
    assert text_of(reply, stream=True) == TEXT
    (role, words), user = rig.engine.asks[-1].turns
    assert words == "be brief"
    assert user == ("user", "hi")
    knows = DIALECTS[name].developer
    assert role == ("developer" if knows else "system") or (knows is None and role == "developer")


@every_engine
async def test_text_in_parts_is_one_turn(name: str) -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(messages=[{"role": "user", "content": parts}]))
    assert text_of(reply, stream=True) == TEXT
    ((role, words),) = rig.engine.asks[-1].turns
    assert role == "user"
    assert "".join(words.split()) == "onetwo"


@every_engine
@both_ways
async def test_a_schema_reaches_the_engine(name: str, stream: bool) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": SCHEMA}}
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(stream=stream, response_format=form))
    assert text_of(reply, stream=stream) == TEXT
    assert rig.engine.asks[-1].schema == SCHEMA


@every_engine
async def test_plain_text_as_a_format_changes_nothing(name: str) -> None:
    async with behind_weir(name) as rig:
        reply = await rig.weir.post(r0(response_format={"type": "text"}))
    assert text_of(reply, stream=True) == TEXT
    assert rig.engine.asks[-1].schema is None


@every_engine
async def test_the_engine_is_asked_under_its_own_name_of_the_model(name: str) -> None:
    async with behind_weir(name) as rig:
        await rig.weir.post(r0())
    assert rig.engine.asks[-1].model in (rig.engine.endpoint["model"], "tgi", "")


@engines_that(lambda dialect: dialect.recognisable)
async def test_an_engine_is_recognised_by_what_it_says_of_itself(name: str) -> None:
    async with serving(DIALECTS[name]()) as engine:
        endpoint = {**engine.endpoint, "engine": "auto"}
        async with running_gateway(config(endpoint, pool=MODEL)) as weir, asyncio.timeout(WAIT_S):
            while (await weir.get("/weir/endpoints")).json()[0]["engine"] != name:  # noqa: ASYNC110 - told over HTTP
                await asyncio.sleep(0.01)


@every_engine
async def test_the_probe_finds_the_page_that_it_looks_for(name: str) -> None:
    async with behind_weir(name) as rig:
        await rig.weir.settled(lambda _: bool(rig.engine.probes))
        probed = rig.engine.probes[0].target
        reply = await rig.weir.get("/readyz")
    assert probed in DIALECTS[name]().pages()
    assert reply.status == 200
