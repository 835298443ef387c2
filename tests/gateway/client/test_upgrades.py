"""Clients that offer an upgrade (Java's offers h2c with every request): the engine sees what was sent, and no more."""

from __future__ import annotations

import pytest

from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import Reply, chunked, r0, request_bytes
from tests.fakes.scripted import ScriptedUpstream, chat_stream, completion, json_answer
from tests.gateway.client.connections import Connections

CHAT = "/v1/chat/completions"
PLAIN = r0(stream=False)
OFFER = [("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c"), ("http2-settings", "AAMAAABkAAQAAP__")]
INNER = b"DELETE /v1/files/smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
ANSWER = completion("hello")


def parts_of(request: bytes) -> tuple[bytes, bytes]:
    edge = request.index(b"\r\n\r\n") + 4
    return request[:edge], request[edge:]


def asked(u: ScriptedUpstream) -> list[str]:
    return [f"{request.method} {request.target}" for request in u.requests]


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("coding", ["length", "chunked"])
@pytest.mark.parametrize("name", ["upgrade", "Upgrade", "UPGRADE"])
async def test_a_request_that_offers_an_upgrade_is_served_and_so_is_the_next(
    name: str, coding: str, apart: bool, connections: Connections
) -> None:
    headers = [(name if key == "upgrade" else key, value) for key, value in OFFER]
    request = request_bytes("POST", CHAT, PLAIN, headers)
    if coding == "chunked":
        body = parts_of(request)[1]
        request = request_bytes("POST", CHAT, chunked(body), [*headers, ("transfer-encoding", "chunked")])
    async with ScriptedUpstream(json_answer(ANSWER)) as u, running_gateway(config(u.url)) as gw:
        async with gw.connect() as client:
            await connections.take_apart(client, *(parts_of(request) if apart else (request,)))
            assert (await client.reply()).json()["choices"] == ANSWER["choices"]
            client.reads.clear()
            await client.send(request_bytes("POST", CHAT, r0(stream=False, seed=2)))
            assert (await client.reply()).json()["choices"] == ANSWER["choices"]
        assert asked(u) == [f"POST {CHAT}"] * 2
        assert [sent.json().get("seed") for sent in u.requests] == [None, 2]
        assert [sent.json()["messages"] for sent in u.requests] == [PLAIN["messages"]] * 2
        assert all(sent.header("upgrade") is None for sent in u.requests)


async def test_a_stream_that_offers_an_upgrade_is_served() -> None:
    async with ScriptedUpstream(chat_stream("abc")) as u, running_gateway(config(u.url)) as gw:
        reply = await gw.post(r0(), headers=OFFER)
        assert reply.content() == "abc"
        assert reply.done


async def test_a_get_that_offers_an_upgrade_is_served_and_so_is_the_next() -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw, gw.connect() as client:
        for headers in (OFFER, []):
            await client.send(request_bytes("GET", "/healthz", headers=headers))
            assert (await client.reply(method="GET")).status == 200
            client.reads.clear()


@pytest.mark.parametrize("headers", [OFFER[:2], []])
@pytest.mark.parametrize("apart", [False, True])
async def test_a_body_that_looks_like_a_request_stays_a_body(
    headers: list[tuple[str, str]], apart: bool, connections: Connections
) -> None:
    request = request_bytes("POST", "/v1/audio/x", INNER, headers)
    async with ScriptedUpstream(json_answer(ANSWER)) as u, running_gateway(config(u.url)) as gw:
        async with gw.connect() as client:
            await connections.take_apart(client, *(parts_of(request) if apart else (request,)))
            assert (await client.reply()).status == 200
            client.reads.clear()
            await client.send(request_bytes("GET", "/healthz"))
            assert (await client.reply(method="GET")).json() == {"status": "ok"}
        assert asked(u) == ["POST /v1/audio/x"]
        assert u.last.body == INNER


def is_refused(reply: Reply) -> bool:
    return (reply.status, reply.error["code"]) == (400, "invalid_http")


