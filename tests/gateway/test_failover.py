"""Before the first output: other endpoints, within the pool's budget, and what the client is told of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import Reply, r0
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    chat_stream,
    completion,
    eof,
    event,
    hang,
    head,
    json_answer,
    role,
    rst,
    silent_listener,
    tok,
    unused_port,
)

FAILED: object = {"error": {"message": "engine trouble", "code": 500}}
PATIENT: dict[str, Any] = {"failures": 1000, "interval": "1h"}
"""Health rules under which nothing is ejected while a test runs."""


def named(**urls: str) -> list[dict[str, str]]:
    return [{"id": name, "url": url} for name, url in urls.items()]


async def served_by_b(gw: RunningGateway, times: int = 2, **changes: object) -> list[Reply]:
    """Asks as often as it takes to begin at either endpoint; every answer comes from b."""
    replies = [await gw.post(r0(**changes)) for _ in range(times)]
    assert [reply.status for reply in replies] == [200] * times
    assert {reply.header("x-weir-endpoint") for reply in replies} == {"b"}
    assert sorted(reply.header("x-weir-attempts") or "" for reply in replies) == ["1", "2"]
    return replies


@pytest.mark.parametrize(
    ("failing", "reason"),
    [
        (json_answer(FAILED, 500), "500"),
        (json_answer(FAILED, 529), "529"),
        (json_answer(FAILED, 503), "503"),
        (json_answer(FAILED, 429), "429"),
        ([rst()], "reset"),
        ([eof()], "reset"),
        ([head(200, "sse"), role(), eof()], "truncated_stream"),
        ([head(200, "sse"), event(b"{nonsense")], "malformed_stream"),
    ],
)
async def test_the_next_attempt_and_its_reason_are_counted(failing: Script, reason: str) -> None:
    async with (
        ScriptedUpstream(failing) as a,
        ScriptedUpstream(chat_stream()) as b,
        running_gateway(config(*named(a=a.url, b=b.url), pool_options={"health": PATIENT})) as gw,
    ):
        for reply in await served_by_b(gw):
            assert reply.content() == "ab"
            assert reply.done
        metrics = await gw.metrics()
        assert metrics.total("weir_retries_total", pool="m", reason=reason) == 1
        assert metrics.total("weir_endpoint_errors_total", endpoint="a", error_type=reason) == 1
        assert metrics.total("weir_endpoint_attempts_total", endpoint="b", outcome="ok") == 2
        assert metrics.total("weir_requests_total", outcome="ok") == 2


@pytest.mark.parametrize(
    ("timer", "script", "reason"),
    [
        ("head", [hang()], "first_token_timeout"),
        ("first_token", [head(200, "sse"), role(), hang()], "first_token_timeout"),
    ],
)
async def test_a_timer_before_the_first_output_is_a_reason_too(timer: str, script: Script, reason: str) -> None:
    options = {"timeouts": {timer: "2s"}, "health": PATIENT}
    async with (
        ScriptedUpstream(script) as a,
        ScriptedUpstream(chat_stream()) as b,
        running_gateway(config(*named(a=a.url, b=b.url), pool_options=options)) as gw,
    ):
        await served_by_b(gw)
        assert await gw.total("weir_retries_total", reason=reason) == 1
        assert a.last.left.is_set()


async def test_a_connection_that_is_refused_or_never_made_is_a_reason_too() -> None:
    for reason, port in (("connect", unused_port()), ("connect_timeout", None)):
        with silent_listener() as silent:
            async with ScriptedUpstream(chat_stream()) as b:
                options = {"timeouts": {"connect": "2s"}, "health": PATIENT}
                endpoints = named(a=f"http://127.0.0.1:{port or silent}", b=b.url)
                async with running_gateway(config(*endpoints, pool_options=options)) as gw:
                    await served_by_b(gw)
                    assert await gw.total("weir_retries_total", reason=reason) == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_the_last_failure_names_its_endpoint_and_the_attempts(stream: bool) -> None:
    async with (
        ScriptedUpstream(json_answer(FAILED, 500)) as a,
        ScriptedUpstream(json_answer(FAILED, 500)) as b,
        running_gateway(config(*named(a=a.url, b=b.url), pool_options={"health": PATIENT})) as gw,
    ):
        reply = await gw.post(r0(stream=stream))
        assert reply.status == 500
        assert reply.header("x-weir-attempts") == "2"
        assert reply.header("x-weir-endpoint") in ("a", "b")
        assert reply.error["weir"]["endpoint"] == reply.header("x-weir-endpoint")
        assert reply.error["weir"]["retryable"] is True
        assert reply.error["weir"]["request_id"] == reply.header("x-request-id")
        assert reply.header("x-should-retry") is None


@pytest.mark.parametrize("status", [429, 503])
async def test_when_all_are_busy_the_last_ones_retry_after_reaches_the_client(status: int) -> None:
    busy = json_answer(FAILED, status, ("retry-after", "7"))
    async with (
        ScriptedUpstream(busy) as a,
        ScriptedUpstream(busy) as b,
        running_gateway(config(a.url, b.url, pool_options={"health": PATIENT})) as gw,
    ):
        reply = await gw.post(r0())
        assert reply.status == status
        assert reply.header("retry-after") == "7"
        assert reply.header("x-weir-attempts") == "2"
        assert await gw.total("weir_requests_total", outcome="shed") == 1


async def test_a_pool_that_spent_its_budget_tries_nobody_else() -> None:
    """Without a share, three further attempts a second are left: thirty in ten."""
    options = {"retries": {"attempts": 2, "budget": 0}, "health": PATIENT}
    async with (
        ScriptedUpstream(json_answer(FAILED, 500)) as a,
        ScriptedUpstream(json_answer(FAILED, 500)) as b,
        running_gateway(config(a.url, b.url, pool_options=options)) as gw,
    ):
        replies = await asyncio.gather(*(gw.post(r0()) for _ in range(40)))
        assert {reply.status for reply in replies} == {500}
        attempts = [reply.header("x-weir-attempts") for reply in replies]
        assert (attempts.count("2"), attempts.count("1")) == (30, 10)
        assert len(a.requests) + len(b.requests) == 70


async def test_an_attempt_that_cannot_be_made_takes_nothing_from_the_budget() -> None:
    """Two endpoints, three attempts allowed: the third has nowhere to go, and must not be paid for."""
    options = {"retries": {"attempts": 3, "budget": 0}, "health": PATIENT}
    async with (
        ScriptedUpstream(json_answer(FAILED, 500)) as a,
        ScriptedUpstream(json_answer(FAILED, 500)) as b,
        running_gateway(config(a.url, b.url, pool_options=options)) as gw,
    ):
        for _ in range(2):
            replies = await asyncio.gather(*(gw.post(r0()) for _ in range(15)))
            assert [reply.header("x-weir-attempts") for reply in replies] == ["2"] * 15


async def test_attempts_are_counted_whatever_their_number() -> None:
    async with (
        ScriptedUpstream(json_answer(FAILED, 500)) as bad,
        ScriptedUpstream(json_answer(completion())) as good,
    ):
        endpoints = named(a=bad.url, b=bad.url + "/", c=good.url)
        options = {"retries": {"attempts": 10}, "health": PATIENT}
        async with running_gateway(config(*endpoints, pool_options=options)) as gw:
            replies = [await gw.post(r0(stream=False)) for _ in range(3)]
            assert {reply.header("x-weir-endpoint") for reply in replies} == {"c"}
            counts = [int(reply.header("x-weir-attempts") or 0) for reply in replies]
            assert max(counts) > 1
            assert sum(counts) == len(bad.requests) + len(good.requests)


async def test_an_embeddings_request_that_sets_stream_harms_no_endpoint() -> None:
    """OpenAI has no such field there; the client's whim must not count against the engines."""
    answer = {"object": "list", "model": "x", "data": [{"index": 0, "embedding": [0.5]}], "usage": {"prompt_tokens": 1}}
    async with (
        ScriptedUpstream(json_answer(answer)) as a,
        ScriptedUpstream(json_answer(answer)) as b,
        running_gateway(config(a.url, b.url, pool_options={"health": {"failures": 1, "interval": "1h"}})) as gw,
    ):
        reply = await gw.post({"model": "m", "input": "hi", "stream": True}, "/v1/embeddings")
        assert reply.status in (200, 400)
        assert await gw.total("weir_endpoint_healthy") == 2


async def test_output_and_then_a_failure_in_one_read_is_no_second_answer() -> None:
    """Whether that counts as before or after the first output, the client sees one answer, or one and an error."""
    as_one = [head(200, "sse"), tok("Hel"), eof()]
    async with (
        ScriptedUpstream(as_one) as a,
        ScriptedUpstream(chat_stream("Hello")) as b,
        running_gateway(config(*named(a=a.url, b=b.url), pool_options={"health": PATIENT})) as gw,
    ):
        for _ in range(2):
            reply = await gw.post(r0())
            whole = reply.content() == "Hello" and reply.done and reply.stream_error is None
            cut = reply.content() == "Hel" and not reply.done and reply.stream_error is not None
            assert whole or cut
