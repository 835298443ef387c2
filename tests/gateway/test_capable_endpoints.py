"""A request goes to an endpoint whose engine can do it; when none can, the client is told, and what to do."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from adapters import ADAPTERS
from adapters.capabilities import EVERYTHING, NOTHING, capabilities
from adapters.types import GatewayRequest
from gateway.config.file import parse
from gateway.fleet import Fleet
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import r0, t0
from tests.fakes.scripted import (
    Request,
    Script,
    ScriptedUpstream,
    chat_stream,
    completion,
    head,
    json_answer,
    text_completion,
)

CHAT = "/v1/chat/completions"
FORCED: dict[str, Any] = {
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "tool_choice": "required",
}


def answer(request: Request) -> Script:
    if request.target.endswith("/chat/completions"):
        return chat_stream("ab") if request.asked_for_stream else json_answer(completion("ab"))
    return json_answer(text_completion("ab"))


@asynccontextmanager
async def pool(*engines: str) -> AsyncGenerator[tuple[RunningGateway, dict[str, ScriptedUpstream]]]:
    """A gateway before one engine of each kind; none of them names itself."""
    async with AsyncExitStack() as stack:
        made = {engine: await stack.enter_async_context(ScriptedUpstream(answer)) for engine in engines}
        endpoints = [{"url": u.url, "engine": name, "id": name} for name, u in made.items()]
        gw = await stack.enter_async_context(running_gateway(config(*endpoints)))
        yield gw, made


async def test_a_request_goes_where_it_can_be_served() -> None:
    async with pool("llamacpp", "vllm") as (gw, engines):
        for _ in range(6):
            assert (await gw.post(r0(**FORCED))).header("x-weir-endpoint") == "vllm"
        assert not engines["llamacpp"].requests
        spread = {(await gw.post(r0())).header("x-weir-endpoint") for _ in range(6)}
        assert spread == {"llamacpp", "vllm"}, "what any engine can do goes to all"


async def test_a_field_of_one_engine_goes_to_one_that_takes_every_field_however_many_others_there_are() -> None:
    async with pool("tgi", "ollama", "lightllm", "vllm") as (gw, engines):
        for stream in (True, False):
            reply = await gw.post(r0(guided_choice=["a", "b"], stream=stream))
            assert (reply.status, reply.header("x-weir-endpoint"), reply.header("x-weir-attempts")) == (
                200,
                "vllm",
                "1",
            )
        assert engines["vllm"].last.json()["guided_choice"] == ["a", "b"]


async def test_when_no_engine_can_the_client_is_told_which_field_and_what_to_do() -> None:
    async with pool("llamacpp") as (gw, engines):
        for stream in (True, False):
            reply = await gw.post(r0(**FORCED, stream=stream))
            assert reply.status == 400
            error = reply.error
            assert (error["type"], error["code"], error["param"]) == (
                "invalid_request_error",
                "unsupported_parameter",
                "tool_choice",
            )
            assert all(word in error["message"] for word in ("llamacpp", "tool_choice", CHAT, "json_schema"))
            assert error["weir"]["retryable"] is False
        assert not engines["llamacpp"].requests
        assert (await gw.post(t0(echo=True, stream=False), "/v1/completions")).error["param"] == "echo"
        metrics = await gw.outcome("client_error", 3)
        assert metrics.total("weir_requests_shed_total") == 0


async def test_when_the_one_that_can_is_out_the_client_may_come_back() -> None:
    unwell = {"/health": [head(503, "", length=0)]}
    async with (
        ScriptedUpstream(answer) as limited,
        ScriptedUpstream(answer, plain=unwell) as able,
        running_gateway(
            config(
                {"url": limited.url, "engine": "llamacpp", "id": "limited"},
                {"url": able.url, "engine": "vllm", "id": "able"},
                pool_options={"health": {"interval": "10ms", "failures": 1}},
            )
        ) as gw,
    ):
        while (await gw.get("/weir/endpoints")).json()[1]["health"] == "healthy":
            pass
        reply = await gw.post(r0(**FORCED))
        assert (reply.status, reply.error["code"]) == (503, "no_endpoint")
        assert reply.header("retry-after") == "1"
        assert "can do what the request asks" in reply.error["message"]
        assert (await gw.post(r0())).header("x-weir-endpoint") == "limited"


async def test_a_retry_goes_only_where_it_can_be_served() -> None:
    busy = json_answer({"error": {"message": "full", "code": 503}}, 503)
    async with ScriptedUpstream(busy) as able, ScriptedUpstream(answer) as limited:
        endpoints = [{"url": able.url, "engine": "vllm"}, {"url": limited.url, "engine": "llamacpp"}]
        async with running_gateway(config(*endpoints)) as gw:
            reply = await gw.post(r0(**FORCED))
            assert (reply.status, reply.error["code"]) == (503, "engine_busy")
            assert len(able.requests) == 1
            assert not limited.requests


# What only the engine's codec knows that it cannot do
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
BESIDE_TOOLS: dict[str, Any] = {"tools": FORCED["tools"], "response_format": FORMAT}


async def test_engines_that_were_not_asked_are_no_attempts_however_many_there_are() -> None:
    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(ScriptedUpstream(answer)) for _ in range(6)]
        engines = ["tgi"] * 5 + ["vllm"]
        endpoints = [
            {"url": u.url, "engine": e, "id": f"{e}{i}"} for i, (u, e) in enumerate(zip(made, engines, strict=True))
        ]
        retries = {"attempts": 1, "budget": 0}
        gw = await stack.enter_async_context(
            running_gateway(config(*endpoints, pool_options={"retries": retries, "routing": {"policy": "round_robin"}}))
        )
        for _ in range(6):
            reply = await gw.post(r0(**BESIDE_TOOLS))
            assert (reply.status, reply.header("x-weir-endpoint")) == (200, "vllm5"), reply.body
        assert not any(upstream.requests for upstream in made[:-1])


async def test_the_wait_before_a_further_attempt_does_not_grow_by_engines_that_were_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts: list[int] = []

    def waited(attempt: int, jitter: float) -> float:
        attempts.append(attempt)
        return 0.0

    monkeypatch.setattr("gateway.proxy.wait_s", waited)
    failing = json_answer({"error": {"message": "engine trouble", "code": 500}}, 500)
    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(ScriptedUpstream(failing)) for _ in range(6)]
        endpoints = [{"url": u.url, "engine": e} for u, e in zip(made, ["tgi"] * 4 + ["vllm"] * 2, strict=True)]
        gw = await stack.enter_async_context(running_gateway(config(*endpoints)))
        assert (await gw.post(r0(**BESIDE_TOOLS))).status == 500
    assert attempts in ([2], [2, 3])  # the second, if one that cannot do it comes last


async def test_what_an_engine_said_that_was_asked_is_told_and_not_that_another_cannot_do_it() -> None:
    busy = json_answer({"error": {"message": "full", "code": 503}}, 503)
    async with ScriptedUpstream(busy) as able, ScriptedUpstream(answer) as limited:
        endpoints = [{"url": able.url, "engine": "vllm"}, {"url": limited.url, "engine": "tgi"}]
        async with running_gateway(config(*endpoints)) as gw:
            for _ in range(4):
                reply = await gw.post(r0(**BESIDE_TOOLS))
                assert (reply.status, reply.error["code"]) == (503, "engine_busy")
            assert not limited.requests


async def test_a_server_of_no_known_engine_gets_everything() -> None:
    async with pool("openai") as (gw, engines):
        asked: dict[str, Any] = {**FORCED, "n": 2, "logprobs": True, "response_format": {"type": "json_object"}}
        await gw.post(r0(**asked, stream=False))
        assert asked.items() <= engines["openai"].last.json().items()


async def test_passed_on_paths_need_nothing() -> None:
    async with pool("llamacpp") as (gw, engines):
        await gw.post({"model": "m", **FORCED}, "/v1/anything")
        assert engines["llamacpp"].last.target == "/v1/anything"


# --- the model list


def models(pools: Mapping[str, list[str]]) -> str:
    made = {
        name: {"endpoints": [{"url": "http://127.0.0.1:9", "engine": engine} for engine in engines]}
        for name, engines in pools.items()
    }
    return json.dumps({"pools": made})


async def test_each_model_is_listed_with_what_can_be_asked_of_it() -> None:
    async with running_gateway(models({"a": ["llamacpp"], "b": ["llamacpp", "vllm", "vllm"]})) as gw:
        listed = {entry["id"]: entry["weir"] for entry in (await gw.get("/v1/models")).json()["data"]}
        assert listed == {
            "a": {"capabilities": sorted(capabilities("llamacpp")), "engines": ["llamacpp"]},
            "b": {
                "capabilities": sorted(capabilities("llamacpp") | capabilities("vllm")),
                "engines": ["llamacpp", "vllm"],
            },
        }
        assert (await gw.get("/v1/models/a")).json()["weir"] == listed["a"]


# --- the pool


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(parse(models({"m": ["llamacpp", "sglang"]}), source="test", environ={}))


def test_the_refusal_is_of_the_engine_that_comes_nearest(fleet: Fleet) -> None:
    request = GatewayRequest("r", "text_completion", "/v1/completions", "POST", "m", False, b"", {}, 0)
    far, near = fleet.pools["m"].endpoints.values()
    far.capabilities, near.capabilities = NOTHING, frozenset(("n", "suffix"))
    told = fleet.pools["m"].refusal(request, frozenset(("n", "suffix", "echo")))
    assert told is not None
    assert (told.param, told.message.split()[0]) == ("echo", "sglang")
    assert fleet.pools["m"].refusal(request, frozenset(("n",))) is None
    assert fleet.pools["m"].refusal(request, NOTHING) is None


def test_an_endpoint_is_taken_for_what_it_speaks(fleet: Fleet) -> None:
    endpoint = fleet.pools["m"].endpoints["m-0"]
    endpoint.speak(ADAPTERS["vllm"], "0.8.2")
    assert "forced_tool_choice" not in endpoint.capabilities
    endpoint.speak(ADAPTERS["openai"], "")
    assert endpoint.capabilities == EVERYTHING
    assert fleet.pools["m"].view().endpoints[0].capabilities is endpoint.capabilities


async def test_what_an_adapter_cannot_say_to_its_engine_goes_to_another() -> None:
    """Only the adapter sees that Ollama fetches no images: the table says that it sees them."""
    image = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
    asked = r0(messages=[{"role": "user", "content": [image]}])
    async with pool("ollama", "vllm") as (gw, engines):
        for _ in range(4):
            reply = await gw.post(asked)
            assert (reply.status, reply.header("x-weir-endpoint")) == (200, "vllm")
        assert not engines["ollama"].requests
        assert await gw.total("weir_retries_total", reason="unsupported_parameter") >= 1
    async with pool("ollama") as (gw, engines):
        reply = await gw.post(asked)
        error = reply.json()["error"]
        assert (reply.status, error["code"], error["weir"]["retryable"]) == (400, "unsupported_parameter", False)
        assert not engines["ollama"].requests
