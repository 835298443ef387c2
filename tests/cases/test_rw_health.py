"""RW-24 and RW-27: a user's mistakes take nothing out, and an engine that hangs behind good probes is taken out."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.engines import ENGINES, spread
from tests.fakes.gateway import RunningGateway, config, running_gateway
from tests.fakes.raw_client import r0
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    chat_stream,
    hang,
    head,
    in_turn,
    json_answer,
    role,
)

TOO_LONG: object = {
    "error": {"message": "This model's maximum context length is 4096 tokens", "type": "BadRequestError", "code": 400}
}


async def transitions(gw: RunningGateway, to: str) -> float:
    return await gw.total("weir_endpoint_transitions_total", to=to)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("endpoints", [1, 2])
async def test_rw_24_a_users_mistakes_take_nothing_out(engine: str, endpoints: int) -> None:
    statuses = [400] * 20 + [404, 413, 422]
    answers = in_turn(*(json_answer(TOO_LONG, status) for status in statuses), chat_stream("Hello"))
    async with (
        ScriptedUpstream(answers) as u1,
        ScriptedUpstream(answers) as u2,
        running_gateway(
            config(*[u1.url, u2.url][:endpoints], engine=engine, pool_options={"health": {"failures": 1}})
        ) as gw,
    ):
        for status in statuses:
            reply = await gw.post(r0())
            assert reply.status == status
            assert "maximum context length" in reply.error["message"]
            assert reply.header("x-weir-attempts") in (None, "1")
        assert (await gw.post(r0())).content() == "Hello"
        assert len(u1.requests + u2.requests) == len(statuses) + 1, "no mistake is tried twice"
        metrics = await gw.metrics()
        assert metrics.values("weir_endpoint_healthy") == [1] * endpoints
        assert metrics.total("weir_retries_total") == 0
        assert await transitions(gw, "ejected") == 0


HANGS: dict[str, Script] = {
    "before the head": [hang()],
    "after the head": [head(200, "sse"), hang()],
    "after the role": [head(200, "sse"), role(), hang()],
}


async def forty_requests(gw: RunningGateway) -> None:
    """Four at a time; all are served."""
    room = asyncio.Semaphore(4)

    async def one() -> str:
        async with room:
            return (await gw.post(r0())).content()

    assert await asyncio.gather(*(one() for _ in range(40))) == ["Hello"] * 40


@pytest.mark.parametrize(("where", "engine"), spread(HANGS))
async def test_rw_27_an_engine_that_hangs_behind_good_probes_is_removed_and_tried_by_few(
    where: str, engine: str
) -> None:
    options = {
        # Long enough that the good engine, which shares a loop and a busy machine with the clients, is never late
        "timeouts": {"first_token": "3s", "head": "3s"},
        "health": {"interval": "20ms", "timeout": "20s", "eject": "100ms", "eject_max": "1h"},
    }
    async with (
        ScriptedUpstream(HANGS[where]) as u1,
        ScriptedUpstream(chat_stream("Hello")) as u2,
        running_gateway(config(u1.url, u2.url, engine=engine, pool_options=options)) as gw,
    ):
        for _ in range(10):
            await forty_requests(gw)
            if await transitions(gw, "ejected"):
                break
        assert await gw.total("weir_endpoint_healthy", endpoint="m-0") == 0
        assert await gw.total("weir_endpoint_errors_total", endpoint="m-0") <= 8, "a few time-outs are enough"
        for _ in range(3):
            had, tried = len(u1.requests), await transitions(gw, "half_open")
            await forty_requests(gw)
            assert len(u1.requests) - had <= await transitions(gw, "half_open") - tried + 1
        assert await transitions(gw, "healthy") == 0, "good probes bring nothing back"
        assert u1.probes


async def test_rw_27_requests_for_the_good_engine_do_not_wait_for_the_other() -> None:
    """Nothing limits how long the first engine may hang: what went to the second is answered all the same."""
    options = {"timeouts": {"first_token": "1h", "head": "1h"}}
    async with (
        ScriptedUpstream([head(200, "sse"), hang()]) as u1,
        ScriptedUpstream(chat_stream("Hello")) as u2,
        running_gateway(config(u1.url, u2.url, pool_options=options)) as gw,
    ):
        stuck: list[asyncio.Task[object]] = []
        answered = 0
        while answered < 20:
            had = len(u1.requests)
            posted = asyncio.ensure_future(gw.post(r0()))
            while not posted.done() and len(u1.requests) == had:
                await asyncio.wait([posted], timeout=0.01)
            if posted.done():
                assert posted.result().content() == "Hello"
                answered += 1
            else:
                stuck.append(posted)
        assert len(stuck) == len(u1.requests) <= 2
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
