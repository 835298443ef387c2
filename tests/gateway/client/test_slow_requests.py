"""Clients that do not finish what they began to send: none of them holds a connection for ever."""

from __future__ import annotations

import asyncio
import contextlib
import io
from typing import Any

import pytest

from gateway.config.file import parse
from gateway.openai_api import body_patience_s
from gateway.server import start
from tests.fakes.gateway import config, running_gateway
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import RawConnection, chunked, connect, r0, request_bytes
from tests.fakes.scripted import (
    ScriptedUpstream,
    chat_stream,
    done,
    end,
    eventually,
    fin,
    gate,
    hang,
    head,
    in_turn,
    to_json,
    tok,
)
from tests.fakes.slow_client import connect_slow
from tests.gateway.client.connections import Connections

CHAT = "/v1/chat/completions"
SHORT: dict[str, Any] = {"limits_http": {"read": "200ms"}}
REQUEST = request_bytes("POST", CHAT, r0())
HEAD_BYTES = REQUEST.index(b"\r\n\r\n") + 4
CHUNKED = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    + chunked(to_json(r0()))[:-2]
    + b"x-trailer: without end"
)


async def drip(client: RawConnection, byte: bytes) -> None:
    """Sends a byte now and then, until it is stopped."""
    with contextlib.suppress(OSError):
        while True:
            await client.send(byte)
            await asyncio.sleep(0.02)


async def refused(client: RawConnection, dripping: bytes = b"") -> None:
    """Waits for the answer and the end of the connection."""
    dripped = asyncio.create_task(drip(client, dripping)) if dripping else None
    try:
        reply = await client.reply()
    finally:
        if dripped is not None:
            dripped.cancel()
            await asyncio.wait([dripped])
    assert (reply.status, reply.error["code"], reply.error["type"]) == (408, "request_timeout", "timeout_error")
    assert "limits_http.read" in reply.error["message"]
    assert reply.error["weir"]["retryable"]
    assert reply.header("connection") == "close"
    assert reply.header("x-should-retry") is None


# --- the head


@pytest.mark.parametrize(
    ("sent", "dripping"),
    [(b"P", b""), (REQUEST[:40], b""), (REQUEST[: HEAD_BYTES - 1], b""), (REQUEST[: HEAD_BYTES - 2] + b"x: ", b"x")],
)
async def test_a_head_that_does_not_end_is_refused(sent: bytes, dripping: bytes, connections: Connections) -> None:
    async with running_gateway(config("http://127.0.0.1:9", **SHORT)) as gw, gw.connect() as client:
        await client.send(sent)
        await refused(client, dripping)
        await eventually(lambda: connections.open == 0)


async def test_the_head_after_an_answer_is_refused_as_well(connections: Connections) -> None:
    async with (
        ScriptedUpstream(chat_stream()) as u,
        running_gateway(config(u.url, **SHORT)) as gw,
        gw.connect() as client,
    ):
        await client.send(REQUEST)
        assert (await client.reply()).done
        client.reads.clear()
        await client.send(REQUEST[:40])
        await refused(client)
        await eventually(lambda: connections.open == 0)


async def test_the_answer_before_a_head_that_does_not_end_is_given(connections: Connections) -> None:
    opened = asyncio.Event()
    async with (
        ScriptedUpstream([head(200, "sse"), tok("a"), gate(opened), fin("stop"), done(), end()]) as u,
        running_gateway(config(u.url, **SHORT)) as gw,
        gw.connect() as client,
    ):
        await client.send(REQUEST)
        await client.read_until(b'"content":"a"')
        await client.send(REQUEST[:40])
        await eventually(lambda: connections.last._refused)  # pyright: ignore[reportPrivateUsage]
        opened.set()
        assert (await client.reply()).done
        await eventually(lambda: connections.open == 0)
        assert client.received.count(b"HTTP/1.1 ") == 1


