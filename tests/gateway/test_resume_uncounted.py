"""Who is to go on with a stream may have to count its tokens first. One that does not is an attempt that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gateway.config import Config, EndpointConfig, PoolConfig
from gateway.fleet import Fleet
from gateway.token_count import NotCounted, TokenCount
from tests.fakes.endpoint_health import health_of
from tests.fakes.gateway import RunningGateway, running_gateway
from tests.fakes.raw_client import Reply, r0, request_bytes, t0
from tests.fakes.resuming import WITH_USAGE, broken_at_a, pool, usage_of
from tests.fakes.script import Script, Step, eof, hang, head, json_answer, raw, rst
from tests.fakes.scripted import Answer, Request, ScriptedUpstream, eventually
from tests.fakes.storyteller import PROMPT_TOKENS, storyteller

STORY = ["Once", " upon", " a", " time", "."]
LIMIT = 50
CHAT = "/v1/chat/completions"
NOT_FOUND = json_answer({"error": {"message": "no such path", "code": 404}}, 404)


def counting(how: Callable[[Request], Script]) -> Answer:
    """An engine that goes on well, but counts like that."""
    return lambda request: how(request) if request.target == "/tokenize" else storyteller(STORY)(request)


def only_the_second() -> Answer:
    """Of all that share it, the one that is asked first does not count."""
    asked: list[object] = []

    def count(request: Request) -> Script:
        asked.append(request)
        return NOT_FOUND if len(asked) == 1 else storyteller(STORY)(request)

    return counting(count)


async def told_of(gw: RunningGateway, reply: Reply) -> dict[str, Any]:
    told: dict[str, Any] = (await gw.get(f"/weir/requests/{reply.header('x-request-id')}")).json()
    return told


async def test_where_the_first_does_not_count_another_goes_on() -> None:
    shared = only_the_second()
    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=3)) as a,
        ScriptedUpstream(shared) as b,
        ScriptedUpstream(shared) as c,
        running_gateway(pool(a.url, b.url, c.url, engine="vllm")) as gw,
    ):
        reply = await broken_first_at_a(gw, r0(max_tokens=LIMIT, stream_options=WITH_USAGE))
        assert reply.stream_error is None
        assert reply.content() == "".join(STORY)
        assert usage_of(reply) == (PROMPT_TOKENS, len(STORY), PROMPT_TOKENS + len(STORY))
        told = await told_of(gw, reply)
        assert [(each["outcome"], each["error_type"]) for each in told["attempts"]] == [
            ("upstream_error", "truncated_stream"),
            ("upstream_error", "not_counted"),
            ("ok", None),
        ]
        assert told["attempts"][1]["endpoint"] != told["attempts"][2]["endpoint"]
        metrics = await gw.metrics()
        assert metrics.total("weir_resumes_total") == metrics.total("weir_resumes_total", result="resumed") == 1
        first = told["attempts"][1]["endpoint"]
        assert metrics.total("weir_endpoint_errors_total", endpoint=first, error_type="not_counted") == 1
        assert metrics.total("weir_endpoint_errors_total", error_type="not_counted") == 1
        assert metrics.total("weir_retries_total", reason="truncated_stream") == 2


@pytest.mark.parametrize(
    ("how", "why", "health"),
    [
        (NOT_FOUND, "status 404", "healthy"),
        (json_answer({"error": {"message": "trouble", "code": 500}}, 500), "status 500", "healthy"),
        (json_answer({"error": {"message": "no", "code": 401}}, 401), "status 401", "healthy"),
        (json_answer({"tokens": "many"}), "its answer holds no tokens", "healthy"),
        (json_answer({"error": {"message": "Loading model", "code": 503}}, 503), "status 503", "loading"),
        ([head(200), raw(b'{"tok'), eof()], "", "ejected"),
        ([rst()], "", "ejected"),
    ],
)
async def test_where_nobody_counts_it_has_failed(how: Sequence[Step], why: str, health: str) -> None:
    """That it has no such path says nothing of whether it serves; that it breaks off does."""
    rules = {"failures": 1, "interval": "1h", "eject": "1m"}
    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=3)) as a,
        ScriptedUpstream(counting(lambda _: how)) as b,
        ScriptedUpstream(storyteller(STORY)) as other,
        running_gateway(pool(a.url, b.url, other.url, engine="vllm", weights=("w", "w", None), health=rules)) as gw,
    ):
        reply = await broken_first_at_a(gw, r0(max_tokens=LIMIT))
        assert reply.stream_error is not None
        assert "(not resumed: the attempt to go on failed: b did not count the tokens" in reply.stream_error["message"]
        assert why in reply.stream_error["message"]
        metrics = await gw.metrics()
        assert metrics.total("weir_resumes_total") == metrics.total("weir_resumes_total", result="failed") == 1
        assert metrics.total("weir_endpoint_errors_total", endpoint="b", error_type="not_counted") == 1
        assert await health_of(gw, 1) == health


async def test_where_the_number_is_not_limited_nobody_has_to_count() -> None:
    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=3)) as a,
        ScriptedUpstream(counting(lambda _: NOT_FOUND)) as b,
        running_gateway(pool(a.url, b.url, engine="vllm")) as gw,
    ):
        reply = await broken_at_a(gw, r0(stream_options=WITH_USAGE))
        assert reply.content() == "".join(STORY)
        assert [each["usage"]["weir_estimated"] for each in reply.chunks if each.get("usage")] == [True]
        assert await gw.total("weir_endpoint_errors_total", error_type="not_counted") == 0


async def test_an_engine_that_cannot_be_asked_is_none_that_failed() -> None:
    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=3)) as a,
        ScriptedUpstream(storyteller(STORY)) as b,
        running_gateway(pool(a.url, b.url, engine="lmdeploy")) as gw,
    ):
        reply = await broken_at_a(gw, t0(max_tokens=LIMIT), "/v1/completions")
        assert reply.stream_error is not None
        assert "(not resumed: no engine that could go on counts tokens" in reply.stream_error["message"]
        assert await gw.total("weir_resumes_total", result="inexact") == 1
        assert len((await told_of(gw, reply))["attempts"]) == 1


async def test_once_one_text_is_not_counted_no_further_one_is_asked_for() -> None:
    pieces = [f" w{number} x" for number in range(200)]

    def count(request: Request) -> Script:
        text = str(request.json()["prompt"])
        return NOT_FOUND if len(text) < 20 else json_answer({"tokens": [0] * text.count(" ")})

    async with ScriptedUpstream(count) as u:
        endpoints = (EndpointConfig.model_validate({"url": u.url, "engine": "vllm", "id": "e"}),)
        fleet = Fleet(Config(pools={"m": PoolConfig(endpoints=endpoints)}))
        endpoint = fleet.pools["m"].endpoints["e"]
        with pytest.raises(NotCounted, match="status 404"):
            await TokenCount(endpoint, "m").of_broken(pieces, "".join(pieces))
        asking = [task for task in asyncio.all_tasks() if "TokenCount" in str(task.get_coro())]
        assert asking == []
        await fleet.pools["m"].aclose()


async def test_a_client_that_leaves_while_tokens_are_counted_ends_that_too() -> None:
    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=3)) as a,
        ScriptedUpstream(counting(lambda _: [hang()])) as b,
        running_gateway(pool(a.url, b.url, engine="vllm")) as gw,
    ):
        for number in range(2):  # the policy begins at either
            async with gw.connect() as client:
                ask = request_bytes("POST", CHAT, r0(max_tokens=LIMIT), [("x-request-id", f"r{number}")])
                await client.send(ask)
                if b"x-weir-endpoint: a" not in await client.read_until(b" a"):
                    continue
                await eventually(lambda: any(request.target == "/tokenize" for request in b.requests))
        counts = [request for request in b.requests if request.target == "/tokenize"]
        assert counts
        await eventually(lambda: all(request.left.is_set() for request in counts))
        metrics = await gw.at_rest()
        assert metrics.total("weir_endpoint_errors_total", error_type="not_counted") == 0
        assert metrics.total("weir_resumes_total") == 0


async def test_no_time_is_left_for_a_further_one_when_the_request_has_used_it_up() -> None:
    """Whichever of the two is asked first hangs until ``timeouts.total`` is over: the other is not asked then."""
    gone_on: list[Request] = []

    def hanging(request: Request) -> Script:
        if request.json()["messages"][-1]["role"] != "assistant":
            return storyteller(STORY)(request)
        gone_on.append(request)
        return [hang()]

    async with (
        ScriptedUpstream(storyteller(STORY, breaks_after=3)) as a,
        ScriptedUpstream(hanging) as b,
        ScriptedUpstream(hanging) as c,
        running_gateway(pool(a.url, b.url, c.url, timeouts={"total": "500ms"})) as gw,
    ):
        reply = await broken_first_at_a(gw, r0())
        assert reply.stream_error is not None
        assert "did not finish within" in reply.stream_error["message"]
        assert len(gone_on) == 1
        assert len((await told_of(gw, reply))["attempts"]) == 2


async def broken_first_at_a(gw: RunningGateway, body: dict[str, Any]) -> Reply:
    for _ in range(3):
        reply = await gw.post(body)
        if reply.header("x-weir-endpoint") == "a":
            return reply
    raise AssertionError("a was never asked")
