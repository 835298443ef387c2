"""What a policy that routes by prefixes gets to know, through the real gateway and its engines."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import pytest

from gateway.prompts import OFF_LOOP_BYTES
from policies.routing import ROUTING
from policies.types import Choice, PoolView, RouteQuery, eligible
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import (
    PLAIN,
    Answer,
    Script,
    ScriptedUpstream,
    Step,
    chat_stream,
    completion,
    eventually,
    gate,
    head,
    json_answer,
)

WORDS = "The weir holds the river back, and lets it go. " * 100


class Following:
    """Goes where most of the prompt is believed to be cached, else in turn; keeps what it was asked."""

    uses_prefixes: ClassVar[bool] = True
    asked: ClassVar[list[tuple[PoolView, RouteQuery]]] = []

    def choose(self, view: PoolView, query: RouteQuery) -> Choice | None:
        self.asked.append((view, query))
        able = eligible(view, query)
        if not able:
            return None
        turn = view.sequence % len(able)
        best = max((*able[turn:], *able[:turn]), key=lambda e: query.cached_tokens.get(e.endpoint_id, 0))
        return Choice(best.endpoint_id, "test")


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[PoolView, RouteQuery]]:
    monkeypatch.setitem(ROUTING, "least_in_flight", Following)
    Following.asked.clear()
    return Following.asked


def chat(*contents: str, **more: object) -> dict[str, Any]:
    return r0(messages=[{"role": "user", "content": content} for content in contents], stream=False, **more)


def counting(cached_tokens: list[int]) -> Answer:
    """Answers that report the last of these as cached."""

    def answer(_: object) -> Script:
        usage = {"prompt_tokens": 1200, "completion_tokens": 1, "total_tokens": 1201}
        cached = {"prompt_tokens_details": {"cached_tokens": cached_tokens[-1]}}
        return json_answer({**completion(), "usage": {**usage, **cached}})

    return answer


def pool(a: ScriptedUpstream, b: ScriptedUpstream, **options: Any) -> str:
    return config({"url": a.url, "id": "a"}, {"url": b.url, "id": "b"}, pool_options=options)


async def two(stack: AsyncExitStack, *scripts: Script | Answer) -> tuple[ScriptedUpstream, ScriptedUpstream]:
    a, b = ScriptedUpstream(*scripts), ScriptedUpstream(*scripts)
    return await stack.enter_async_context(a), await stack.enter_async_context(b)


async def test_a_conversation_goes_back_to_where_it_was() -> None:
    async with AsyncExitStack() as stack:
        a, b = await two(stack, json_answer(completion()))
        gw = await stack.enter_async_context(running_gateway(pool(a, b)))
        for talk in ("one", "two", "three"):
            turns = [f"{talk}: {WORDS}"]
            first = await gw.post(chat(*turns))
            for turn in range(3):
                turns += ["yes", f"{turn}: {WORDS}"]
                again = await gw.post(chat(*turns))
                assert again.header("x-weir-endpoint") == first.header("x-weir-endpoint")
        assert (a.requests, b.requests) != ([], [])
        scrape = await gw.metrics()
        assert scrape.total("weir_prefix_blocks", pool="m") == 3 * 17  # 16 KiB, and 2 of the 2.4 that are left
        assert scrape.values("weir_prefix_blocks_evicted_total", pool="m") == [0]


async def test_memory_is_bounded_as_configured() -> None:
    async with AsyncExitStack() as stack:
        a, b = await two(stack, json_answer(completion()))
        gw = await stack.enter_async_context(running_gateway(pool(a, b, routing={"prefix_memory": "1KiB"})))
        for talk in range(3):
            await gw.post(chat(f"{talk}: {WORDS}"))
        scrape = await gw.metrics()
        assert scrape.values("weir_prefix_blocks", pool="m") == [3]
        assert scrape.total("weir_prefix_blocks_evicted_total", pool="m") >= 3 * (len(WORDS) // 1024 - 1) - 3


@pytest.mark.parametrize("size_bytes", [OFF_LOOP_BYTES + 10_000, 1_500_000])
async def test_a_long_prompt_is_followed_too(size_bytes: int, asked: list[tuple[PoolView, RouteQuery]]) -> None:
    words = WORDS * (size_bytes // len(WORDS) + 1)
    async with AsyncExitStack() as stack:
        a, b = await two(stack, json_answer(completion()))
        gw = await stack.enter_async_context(running_gateway(pool(a, b)))
        first = await gw.post(chat(words))
        again = await gw.post(chat(words, "yes", "go on"))
        assert again.header("x-weir-endpoint") == first.header("x-weir-endpoint")
        [(_, query)] = asked[1:]
        assert max(query.cached_tokens.values()) > 0.9 * query.prompt_tokens


async def test_a_retry_knows_what_the_first_attempt_knew(asked: list[tuple[PoolView, RouteQuery]]) -> None:
    async with AsyncExitStack() as stack:
        a, b = await two(stack, json_answer({"error": {"message": "no"}}, 500))
        gw = await stack.enter_async_context(running_gateway(pool(a, b)))
        assert (await gw.post(chat(WORDS))).status == 500
        [(_, first), (_, second), *_] = asked
        assert second.tried
        assert first.blocks
        assert second.blocks is first.blocks
        assert second == first._replace(tried=second.tried)


async def test_credit_follows_what_engines_report(asked: list[tuple[PoolView, RouteQuery]]) -> None:
    reported = [0]

    async def ask(times: int) -> float:
        """The share that the last of so many requests was believed to find."""
        for _ in range(times):
            assert (await gw.post(chat(WORDS))).status == 200
        _, query = asked[-1]
        return max(query.cached_tokens.values()) / query.prompt_tokens

    async with AsyncExitStack() as stack:
        a, b = await two(stack, counting(reported))
        gw = await stack.enter_async_context(running_gateway(pool(a, b)))
        assert await ask(2) > 0.8
        assert await ask(50) < 0.1
        reported.append(1190)
        assert await ask(50) > 0.8


async def test_prompts_are_as_long_as_engines_counted(asked: list[tuple[PoolView, RouteQuery]]) -> None:
    async with AsyncExitStack() as stack:
        a, b = await two(stack, counting([0]))
        gw = await stack.enter_async_context(running_gateway(pool(a, b)))
        for _ in range(40):
            await gw.post(chat(WORDS * 2))
        _, first = asked[0]
        _, last = asked[-1]
        assert first.prompt_tokens > 2000
        assert last.prompt_tokens == pytest.approx(1200, rel=0.1)


async def test_an_ejected_endpoint_is_forgotten(asked: list[tuple[PoolView, RouteQuery]]) -> None:
    well, ill = PLAIN["/health"], json_answer({}, 503)
    says: dict[str, list[Step]] = {"a": [*well], "b": [*well]}
    health = {"interval": "10ms", "failures": 1, "successes": 1, "eject": "1ms"}
    async with AsyncExitStack() as stack:
        a, b = [
            await stack.enter_async_context(ScriptedUpstream(json_answer(completion()), plain={"/health": says[name]}))
            for name in ("a", "b")
        ]
        gw = await stack.enter_async_context(running_gateway(pool(a, b, health=health)))
        name = (await gw.post(chat(WORDS))).header("x-weir-endpoint") or ""
        await gw.post(chat(WORDS))
        assert name in asked[-1][1].cached_tokens
        says[name][:] = ill
        await gw.settled(lambda m: m.total("weir_endpoint_transitions_total", endpoint=name, to="ejected") == 1)
        says[name][:] = well
        await gw.settled(lambda m: m.total("weir_endpoint_healthy", endpoint=name) == 1)
        await gw.post(chat(WORDS))
        assert asked[-1][1].cached_tokens == {}


async def test_a_drained_endpoint_is_forgotten_for_its_engine_is_restarted_then(
    asked: list[tuple[PoolView, RouteQuery]],
) -> None:
    async with (
        ScriptedUpstream(json_answer(completion())) as a,
        ScriptedUpstream(json_answer(completion())) as b,
        running_gateway(pool(a, b)) as gw,
    ):
        name = (await gw.post(chat(WORDS))).header("x-weir-endpoint") or ""
        await gw.post(chat(WORDS))
        assert name in asked[-1][1].cached_tokens
        for word in ("drain", "readmit"):
            await gw.post({}, f"/weir/endpoints/{name}/{word}")
        await gw.post(chat(WORDS))
        assert asked[-1][1].cached_tokens == {}


async def test_an_engine_that_was_not_asked_for_it_cannot_do_it_holds_nothing(
    asked: list[tuple[PoolView, RouteQuery]],
) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    tools: list[dict[str, Any]] = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    answer = json_answer(completion())
    async with ScriptedUpstream(answer) as a, ScriptedUpstream(answer) as b:
        endpoints = [{"url": b.url, "engine": "vllm", "id": "b"}, {"url": a.url, "engine": "tgi", "id": "a"}]
        options = {"routing": {"policy": "least_in_flight"}}
        async with running_gateway(config(*endpoints, pool_options=options)) as gw:
            for _ in range(3):
                reply = await gw.post(chat(WORDS, tools=tools, response_format=schema))
                assert (reply.status, reply.header("x-weir-endpoint")) == (200, "b")
            assert await gw.total("weir_retries_total", reason="unsupported_parameter") >= 1
        assert not a.requests
    assert asked[-1][1].cached_tokens.keys() == {"b"}


async def test_what_is_believed_cached_is_not_pending(asked: list[tuple[PoolView, RouteQuery]]) -> None:
    opened = asyncio.Event()
    held: Script = [head(200, "sse"), gate(opened), *chat_stream()[1:]]
    async with AsyncExitStack() as stack:
        a, b = await two(stack, held)
        gw = await stack.enter_async_context(running_gateway(pool(a, b)))
        connections = [await stack.enter_async_context(gw.connect()) for _ in range(3)]
        for count, connection in enumerate(connections, 1):
            body = chat(WORDS, *["yes", "no"] * count) | {"stream": True}
            await connection.send(request_bytes("POST", "/v1/chat/completions", body))
            await eventually(lambda count=count: len(a.requests) + len(b.requests) == count)  # type: ignore[misc]
        view, query = asked[-1]
        [busy] = [e for e in view.endpoints if e.in_flight]
        assert (busy.in_flight, busy.pending) == (2, 2)
        assert busy.held_tokens == pytest.approx(2 * query.prompt_tokens, rel=0.1)
        assert query.prompt_tokens <= busy.pending_tokens + 50 < 1.3 * query.prompt_tokens
        opened.set()
        for connection in connections:
            assert (await connection.reply()).done
        await gw.at_rest()
