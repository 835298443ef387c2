"""Through a real nginx: tokens come one by one, and the engine feels it when the client leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fakes.gateway import config, running_gateway
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import Reply, r0, request_bytes
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    Step,
    chat_stream,
    done,
    end,
    eof,
    fin,
    gate,
    hang,
    head,
    raw,
    role,
    tok,
    usage,
)
from tests.nginx.real_nginx import needs_nginx, running_nginx

pytestmark = needs_nginx

TOKENS = 20


def gated(count: int) -> tuple[Script, list[asyncio.Event]]:
    """A stream whose engine goes on after each token only when told."""
    gates = [asyncio.Event() for _ in range(count)]
    steps: list[Step] = [head(200, "sse"), role()]
    for number, opened in enumerate(gates):
        steps += [tok(f"<{number}>"), gate(opened)]
    return [*steps, fin("stop"), usage(5, count), done(), end()], gates


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
async def test_every_token_has_arrived_before_the_engine_makes_the_next(version: str, tmp_path: Path) -> None:
    script, gates = gated(TOKENS)
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url)) as gw,
        running_nginx(tmp_path, gw.port) as nginx,
        nginx.connect() as connection,
    ):
        request = request_bytes("POST", "/v1/chat/completions", r0())
        await connection.send(request.replace(b"HTTP/1.1", version.encode(), 1))
        for number, opened in enumerate(gates):
            await connection.read_until(f'"<{number}>"'.encode())
            assert not connection.ended, "the stream ended early"
            opened.set()
        reply = await connection.reply()
    assert reply.content() == "".join(f"<{number}>" for number in range(TOKENS))
    assert reply.done
    assert reply.whole
    assert [data.count(b'"content":"<') for _, data in reply.reads if b'"content":"<' in data] == [1] * TOKENS


async def test_an_http_1_0_client_gets_a_stream_without_chunked_coding(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(chat_stream("abc")) as u,
        running_gateway(config(u.url)) as gw,
        running_nginx(tmp_path, gw.port) as nginx,
    ):
        reply = await nginx.raw(request_bytes("POST", "/v1/chat/completions", r0()).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert reply.status == 200
    assert reply.header("transfer-encoding") is None
    assert reply.content() == "abc"
    assert reply.done


async def test_a_keep_alive_comment_passes_while_the_engine_is_silent(tmp_path: Path) -> None:
    speaks = asyncio.Event()
    script: Script = [head(200, "sse"), role(), gate(speaks), tok("a"), fin("stop"), done(), end()]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url, stream={"keepalive": "100ms"})) as gw,
        running_nginx(tmp_path, gw.port) as nginx,
        nginx.connect() as connection,
    ):
        await connection.send(request_bytes("POST", "/v1/chat/completions", r0()))
        await connection.read_until(lambda got: got.count(b"\n:") >= 2)
        assert b'"content":"a"' not in connection.received
        speaks.set()
        reply = await connection.reply()
    assert reply.content() == "a"
    assert reply.done


async def test_an_event_stream_is_not_compressed_even_if_the_client_asks(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(chat_stream("abc")) as u,
        running_gateway(config(u.url)) as gw,
        running_nginx(tmp_path, gw.port) as nginx,
    ):
        reply: Reply = await nginx.post(r0(), headers=[("accept-encoding", "gzip, br, deflate")])
    assert reply.header("content-type") == "text/event-stream; charset=utf-8"
    assert reply.header("content-encoding") is None
    assert reply.content() == "abc"


async def test_a_stream_that_breaks_ends_in_weirs_error_event(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream([head(200, "sse"), role(), tok("a"), eof()]) as u,
        running_gateway(config(u.url)) as gw,
        running_nginx(tmp_path, gw.port) as nginx,
    ):
        reply = await nginx.post(r0())
    assert reply.content() == "a"
    assert reply.stream_error is not None
    assert not reply.done


LARGE_ANSWER: Script = [head(200, "text"), *[raw(b"x" * 100_000)] * 500, end()]
"""More than the sockets on the way hold."""


async def test_a_client_that_stops_reading_stops_the_engine_and_fills_no_disk(tmp_path: Path) -> None:
    request = request_bytes("POST", "/v1/chat/completions", r0(), [("connection", "close")])
    async with (
        ScriptedUpstream(LARGE_ANSWER) as weir,
        running_nginx(tmp_path, weir.port) as nginx,
        nginx.connect() as stalled,
    ):
        await stalled.send(request)
        first = await weir.arrived()
        await asyncio.wait_for(first.held_back.wait(), WAIT_S)
        # By the time another client has been served as much, nginx would have taken all of the first answer.
        reader, writer = await asyncio.open_connection("127.0.0.1", nginx.port)
        writer.write(request)
        assert len(await reader.read(-1)) > 50_000_000
        writer.close()
        await writer.wait_closed()
        assert not first.finished.is_set()
        assert not [path for path in (tmp_path / "proxy").rglob("*") if path.is_file()]


PHASES: dict[str, tuple[bool, list[Step], bytes]] = {
    "mid-stream": (True, [head(200, "sse"), role(), tok("a"), tok("b"), hang()], b'"content":"b"'),
    "before the first token": (True, [head(200, "sse"), role(), hang()], b""),
    "before the head": (True, [hang()], b""),
    "non-streaming": (False, [hang()], b""),
    "amid a whole answer": (False, [head(200, "json"), raw(b'{"choices":['), hang()], b""),
}


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_client_that_leaves_is_felt_by_the_engine(phase: str, how: str, tmp_path: Path) -> None:
    stream, script, seen = PHASES[phase]
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url)) as gw,
        running_nginx(tmp_path, gw.port) as nginx,
        nginx.connect() as connection,
    ):
        await connection.send(request_bytes("POST", "/v1/chat/completions", r0(stream=stream)))
        request = await u.arrived()
        await connection.read_until(seen)
        if how == "close":
            connection.close()
        else:
            connection.reset()
        await asyncio.wait_for(request.left.wait(), WAIT_S)
        assert not request.finished.is_set()
        await gw.outcome("cancelled")
        await gw.at_rest()
        assert len(u.requests) == 1, "a cancelled request was tried again"
