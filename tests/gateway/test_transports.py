"""Either transport carries whole requests the same way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fakes.flights import watched_flights
from tests.fakes.gateway import config, running_gateway
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import (
    ScriptedUpstream,
    chat_stream,
    completion,
    done,
    end,
    fin,
    flood,
    hang,
    head,
    json_answer,
    role,
    rst,
    tok,
    unused_port,
)
from tests.fakes.slow_client import connect_slow

CHAT = "/v1/chat/completions"
transports = pytest.mark.parametrize("transport", ["native", "httpx2"])


def by(transport: str, *urls: str) -> list[dict[str, Any]]:
    return [{"url": url, "transport": transport} for url in urls]


@transports
async def test_streams_and_whole_answers_arrive(transport: str) -> None:
    stream = chat_stream("abc")
    async with (
        ScriptedUpstream(lambda r: stream if r.asked_for_stream else json_answer(completion())) as u,
        running_gateway(config(*by(transport, u.url))) as gw,
    ):
        for _ in range(2):
            reply = await gw.post(r0())
            assert reply.content() == "abc"
            assert reply.done
            assert (await gw.post(r0(stream=False))).json()["model"] == "m"
        assert (await gw.post({"model": "m"}, "/v1/rerank")).status == 200


@transports
async def test_a_client_that_leaves_frees_the_engine(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flights = watched_flights(monkeypatch)
    async with (
        ScriptedUpstream([head(200, "sse"), tok("a"), hang()]) as u,
        running_gateway(config(*by(transport, u.url))) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        await client.read_until(b'"content":"a"')
        client.close()
        await asyncio.wait_for(u.last.left.wait(), WAIT_S)
        assert (await flights.ended()).outcome == "cancelled"


@transports
async def test_what_fails_is_tried_elsewhere_or_told(transport: str) -> None:
    async with ScriptedUpstream([rst()]) as bad, ScriptedUpstream(chat_stream()) as good:
        urls = [bad.url, good.url, f"http://127.0.0.1:{unused_port()}"]
        async with running_gateway(config(*by(transport, *urls))) as gw:
            for _ in range(3):
                assert (await gw.post(r0())).done
    async with (
        ScriptedUpstream([head(200, "sse"), tok("a"), rst()]) as u,
        running_gateway(config(*by(transport, u.url))) as gw,
    ):
        reply = await gw.post(r0())
        assert reply.content() == "a"
        assert reply.stream_error is not None
        assert not reply.done


@transports
async def test_a_client_that_does_not_read_holds_the_engine_back_and_loses_nothing(transport: str) -> None:
    piece = "x" * 65_536
    script = [head(200, "sse"), role(), flood(lambda _: tok(piece)), fin("stop"), done(), end()]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(*by(transport, u.url), stream={"buffer": "64KiB"})) as gw,
        connect_slow(gw.port) as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        request = await u.arrived()
        await asyncio.wait_for(request.held_back.wait(), WAIT_S)
        reply = await client.rest()
        assert reply.content() == piece * request.flooded
        assert reply.done


@transports
@pytest.mark.parametrize("timer", ["head", "first_token", "total"])
async def test_its_timers_run_out(transport: str, timer: str) -> None:
    async with (
        ScriptedUpstream([hang()]) as u,
        running_gateway(config(*by(transport, u.url), pool_options={"timeouts": {timer: "60ms"}})) as gw,
    ):
        reply = await gw.post(r0())
        assert reply.status == 504
        assert f"timeouts.{timer}" in reply.error["message"]
