"""Any other ASGI server: slower, but every promise holds. Here uvicorn without our protocol class."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive

from gateway.client_link import AsgiLink, block, pairs
from tests.fakes.flights import watched_flights
from tests.fakes.gateway import config
from tests.fakes.patience import WAIT_S
from tests.fakes.plain_asgi import plain_asgi
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    chat_stream,
    completion,
    done,
    end,
    eof,
    eventually,
    fin,
    flood,
    gate,
    hang,
    head,
    json_answer,
    raw,
    role,
    rst,
    tok,
)
from tests.fakes.slow_client import connect_slow

CHAT = "/v1/chat/completions"
FAILED: object = {"error": {"message": "engine trouble", "code": 500}}

protocols = pytest.mark.parametrize("protocol", ["httptools", "h11"])


@protocols
async def test_a_stream_comes_token_by_token_and_whole(protocol: str) -> None:
    opened = asyncio.Event()
    script = [head(200, "sse"), role(), tok("a"), gate(opened), tok("b"), fin("stop"), done(), end()]
    async with (
        ScriptedUpstream(script) as u,
        plain_asgi(config(u.url), protocol) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        await client.read_until(b'"content":"a"')
        opened.set()
        reply = await client.reply()
        assert reply.content() == "ab"
        assert reply.done
        assert reply.header("x-request-id")
        assert reply.header("x-weir-endpoint") == "m-0"
        assert reply.header("content-type") == "text/event-stream; charset=utf-8"
        await gw.outcome("ok")


@protocols
async def test_a_whole_answer_and_an_error_come_with_their_length(protocol: str) -> None:
    async with (
        ScriptedUpstream(json_answer(completion()), json_answer(FAILED, 400)) as u,
        plain_asgi(config(u.url), protocol) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0(stream=False)))
        reply = await client.reply()
        assert reply.json()["choices"][0]["message"]["content"] == "ab"
        assert reply.header("content-length") == str(len(reply.body))
        assert reply.header("transfer-encoding") is None
        failed = await gw.post(r0(stream=False))
        assert (failed.status, failed.error["message"]) == (400, "engine trouble")


@protocols
async def test_one_connection_serves_one_request_after_another(protocol: str) -> None:
    async with (
        ScriptedUpstream(chat_stream("ab")) as u,
        plain_asgi(config(u.url), protocol) as gw,
        gw.connect() as client,
    ):
        for n in range(1, 4):
            await client.send(request_bytes("POST", CHAT, r0()))
            await client.read_until(lambda data, n=n: data.count(b"0\r\n\r\n") == n)  # type: ignore[misc]
        await gw.outcome("ok", 3)


@protocols
async def test_a_broken_stream_ends_with_an_error_event(protocol: str) -> None:
    async with ScriptedUpstream([head(200, "sse"), tok("a"), rst()]) as u, plain_asgi(config(u.url), protocol) as gw:
        reply = await gw.post(r0())
        assert reply.content() == "a"
        assert reply.stream_error is not None
        assert reply.whole
        assert not reply.done


@protocols
@pytest.mark.parametrize("length", [None, 100])
async def test_what_is_passed_on_is_cut_off_when_it_breaks(protocol: str, length: int | None) -> None:
    script = [head(200, "json", length=length), raw(b'{"half":'), eof()]
    async with ScriptedUpstream(script) as u, plain_asgi(config(u.url), protocol) as gw:
        reply = await gw.post({"model": "m"}, "/v1/rerank")
        assert not reply.whole


@protocols
async def test_what_is_passed_on_arrives(protocol: str) -> None:
    async with ScriptedUpstream(json_answer({"a": 1})) as u, plain_asgi(config(u.url), protocol) as gw:
        assert (await gw.post({"model": "m"}, "/v1/rerank")).json() == {"a": 1}
        assert (await gw.get("/v1/models")).json()["data"][0]["id"] == "m"


@protocols
@pytest.mark.parametrize("phase", ["before the head", "before the first token", "after output", "whole answer"])
async def test_a_client_that_leaves_frees_the_engine(
    protocol: str, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights = watched_flights(monkeypatch)
    scripts: dict[str, Script] = {
        "before the head": [hang()],
        "before the first token": [head(200, "sse"), role(), hang()],
        "after output": [head(200, "sse"), tok("a"), hang()],
        "whole answer": [hang()],
    }
    async with ScriptedUpstream(scripts[phase]) as u, plain_asgi(config(u.url), protocol) as gw:
        async with gw.connect() as client:
            await client.send(request_bytes("POST", CHAT, r0(stream=phase != "whole answer")))
            await u.arrived()
            if phase == "after output":
                await client.read_until(b'"content":"a"')
            client.close()
            await asyncio.wait_for(u.last.left.wait(), WAIT_S)
        assert (await flights.ended()).outcome == "cancelled"
        await gw.at_rest()


@protocols
async def test_a_client_that_leaves_within_its_body_reaches_no_engine(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights = watched_flights(monkeypatch)
    async with ScriptedUpstream(chat_stream()) as u, plain_asgi(config(u.url), protocol) as gw:
        async with gw.connect() as client:
            await client.send(request_bytes("POST", CHAT, r0())[:-5])
            await eventually(lambda: bool(flights.opened))
            client.close()
            assert (await flights.ended()).outcome == "cancelled"
        assert u.requests == []


@protocols
async def test_a_client_that_does_not_read_holds_the_engine_back_and_loses_nothing(protocol: str) -> None:
    piece = "x" * 65_536
    script = [head(200, "sse"), role(), flood(lambda _: tok(piece)), fin("stop"), done(), end()]
    async with (
        ScriptedUpstream(script) as u,
        plain_asgi(config(u.url, stream={"buffer": "64KiB"}), protocol) as gw,
        connect_slow(gw.port) as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        request = await u.arrived()
        await asyncio.wait_for(request.held_back.wait(), WAIT_S)
        reply = await client.rest()
        assert reply.content() == piece * request.flooded
        assert reply.done


@protocols
async def test_a_silent_stream_is_kept_alive(protocol: str) -> None:
    opened = asyncio.Event()
    async with (
        ScriptedUpstream([gate(opened), *chat_stream()]) as u,
        plain_asgi(config(u.url, stream={"keepalive": "30ms"}), protocol) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        await client.read_until(b": keep-alive\n\n")
        opened.set()
        reply = await client.reply()
        assert reply.content() == "ab"
        assert reply.done


@protocols
async def test_an_http_1_0_client_is_served_until_the_connection_ends(protocol: str) -> None:
    async with ScriptedUpstream(chat_stream()) as u, plain_asgi(config(u.url), protocol) as gw, gw.connect() as client:
        await client.send(request_bytes("POST", CHAT, r0()).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        reply = await client.reply()
        assert reply.content() == "ab"
        assert reply.done


@protocols
async def test_trailers_that_do_not_come_are_not_announced(protocol: str) -> None:
    async with ScriptedUpstream(chat_stream()) as u, plain_asgi(config(u.url), protocol) as gw:
        reply = await gw.post(r0(), headers=[("te", "trailers")])
        assert reply.done
        assert reply.header("trailer") is None


async def test_nothing_is_sent_after_the_end_of_an_answer_whose_client_is_slow() -> None:
    """A keep-alive that falls due while the last bytes still wait for the server must not follow them."""
    opened = asyncio.Event()
    sent: list[Message] = []
    async with (
        ScriptedUpstream(chat_stream(), [hang()]) as u,
        plain_asgi(config(u.url, stream={"keepalive": "30ms"}), "httptools") as gw,
    ):
        app = gw.app

        async def send(message: Message) -> None:
            sent.append(message)
            await opened.wait()

        task = asyncio.create_task(app(scope(CHAT), once(request_body(r0())), send))
        await eventually(lambda: bool(sent))
        async with gw.connect() as other:  # two periods, as another stream feels them
            await other.send(request_bytes("POST", CHAT, r0()))
            await other.read_until(lambda data: data.count(b": keep-alive\n\n") >= 3)
        opened.set()
        await task
    assert [message.get("more_body") for message in sent].count(False) == 1
    assert sent[-1]["more_body"] is False


def scope(path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
        "client": ("127.0.0.1", 1),
    }


def request_body(body: object) -> bytes:
    return request_bytes("POST", "/", body).partition(b"\r\n\r\n")[2]


def once(body: bytes) -> Receive:
    """A server's ``receive``: the body, then silence."""
    given = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if given:
            return given.pop()
        await asyncio.Event().wait()
        raise AssertionError

    return receive


def test_a_header_block_and_its_pairs_are_the_same() -> None:
    headers = [(b"a", b"1"), (b"b", b""), (b"c", b"x: y"), (b"a", b"2")]
    assert pairs(block(headers)) == headers
    assert pairs(b"") == []


async def test_a_link_that_was_cut_sends_nothing_more() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    link = AsgiLink(once(b""), send, 1024)
    link.start(200, b"")
    link.write(b"a")
    await link.drained()
    link.write(b"b")
    link.cut()
    await link.drained()
    assert [message.get("body") for message in sent] == [None, b"a"]