async def test_a_head_cut_anywhere_is_served_or_refused_and_nothing_is_made_of_its_body(
    connections: Connections,
) -> None:
    """A name that is cut in two is not seen in time; then nothing of the request may reach an engine."""
    request = request_bytes("POST", "/v1/audio/x", INNER, OFFER[:2])
    top = len(parts_of(request)[0])
    async with ScriptedUpstream(json_answer(ANSWER)) as u, running_gateway(config(u.url)) as gw:
        for edge in range(1, top + 1):
            await gw.get("/v1/things")  # a connection to the engine is open: what is begun arrives at once
            u.requests.clear()
            async with gw.connect() as client:
                await connections.take_apart(client, request[:edge], request[edge:])
                reply = await client.reply()
                if reply.status == 200:
                    assert [(sent.method, sent.body) for sent in u.requests] == [("POST", INNER)], edge
                else:
                    assert is_refused(reply), edge
                    await client.read_until(lambda _: False)
                    assert client.ended, edge
                    assert u.requests == [], edge
                assert client.received.count(b"HTTP/1.1 ") == 1, edge


@pytest.mark.parametrize("back", [0, 1, 2, 3, 4])
async def test_a_body_with_a_line_that_begins_like_the_header_arrives_as_it_is(
    back: int, connections: Connections
) -> None:
    """Also where the head's last bytes come with the body."""
    body = b"--q\r\nUpgrade: me\r\n\r\nupgrade: you\r\n--q--\r\n"
    top, rest = parts_of(request_bytes("POST", "/v1/audio/x", body, [("content-type", "multipart/form-data")]))
    edge = len(top) - back
    async with ScriptedUpstream(json_answer(ANSWER)) as u, running_gateway(config(u.url)) as gw:
        async with gw.connect() as client:
            await connections.take_apart(client, top[:edge], top[edge:] + rest)
            assert (await client.reply()).status == 200
        assert u.last.body == body


async def test_no_end_of_a_body_becomes_a_request(connections: Connections) -> None:
    """What makes the body longer on its way makes its last bytes the next request."""
    body = b"ab\r\nUpgrade: x\r\nGET"
    top, rest = parts_of(request_bytes("POST", "/v1/audio/x", body, [("content-type", "text/plain")]))
    behind = b" /v1/smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
    async with ScriptedUpstream(json_answer(ANSWER)) as u, running_gateway(config(u.url)) as gw:
        async with gw.connect() as client:
            await connections.take_apart(client, top[:-2], top[-2:] + rest + behind)
            await client.read_until(lambda got: got.count(b"HTTP/1.1 ") > 1)
        assert [(sent.target, sent.body) for sent in u.requests] in ([], [("/v1/audio/x", body)])


async def test_a_body_that_comes_in_pieces_with_such_a_line_arrives_as_it_is(connections: Connections) -> None:
    body = b"a\r\nUpgrade: me\r\n\r\nUpgrade: me\r\nb"
    top, rest = parts_of(request_bytes("POST", "/v1/audio/x", body, OFFER))
    async with ScriptedUpstream(json_answer(ANSWER)) as u, running_gateway(config(u.url)) as gw:
        async with gw.connect() as client:
            await connections.take_apart(client, top + rest[:1], rest[1:5], rest[5:])
            assert (await client.reply()).status == 200
        assert u.last.body == body


async def test_of_two_requests_in_one_read_that_both_offer_none_is_answered_wrongly() -> None:
    first, second = (request_bytes("POST", "/v1/audio/x", body, OFFER) for body in (b"one", b"two"))
    async with ScriptedUpstream(json_answer(ANSWER)) as u, running_gateway(config(u.url)) as gw:
        async with gw.connect() as client:
            await client.send(first + second)
            reply = await client.reply()
            assert reply.status == 200 or is_refused(reply)
        assert set(asked(u)) <= {"POST /v1/audio/x"}
        assert [sent.body for sent in u.requests] in ([], [b"one"], [b"one", b"two"])


async def test_connect_is_answered_once() -> None:
    async with running_gateway(config("http://127.0.0.1:9")) as gw, gw.connect() as client:
        await client.send(b"CONNECT weir.test:443 HTTP/1.1\r\nhost: weir.test:443\r\n\r\n")
        assert 400 <= (await client.reply()).status < 500
        await client.read_until(lambda got: got.count(b"HTTP/1.1 ") > 1)
        assert client.received.count(b"HTTP/1.1 ") == 1


async def test_a_head_too_large_that_offers_an_upgrade_is_no_fault(
    connections: Connections, caplog: pytest.LogCaptureFixture
) -> None:
    parts = [b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nh: %b\r\nup" % (b"v" * 800)]
    parts.append(b"grade: h2c\r\nh: %b\r\n\r\n" % (b"v" * 800))
    options = {"header": "1KiB"}
    async with running_gateway(config("http://127.0.0.1:9", limits_http=options)) as gw, gw.connect() as client:
        await connections.take_apart(client, *parts)
        assert (await client.reply()).status == 431
        await client.read_until(lambda _: False)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
