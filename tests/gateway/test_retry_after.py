"""An engine that asks for patience gets it: others are asked meanwhile, and the client is told the shortest wait."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from policies.retry_after import LONGEST_S
from tests.fakes.flown import fleet
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0
from tests.fakes.scripted import Script, ScriptedUpstream, chat_stream, json_answer

BUSY: object = {"error": {"message": "later"}}


def busy(retry_after: str, status: int = 429) -> Script:
    return json_answer(BUSY, status, ("retry-after", retry_after))


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_a_busy_engine_is_not_asked_again_while_others_can_be(status: int, form: str) -> None:
    asked = "60" if form == "seconds" else formatdate(time.time() + 3600, usegmt=True)
    async with (
        ScriptedUpstream(busy(asked, status)) as a,
        ScriptedUpstream(chat_stream()) as b,
        running_gateway(config({"id": "a", "url": a.url}, {"id": "b", "url": b.url})) as gw,
    ):
        replies = [await gw.post(r0()) for _ in range(6)]
        assert {reply.header("x-weir-endpoint") for reply in replies} == {"b"}
        assert len(a.requests) == 1
        metrics = await gw.metrics()
        assert metrics.values("weir_endpoint_healthy", endpoint="a") == [1]
        assert metrics.total("weir_endpoint_transitions_total") == 0


async def test_when_nobody_else_is_there_a_busy_engine_is_asked_all_the_same() -> None:
    async with ScriptedUpstream(busy("60"), chat_stream("xy")) as u, running_gateway(config(u.url)) as gw:
        assert (await gw.post(r0())).status == 429
        assert (await gw.post(r0())).content() == "xy"


@pytest.mark.parametrize("waits", [("7", "30"), ("30", "7")])
async def test_when_all_are_busy_the_client_is_told_the_shortest_wait(waits: tuple[str, str]) -> None:
    async with (
        ScriptedUpstream(busy(waits[0])) as a,
        ScriptedUpstream(busy(waits[1])) as b,
        running_gateway(config(a.url, b.url)) as gw,
    ):
        reply = await gw.post(r0())
        assert (reply.status, reply.header("retry-after")) == (429, "7")
        assert len(a.requests) == len(b.requests) == 1


async def test_the_shortest_wait_counts_those_that_were_not_asked_this_time() -> None:
    options = {"retries": {"attempts": 1}}
    async with (
        ScriptedUpstream(busy("7")) as a,
        ScriptedUpstream(busy("30")) as b,
        running_gateway(config(a.url, b.url, pool_options=options)) as gw,
    ):
        for _ in range(2):
            await gw.post(r0())
        assert (len(a.requests), len(b.requests)) == (1, 1)
        for _ in range(2):
            wait_s = int((await gw.post(r0())).header("retry-after") or 0)
            assert 1 <= wait_s <= 7


async def test_what_is_no_wait_is_not_passed_on() -> None:
    async with ScriptedUpstream(busy("soon")) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0())
        assert reply.status == 429
        assert reply.header("retry-after") is None


def test_a_wait_ends() -> None:
    pool = fleet("vllm", "vllm").pools["m"]
    first, second = pool.endpoints.values()
    assert pool.busy(first, LONGEST_S, None) == "60"
    assert pool.busy(second, None, 20.0) == "20"
    assert first.snapshot().busy_until_s == pytest.approx(time.perf_counter() + LONGEST_S, abs=30)
    assert second.snapshot().busy_until_s is None
