"""Clients that take nothing: their engine is held back, and little waits for them here."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import cast

import pytest

from gateway import server
from gateway.asgi_relay import RelayProtocol
from tests.fakes.flights import watched_flights
from tests.fakes.gateway import config, running_gateway
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import (
    ScriptedUpstream,
    Step,
    chat_stream,
    done,
    end,
    eventually,
    fin,
    flood,
    head,
    json_answer,
    raw,
    role,
    tok,
)
from tests.fakes.slow_client import connect_slow

CHAT = "/v1/chat/completions"
BUFFER_BYTES = 65_536
READ_BYTES = 262_144
"""What one read from an engine may bring: asyncio's limit, which is also uvloop's."""
PIECE = "x" * 65_536
ENDLESS = 1000
"""Pieces that no kernel's buffers hold."""


def stream(pieces: int) -> list[Step]:
    return [head(200, "sse"), role(), *[tok(PIECE)] * pieces, fin("stop"), done(), end()]


def passed_on(pieces: int) -> list[Step]:
    return [head(200, "json"), *[raw(PIECE.encode())] * pieces, end()]


class Waiting:
    """What waits in the server for its clients."""

    def __init__(self) -> None:
        self.transports: list[asyncio.Transport] = []

    @property
    def bytes(self) -> list[int]:
        return [transport.get_write_buffer_size() for transport in self.transports]


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    seen = Waiting()

    class Seen(RelayProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made = cast("asyncio.Transport", transport)
            super().connection_made(made)
            seen.transports.append(made)

    monkeypatch.setattr(server, "RelayProtocol", Seen)
    return seen


FORMS = {
    "stream": (CHAT, r0(), stream),
    "passed on": ("/v1/rerank", {"model": "m"}, passed_on),
}


@pytest.mark.parametrize("form", FORMS)
async def test_a_client_that_does_not_read_costs_its_buffer_and_one_read(form: str, waiting: Waiting) -> None:
    path, body, script = FORMS[form]
    async with (
        ScriptedUpstream(script(ENDLESS)) as u,
        running_gateway(config(u.url, stream={"buffer": "64KiB"})) as gw,
        connect_slow(gw.port) as client,
    ):
        await client.send(request_bytes("POST", path, body))
        request = await u.arrived()
        await asyncio.wait_for(request.held_back.wait(), WAIT_S)
        for _ in range(20):  # turns of the loop in which something that flows on would be seen
            await asyncio.sleep(0)
        assert BUFFER_BYTES < waiting.bytes[0] <= BUFFER_BYTES + READ_BYTES + 1024


async def test_ten_of_them_cost_ten_times_that(waiting: Waiting) -> None:
    async with (
        ScriptedUpstream(stream(ENDLESS)) as u,
        running_gateway(config(u.url, stream={"buffer": "64KiB"})) as gw,
        AsyncExitStack() as stack,
    ):
        for _ in range(10):
            client = await stack.enter_async_context(connect_slow(gw.port))
            await client.send(request_bytes("POST", CHAT, r0()))
        await u.arrived(10)
        await eventually(lambda: all(request.held_back.is_set() for request in u.requests))
        assert sum(waiting.bytes) <= 10 * (BUFFER_BYTES + READ_BYTES + 1024)
        assert (await gw.get("/healthz")).status == 200, "they keep nobody else waiting"


async def test_a_client_that_reads_again_gets_everything(waiting: Waiting) -> None:
    async with (
        ScriptedUpstream([head(200, "json"), flood(lambda _: raw(PIECE.encode())), end()]) as u,
        running_gateway(config(u.url, stream={"buffer": "64KiB"})) as gw,
        connect_slow(gw.port) as client,
    ):
        await client.send(request_bytes("POST", "/v1/rerank", {"model": "m"}))
        request = await u.arrived()
        await asyncio.wait_for(request.held_back.wait(), WAIT_S)
        reply = await client.rest()
        assert reply.whole
        assert len(reply.body) == request.flooded * len(PIECE)
        await eventually(lambda: waiting.bytes[0] == 0)


BIG = json_answer({"object": "list", "data": ["x" * 65_536] * 256})
"""An answer that a client's socket does not hold."""
ASK_FOR_BIG = request_bytes("POST", "/v1/embeddings", {"model": "m", "input": "x"})


async def test_a_client_that_left_its_last_answer_unread_is_held_back_from_the_first_byte(waiting: Waiting) -> None:
    """The transport was paused before the stream began, and says so only once."""
    async with (
        ScriptedUpstream(BIG, stream(ENDLESS)) as u,
        running_gateway(config(u.url, stream={"buffer": "64KiB"})) as gw,
        connect_slow(gw.port) as client,
    ):
        await client.send(ASK_FOR_BIG + request_bytes("POST", CHAT, r0()))
        await eventually(lambda: waiting.bytes != [] and waiting.bytes[0] > BUFFER_BYTES)
        before = waiting.bytes[0]
        for _ in range(5):  # time in which the second request could be served
            await gw.get("/healthz")
        if len(u.requests) > 1:
            await asyncio.wait_for(u.last.held_back.wait(), WAIT_S)
        assert waiting.bytes[0] <= before + BUFFER_BYTES + 2 * READ_BYTES


async def test_it_is_served_once_it_has_taken_that_answer(waiting: Waiting) -> None:
    async with (
        ScriptedUpstream(BIG, chat_stream("ab")) as u,
        running_gateway(config(u.url, stream={"buffer": "64KiB"})) as gw,
        connect_slow(gw.port) as client,
    ):
        await client.send(ASK_FOR_BIG + request_bytes("POST", CHAT, r0()))
        await eventually(lambda: waiting.bytes != [] and waiting.bytes[0] > BUFFER_BYTES)
        await client.rest()
        assert client.received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        await gw.outcome("ok", 2)


async def test_if_it_leaves_instead_both_requests_are_closed(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    flights = watched_flights(monkeypatch)
    async with (
        ScriptedUpstream(BIG, stream(ENDLESS)) as u,
        running_gateway(config(u.url, stream={"buffer": "64KiB"})) as gw,
    ):
        async with connect_slow(gw.port) as client:
            await client.send(ASK_FOR_BIG + request_bytes("POST", CHAT, r0()))
            await eventually(lambda: len(flights.opened) == 2)
            client.reset()
            await flights.ended(2)
        assert flights.closed[-1].outcome == "cancelled"
        await gw.at_rest()


async def test_a_client_that_reads_nothing_gets_no_keep_alives_either(waiting: Waiting) -> None:
    async with (
        ScriptedUpstream(stream(ENDLESS)) as u,
        running_gateway(config(u.url, stream={"buffer": "64KiB", "keepalive": "10ms"})) as gw,
        connect_slow(gw.port) as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        request = await u.arrived()
        await asyncio.wait_for(request.held_back.wait(), WAIT_S)
        before = waiting.bytes[0]
        await asyncio.sleep(0.15)  # several periods: the stimulus
        assert waiting.bytes[0] == before
