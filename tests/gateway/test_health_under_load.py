"""Two engines under many concurrent streams, and one of them is killed, hangs, slows down, fails, or is misused.

No request fails that the other engine could have served.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.fakes.endpoint_health import becomes, listed
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import Reply, r0
from tests.fakes.scripted import (
    Request,
    Script,
    ScriptedUpstream,
    chat_stream,
    done,
    end,
    eventually,
    fin,
    hang,
    head,
    json_answer,
    pause,
    role,
    tok,
)

CLIENTS = 24
FAILED: object = {"error": {"message": "engine trouble", "code": 500}}
TOO_LONG: object = {"error": {"message": "too long", "type": "invalid_request_error", "code": 400}}
MISUSE = "too long"


def stream(pause_s: float) -> Script:
    """A stream of four tokens."""
    tokens = [step for letter in "abcd" for step in (pause(pause_s), tok(letter))]
    return [head(200, "sse"), role(), *tokens, fin("stop"), done(), end()]


class Engine:
    """An engine whose answers change when the test says so."""

    def __init__(self) -> None:
        self.script: Script = stream(0.005)

    def answer(self, request: Request) -> Script:
        return json_answer(TOO_LONG, 400) if MISUSE.encode() in request.body else self.script


class Load:
    """Clients that ask again as soon as they are answered."""

    def __init__(self, gw: RunningGateway) -> None:
        self._gw = gw
        self.replies: list[Reply] = []
        self.stop = False

    async def client(self) -> None:
        while not self.stop:
            self.replies.append(await self._gw.post(r0()))

    async def more(self, count: int) -> None:
        """Waits until that many more are answered."""
        until = len(self.replies) + count
        await eventually(lambda: len(self.replies) >= until)


@asynccontextmanager
async def under_load(gw: RunningGateway) -> AsyncGenerator[Load]:
    """Clients, once all have been answered and both engines have served; they end on the way out."""
    load = Load(gw)
    async with asyncio.TaskGroup() as clients:
        for _ in range(CLIENTS):
            clients.create_task(load.client())
        await load.more(2 * CLIENTS)
        try:
            yield load
        finally:
            load.stop = True


def health(**changes: object) -> dict[str, Any]:
    return {
        "health": {"interval": "50ms", "timeout": "20s", "eject": "1h", "eject_max": "1h", **changes},
        "timeouts": {"first_token": "60s", "stall": "60s"},
    }


@asynccontextmanager
async def two(
    first: Callable[[Request], Script], other: Engine, **changes: object
) -> AsyncGenerator[tuple[ScriptedUpstream, RunningGateway]]:
    """A gateway in front of two engines; yields the first of them, and the gateway."""
    async with (
        ScriptedUpstream(first) as u1,
        ScriptedUpstream(other.answer) as u2,
        running_gateway(config(u1.url, u2.url, pool_options=health(**changes))) as gw,
    ):
        yield u1, gw


async def ejected(gw: RunningGateway) -> float:
    return await gw.total("weir_endpoint_transitions_total", to="ejected")


def is_whole(reply: Reply) -> bool:
    return reply.status == 200 and reply.content() == "abcd" and reply.done


async def test_a_killed_engine_costs_only_the_streams_that_had_begun() -> None:
    engine, other = Engine(), Engine()
    async with AsyncExitStack() as life, ScriptedUpstream(other.answer) as u2:
        u1 = await life.enter_async_context(ScriptedUpstream(engine.answer))
        async with running_gateway(config(u1.url, u2.url, pool_options=health())) as gw, under_load(gw) as load:
            await life.aclose()
            await becomes(gw, "ejected")
            await load.more(2 * CLIENTS)
        broken = [reply for reply in load.replies if not is_whole(reply)]
        assert all(reply.content() and reply.stream_error for reply in broken), "no request without output failed"
        assert len(broken) <= CLIENTS


async def test_an_engine_that_fails_at_once_attracts_nothing() -> None:
    engine, other = Engine(), Engine()
    async with two(engine.answer, other) as (u1, gw):
        async with under_load(gw) as load:
            engine.script = json_answer(FAILED, 500)
            await becomes(gw, "ejected")
            had = len(u1.requests)
            await load.more(4 * CLIENTS)
            assert len(u1.requests) == had
        assert all(is_whole(reply) for reply in load.replies)
        assert await gw.total("weir_endpoint_attempts_total", endpoint="m-0", outcome="upstream_error") <= CLIENTS


async def test_an_engine_that_fails_six_requests_in_ten_goes_too() -> None:
    engine, other = Engine(), Engine()
    turn = 0

    def flaky(request: Request) -> Script:
        nonlocal turn
        turn += 1
        return json_answer(FAILED, 500) if turn % 5 in (0, 2, 4) else engine.answer(request)

    async with two(flaky, other, failures=6) as (_, gw):
        async with under_load(gw) as load:
            await becomes(gw, "ejected")
            await load.more(CLIENTS)
        assert all(is_whole(reply) for reply in load.replies)


@pytest.mark.parametrize("where", [[hang()], [head(200, "sse"), hang()], [head(200, "sse"), role(), hang()]])
async def test_an_engine_that_hangs_behind_good_probes_is_found_out(where: Script) -> None:
    engine, other = Engine(), Engine()
    async with two(engine.answer, other) as (u1, gw):
        async with under_load(gw) as load:
            engine.script = where
            await becomes(gw, "ejected")
            assert (await listed(gw))[0]["reason"].startswith("wedged")
            had, probes = len(u1.requests), len(u1.probes)
            await load.more(2 * CLIENTS)
            await eventually(lambda: len(u1.probes) > probes + 3)
            assert len(u1.requests) == had
            assert await ejected(gw) == 1, "no probe brought it back"
        assert all(is_whole(reply) for reply in load.replies), "those that waited there were served elsewhere"


async def test_an_engine_three_times_slower_stays() -> None:
    engine, other = Engine(), Engine()
    async with two(engine.answer, other) as (u1, gw):
        async with under_load(gw) as load:
            engine.script = stream(0.015)
            had = len(u1.requests)
            await eventually(lambda: len(u1.requests) > had + CLIENTS)
            await load.more(2 * CLIENTS)
        assert await ejected(gw) == 0
        assert all(is_whole(reply) for reply in load.replies)


@pytest.mark.parametrize("misuse", [r0(user=MISUSE), r0(user=MISUSE, stream=False)])
async def test_a_storm_of_one_users_mistakes_takes_nothing_out(misuse: dict[str, Any]) -> None:
    async with (
        ScriptedUpstream(Engine().answer) as u1,
        ScriptedUpstream(Engine().answer) as u2,
        running_gateway(config(u1.url, u2.url, pool_options=health(failures=1))) as gw,
    ):
        async with under_load(gw) as load:
            for _ in range(10):
                storm = await asyncio.gather(*(gw.post(misuse) for _ in range(8)))
                assert {reply.status for reply in storm} == {400}
            await load.more(CLIENTS)
        assert await ejected(gw) == 0
        assert await gw.total("weir_retries_total") == 0
        assert all(is_whole(reply) for reply in load.replies)


async def test_a_storm_of_busy_answers_takes_nothing_out() -> None:
    engine, other = Engine(), Engine()
    async with two(engine.answer, other, failures=1) as (u1, gw):
        async with under_load(gw) as load:
            engine.script = json_answer({"error": {"message": "queue full", "code": 429}}, 429)
            had = len(u1.requests)
            await eventually(lambda: len(u1.requests) > had + CLIENTS)
            await load.more(CLIENTS)
        assert await ejected(gw) == 0


async def test_the_floor_of_a_pool_holds() -> None:
    bad = json_answer(FAILED, 500)
    async with (
        ScriptedUpstream(bad) as u1,
        ScriptedUpstream(bad) as u2,
        ScriptedUpstream(bad) as u3,
        ScriptedUpstream(chat_stream("abcd")) as u4,
        running_gateway(
            config(u1.url, u2.url, u3.url, u4.url, pool_options=health(failures=1, min_healthy=0.75))
        ) as gw,
    ):
        for _ in range(12):
            await gw.post(r0())
        assert [e["health"] for e in await listed(gw)].count("healthy") == 3
        assert "health.min_healthy" in gw.logs.text
