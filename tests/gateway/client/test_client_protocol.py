"""What a client may do on its connection, and what it then finds there."""

from __future__ import annotations

import asyncio

import pytest

from gateway.direct_link import DirectLink
from tests.fakes.gateway import config, running_gateway
from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import (
    Script,
    ScriptedUpstream,
    chat_stream,
    completion,
    end,
    event,
    eventually,
    fin,
    gate,
    hang,
    head,
    in_turn,
    json_answer,
    raw,
    to_json,
    tok,
    wire,
)
from tests.fakes.slow_client import connect_slow
from tests.gateway.client.connections import Connections

CHAT = "/v1/chat/completions"
PLAIN = r0(stream=False)


def never(_: bytes) -> bool:
    """Reads to the end of the connection."""
    return False


def with_trailers(*lines: bytes) -> bytes:
    body = to_json(PLAIN)
    top = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    return top + b"%x\r\n%b\r\n0\r\n" % (len(body), body) + b"".join(b"%b\r\n" % line for line in lines)


# --- trailers


@pytest.mark.parametrize("apart", [False, True])
async def test_trailers_are_no_headers(apart: bool, connections: Connections) -> None:
    request = with_trailers(b"x-request-id: trailer", b"authorization: Bearer trailer", b"cookie: a=b", b"")
    edge = request.index(b"x-request-id") if apart else len(request)
    options = {"forward_authorization": True}
    async with (
        ScriptedUpstream(json_answer(completion())) as u,
        running_gateway(config(u.url, pool_options=options)) as gw,
        gw.connect() as client,
    ):
        await connections.take_apart(client, *filter(None, (request[:edge], request[edge:])))
        reply = await client.reply()
        assert reply.status == 200
        assert reply.header("x-request-id") not in (None, "trailer")
        assert u.last.header("authorization") is None
        assert u.last.json()["messages"] == PLAIN["messages"]
        client.reads.clear()
        await client.send(request_bytes("POST", CHAT, PLAIN, [("authorization", "Bearer mine")]))
        assert (await client.reply()).status == 200
        assert u.last.header("authorization") == b"Bearer mine"


@pytest.mark.parametrize("endless", [b"a: b\r\n" * 200, b"a: b\r\n" * 10_000])
async def test_trailers_without_end_are_refused(endless: bytes) -> None:
    async with ScriptedUpstream(json_answer(completion())) as u, running_gateway(config(u.url)) as gw:
        async with gw.connect() as client:
            await client.send(with_trailers() + endless)
            reply = await client.reply()
            assert (reply.status, reply.error["code"]) == (400, "invalid_http")
            await client.read_until(never)
            assert client.received.count(b"HTTP/1.1 ") == 1
        assert u.requests == []


@pytest.mark.parametrize("start", [b"a: ", b""])
async def test_one_trailer_without_end_is_refused(start: bytes, connections: Connections) -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw, gw.connect() as client:
        await client.send(with_trailers() + start)
        for _ in range(32):
            await connections.take_apart(client, b"x" * 65_536)
            if connections.open == 0 or connections.last.transport.is_closing():
                break
        else:
            pytest.fail("2 MiB of one trailer were taken")
        assert (await client.reply()).status == 400


# --- connections that live long


@pytest.mark.parametrize("path", ["/healthz", CHAT])
async def test_a_connection_keeps_nothing_of_its_answers(path: str, connections: Connections) -> None:
    request = request_bytes("POST", path, PLAIN) if path == CHAT else request_bytes("GET", path)
    async with (
        ScriptedUpstream(json_answer(completion())) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as client,
    ):
        for _ in range(200):
            await client.send(request)
            assert (await client.reply()).status == 200
            client.reads.clear()
        await eventually(lambda: connections.last.running is None)
        assert connections.open == 1


async def test_a_stream_leaves_no_link_behind(connections: Connections) -> None:
    async with ScriptedUpstream(chat_stream()) as u, running_gateway(config(u.url)) as gw, gw.connect() as client:
        for _ in range(20):
            await client.send(request_bytes("POST", CHAT, r0()))
            assert (await client.reply()).done
            client.reads.clear()
        await eventually(lambda: connections.last.running is None)