async def test_who_takes_no_refusal_is_let_go(connections: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was sent before fills its connection: that can be closed, but is never flushed."""
    monkeypatch.setattr("gateway.asgi_relay.FLUSH_S", 0.2)
    script = [head(200, "sse"), *[tok("x" * 65_536)] * 400, hang()]
    soon, buffer = {"timeouts": {"total": "300ms"}}, {"buffer": "64KiB"}
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url, pool_options=soon, stream=buffer, **SHORT)) as gw,
        connect_slow(gw.port) as client,
    ):
        await client.send(REQUEST)
        await u.arrived()
        protocol = connections.last
        await eventually(lambda: protocol.cycle.response_complete)
        await client.send(REQUEST[:40])
        await eventually(lambda: protocol not in protocol.connections)


async def test_time_in_which_the_client_is_held_back_does_not_count(connections: Connections) -> None:
    """While a request waits behind another, nothing more is read: neither the end of a third one's head."""
    opened = asyncio.Event()
    waits = [head(200, "sse"), tok("a"), gate(opened), fin("stop"), done(), end()]
    async with (
        ScriptedUpstream(in_turn(waits, chat_stream("b"), chat_stream("c"))) as u,
        running_gateway(config(u.url, limits_http={"read": "1s"})) as gw,
        gw.connect() as client,
    ):
        await client.send(REQUEST)
        await client.read_until(b'"content":"a"')
        await client.send(REQUEST + REQUEST[:40])
        protocol = connections.last
        await eventually(lambda: protocol._head_timer is not None)  # pyright: ignore[reportPrivateUsage]
        first = protocol._head_timer  # pyright: ignore[reportPrivateUsage]
        await eventually(lambda: protocol._head_timer is not first)  # pyright: ignore[reportPrivateUsage]
        opened.set()
        await client.read_until(b'"content":"b"')
        await client.send(REQUEST[40:])
        await client.read_until(b'"content":"c"')
        assert client.received.count(b"HTTP/1.1 200 ") == 3


async def test_a_head_in_pieces_is_taken(connections: Connections) -> None:
    async with (
        ScriptedUpstream(chat_stream()) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as client,
    ):
        for _ in range(3):
            await connections.take_apart(client, REQUEST[:20], REQUEST[20:60], REQUEST[60:HEAD_BYTES])
            await client.send(REQUEST[HEAD_BYTES:])
            assert (await client.reply()).done
            client.reads.clear()


async def test_who_says_nothing_at_all_is_let_go(connections: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.server.CLIENT_IDLE_S", 0.2)
    async with running_gateway(config("http://127.0.0.1:9")) as gw, gw.connect() as client:
        await eventually(lambda: connections.open == 1)
        await eventually(lambda: connections.open == 0)
        assert client.received == b""


async def test_who_says_nothing_but_line_ends_is_let_go(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.server.CLIENT_IDLE_S", 0.2)
    async with running_gateway(config("http://127.0.0.1:9")) as gw, gw.connect() as client:
        await client.send(b"\r\n")
        await eventually(lambda: connections.open == 1)
        await eventually(lambda: connections.open == 0)


async def test_the_end_of_idleness_does_not_end_a_head_that_comes(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.server.CLIENT_IDLE_S", 0.1)
    async with running_gateway(config("http://127.0.0.1:9", **SHORT)) as gw, gw.connect() as client:
        await client.send(REQUEST[:40])
        await refused(client)


async def test_whole_requests_start_no_timer(connections: Connections) -> None:
    async with ScriptedUpstream(chat_stream()) as u, running_gateway(config(u.url)) as gw, gw.connect() as client:
        for _ in range(3):
            await client.send(REQUEST)
            assert (await client.reply()).done
            client.reads.clear()
            assert connections.last._head_timer is None  # pyright: ignore[reportPrivateUsage]


# --- the body


@pytest.mark.parametrize("sent", [REQUEST[:HEAD_BYTES], REQUEST[:-1], CHUNKED])
@pytest.mark.parametrize("dripping", [b"", b" "])
async def test_a_body_that_does_not_end_is_refused_and_counted(
    sent: bytes, dripping: bytes, connections: Connections
) -> None:
    if dripping and sent is not CHUNKED:
        sent = sent.replace(b"content-length: ", b"content-length: 9")
    async with running_gateway(config("http://127.0.0.1:9", **SHORT)) as gw:
        async with gw.connect() as client:
            await client.send(sent)
            await refused(client, dripping)
        metrics = await gw.outcome("client_error")
        assert metrics.total("weir_requests_total") == 1
        (line,) = await gw.logs.access(1)
        assert (line["outcome"], line["status"]) == ("client_error", 408)


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_a_client_that_leaves_while_it_sends_is_no_slow_one(end: str) -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        async with gw.connect() as client:
            await client.send(REQUEST[:-1])
            await gw.settled(lambda m: m.total("weir_client_connections") >= 1)
            client.close() if end == "close" else client.reset()
        (line,) = await gw.logs.access(1)
        assert line["outcome"] == "cancelled"


async def test_a_body_in_pieces_is_taken(connections: Connections) -> None:
    async with ScriptedUpstream(chat_stream()) as u, running_gateway(config(u.url)) as gw, gw.connect() as client:
        await connections.take_apart(client, REQUEST[:HEAD_BYTES], REQUEST[HEAD_BYTES:-2], REQUEST[-2:])
        assert (await client.reply()).done


def test_a_client_may_take_its_time_for_each_mebibyte() -> None:
    mib = 2**20
    assert [body_patience_s(60.0, size) for size in (0, 1, mib - 1, mib, 5 * mib + 1)] == [60, 60, 60, 120, 360]


# --- operators


@pytest.mark.parametrize("sent", [b"GET /metrics HTTP/1.1\r\nhost: x\r\n", b"GET /met"])
async def test_the_admin_listener_has_the_same_bounds(sent: bytes) -> None:
    text = config("http://127.0.0.1:9", listen="127.0.0.1:0", admin={"listen": "127.0.0.1:0"}, **SHORT)
    server = await start(parse(text, source="test", environ={}), io.BytesIO())
    try:
        assert server.admin_port is not None
        async with connect(server.admin_port) as client:
            await client.send(sent)
            await refused(client)
    finally:
        await server.stop()


# --- how many there are


async def test_open_connections_are_told(connections: Connections) -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw:
        async with gw.connect() as one, gw.connect():
            await one.send(REQUEST[:40])
            read = await gw.settled(lambda m: m.total("weir_client_connections") == 3)  # this one too
            assert read.values("weir_client_connections") == [3]
        async with asyncio.timeout(WAIT_S):
            await gw.settled(lambda m: m.total("weir_client_connections") == 1)