# --- leaving


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("script", [[hang()], [head(200, "sse"), tok("a"), hang()]])
@pytest.mark.parametrize("leave", ["close", "reset"])
async def test_a_client_that_leaves_after_a_large_body_of_its_own_read_frees_the_engine(
    stream: bool, script: Script, leave: str, connections: Connections
) -> None:
    """The server stops reading at a body above 64 KiB, and would not feel the leaving."""
    body = r0(stream=stream, messages=[{"role": "user", "content": "x" * 300_000}])
    request = request_bytes("POST", CHAT, body)
    edge = request.index(b"\r\n\r\n") + 4
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw, gw.connect() as client:
        await connections.take_apart(client, request[:edge])
        await client.send(request[edge:])
        sent = await u.arrived()
        assert len(sent.body) > 300_000
        client.close() if leave == "close" else client.reset()
        await asyncio.wait_for(sent.left.wait(), WAIT_S)
        await gw.at_rest()


@pytest.mark.parametrize("ending", ["kept", "closed"])
async def test_a_client_that_takes_nothing_is_let_go(
    ending: str, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is over, its connection idle or to be closed; what it never takes is not kept for it."""
    monkeypatch.setattr("gateway.server.CLIENT_IDLE_S" if ending == "kept" else "gateway.direct_link.FLUSH_S", 0.2)
    headers = [] if ending == "kept" else [("connection", "close")]
    script = [head(200, "sse"), *[tok("x" * 65_536)] * 400, hang()]
    options = {"timeouts": {"total": "300ms"}}
    async with (
        ScriptedUpstream(script) as u,
        running_gateway(config(u.url, pool_options=options, stream={"buffer": "64KiB"})) as gw,
        connect_slow(gw.port) as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0(), headers))
        request = await u.arrived()
        await asyncio.wait_for(request.left.wait(), WAIT_S)
        await eventually(lambda: connections.open == 0)
        (line,) = await gw.logs.access(1)
        assert line["outcome"] in ("timeout", "cancelled", "upstream_error")


# --- one answer a request


@pytest.mark.parametrize("path", ["/v1/things", "/v1/rerank", CHAT])
async def test_two_answers_in_one_read_are_not_glued(path: str) -> None:
    def answer(content: str) -> bytes:
        body = to_json(completion(content))
        return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    both = [wire(answer("first") + answer("second")), end()]
    request = request_bytes("GET", path) if path == "/v1/things" else request_bytes("POST", path, PLAIN)
    async with (
        ScriptedUpstream(in_turn(both, json_answer(completion("third")))) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as client,
    ):
        await client.send(request)
        reply = await client.reply()
        assert reply.status == 502 or reply.json()["choices"] == completion("first")["choices"]
        assert b"second" not in client.received
        client.reads.clear()
        await client.send(request)
        assert (await client.reply()).json()["choices"] == completion("third")["choices"]
        assert client.received.count(b"HTTP/1.1 ") == 1


BIG = b'"usage":{"prompt_tokens":1,"completion_tokens":1' + b"0" * 400 + b"}}"
ODD: dict[str, tuple[bool, Script]] = {
    "stream": (
        True,
        [
            head(200, "sse"),
            raw(b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'),
            fin("stop"),
            event(b'{"id":"1","x":NaN,"choices":[],' + BIG),
            event(b"[DONE]"),
            end(),
        ],
    ),
    "whole": (
        False,
        json_answer(b'{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"x":NaN,' + BIG),
    ),
}


@pytest.mark.parametrize("form", ODD)
async def test_counts_that_no_number_holds_make_no_second_answer(form: str) -> None:
    stream, script = ODD[form]
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw, gw.connect() as client:
        await client.send(request_bytes("POST", CHAT, r0(stream=stream)))
        assert (await client.reply()).whole
        await client.send(request_bytes("GET", "/healthz"))
        await client.read_until(b'{"status":"ok"}')
        assert client.received.count(b"HTTP/1.1 ") == 2
        assert client.received.count(b"\r\n0\r\n\r\n") == int(stream)
        first, _, _ = client.received.rpartition(b"HTTP/1.1 200 ")
        assert first.endswith((b"0\r\n\r\n", b"}", b"}\n"))


@pytest.mark.parametrize("stream", [True, False])
async def test_a_fault_after_the_end_of_an_answer_makes_no_second_one(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, respond = DirectLink.finish, DirectLink.respond

    def failing_finish(self: DirectLink, data: bytes = b"", trailers: bytes = b"") -> None:
        finish(self, data, trailers)
        raise RuntimeError("a fault after the end")

    def failing_respond(self: DirectLink, status: int, headers: bytes, body: bytes) -> None:
        respond(self, status, headers, body)
        raise RuntimeError("a fault after the end")

    monkeypatch.setattr(DirectLink, "finish", failing_finish)
    monkeypatch.setattr(DirectLink, "respond", failing_respond)
    script = chat_stream() if stream else json_answer(completion())
    async with ScriptedUpstream(script) as u, running_gateway(config(u.url)) as gw, gw.connect() as client:
        await client.send(request_bytes("POST", CHAT, r0(stream=stream)))
        assert (await client.reply()).whole
        await gw.logs.access(1)
        await client.send(request_bytes("GET", "/healthz"))
        await client.read_until(b'{"status":"ok"}')
        assert client.received.count(b"HTTP/1.1 ") == 2
        assert client.received.count(b"\r\n0\r\n\r\n") == int(stream)


# --- refusals


async def test_a_body_too_large_that_waits_for_leave_is_refused_and_the_connection_ends(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the client then sends its body is its own affair; so nothing after the answer is a request."""
    monkeypatch.setattr("gateway.direct_link.LINGER_S", 0.1)
    headers = [("expect", "100-continue"), ("content-length", "500000")]
    async with (
        ScriptedUpstream(json_answer(completion())) as u,
        running_gateway(config(u.url, limits_http={"body": "1KiB"})) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", CHAT, b"", headers))
        reply = await client.reply()
        assert reply.status == 413
        assert reply.header("connection") == "close"
        assert b" 100 " not in client.received
        await client.send(request_bytes("GET", "/healthz"))
        await client.read_until(never)
        assert client.received.count(b"HTTP/1.1 ") == 1
        await eventually(lambda: connections.open == 0)
        assert u.requests == []


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("refused", ["large", "broken"])
async def test_a_request_behind_a_refused_head_is_not_served(
    refused: str, apart: bool, connections: Connections
) -> None:
    bad = request_bytes("GET", "/healthz", headers=[("h", "v" * 66_000)])
    status = 431
    if refused == "broken":
        bad, status = b"GET /healthz HTTP/1.1\r\nhost : x\r\n\r\n", 400
    behind = request_bytes("POST", CHAT, PLAIN)
    async with ScriptedUpstream(json_answer(completion())) as u, running_gateway(config(u.url)) as gw:
        async with gw.connect() as client:
            if apart:
                await client.send(bad)
                await client.send(behind)
            else:
                await client.send(bad + behind)
            reply = await client.reply()
            assert reply.status == status
            assert reply.header("connection") == "close"
            await client.read_until(never)
            assert client.received.count(b"HTTP/1.1 ") == 1
        await eventually(lambda: connections.open == 0)
        assert u.requests == []


async def test_the_end_of_a_large_body_is_no_part_of_the_head_that_follows_it_in_the_same_read(
    connections: Connections,
) -> None:
    first = request_bytes("POST", CHAT, r0(stream=False, padding="x" * 100_000))
    behind = request_bytes("GET", "/healthz")
    async with (
        ScriptedUpstream(json_answer(completion("mine"))) as u,
        running_gateway(config(u.url, limits_http={"header": "8KiB"})) as gw,
        gw.connect() as client,
    ):
        await client.send(first[:1000])
        await eventually(lambda: connections.open == 1)
        await eventually(lambda: connections.last.running is not None)
        connections.last.data_received(first[1000:] + behind[:20])  # one read, however the kernel would cut it
        await client.send(behind[20:])
        await client.read_until(lambda got: got.count(b"HTTP/1.1 200 ") == 2)
        assert client.received.count(b"HTTP/1.1 200 ") == 2


@pytest.mark.parametrize("refused", ["large", "broken"])
async def test_a_refused_head_behind_a_running_request_does_not_answer_in_its_place(
    refused: str, connections: Connections
) -> None:
    """Answers come in the order of their requests, so the client would take the refusal for the first one's answer."""
    bad = b"GET /healthz HTTP/1.1\r\nhost : x\r\n\r\n"
    if refused == "large":
        bad = request_bytes("GET", "/healthz", headers=[("h", "v" * 66_000)])
    may_go = asyncio.Event()
    async with (
        ScriptedUpstream([gate(may_go), *json_answer(completion("mine"))]) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", CHAT, PLAIN))
        await u.arrived()
        await connections.take_apart(client, bad)
        may_go.set()
        reply = await client.reply()
        assert reply.status in (0, 200)  # none, where the connection is closed at once


async def test_a_refused_head_behind_a_running_stream_writes_nothing_into_it(connections: Connections) -> None:
    may_go = asyncio.Event()
    async with (
        ScriptedUpstream([head(200, "sse"), tok("a"), gate(may_go), tok("b"), *chat_stream("c")[2:]]) as u,
        running_gateway(config(u.url)) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        await client.read_until(b'"content":"a"')
        await connections.take_apart(client, b"GET /healthz HTTP/1.1\r\nhost : x\r\n\r\n")
        may_go.set()
        await client.read_until(lambda got: got.endswith(b"0\r\n\r\n"))
        assert client.received.count(b"HTTP/1.1 ") == 1
