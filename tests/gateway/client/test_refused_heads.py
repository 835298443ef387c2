"""A head that is refused is told of like any other request: by a line, in the numbers, and to its client by an id."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import ScriptedUpstream, chat_stream, gate, head, tok
from tests.gateway.client.connections import Connections

CHAT = "/v1/chat/completions"
NOBODY = "http://127.0.0.1:9"
SHORT: dict[str, Any] = {"limits_http": {"read": "200ms", "header": "4KB"}}


@pytest.mark.parametrize(
    ("sent", "status", "code", "method", "path", "operation"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "invalid_http", "", "", "other"),  # TLS
        (b"GET / HTTP/1.1\r\nno header at all\r\n\r\n", 400, "invalid_http", "GET", "/", "other"),
        (b"P", 408, "request_timeout", "", "", "other"),
        (
            b"POST /v1/chat/completions?key=secret HTTP/1.1\r\nhost: x\r\n",
            408, "request_timeout", "POST", CHAT, "chat",
        ),
        (
            b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\nx: " + 5000 * b"x" + b"\r\n\r\n",
            431, "headers_too_large", "POST", "/v1/embeddings", "embeddings",
        ),
        (b"GET /" + 5000 * b"x" + b" HTTP/1.1\r\n\r\n", 431, "headers_too_large", "GET", "/" + 199 * "x", "other"),
    ],
)  # fmt: skip
async def test_a_refused_head_has_a_line_a_number_and_an_id(
    sent: bytes, status: int, code: str, method: str, path: str, operation: str
) -> None:
    async with running_gateway(config(NOBODY, **SHORT)) as gw, gw.connect() as client:
        await client.send(sent)
        reply = await client.reply()
        (line,) = await gw.logs.access(1)
        told = await gw.settled(lambda m: m.total("weir_requests_total") >= 1)
    assert (reply.status, reply.error["code"]) == (status, code)
    assert line["request_id"] == reply.error["weir"]["request_id"] == reply.header("x-request-id")
    assert (line["method"], line["path"], line["operation"]) == (method, path, operation)
    assert (line["status"], line["outcome"], line["attempts"]) == (status, "client_error", 0)
    assert told.total("weir_requests_total", outcome="client_error", operation=operation) == 1


async def test_a_head_that_is_none_is_not_taken_for_the_request_before_it() -> None:
    async with running_gateway(config(NOBODY, **SHORT)) as gw, gw.connect() as client:
        await client.send(request_bytes("GET", "/healthz"))
        assert (await client.reply()).status == 200
        await client.send(b"\x00\x00")
        (line,) = await gw.logs.access(1)
    assert (line["status"], line["method"], line["path"]) == (400, "", "")


async def test_a_refused_head_that_gets_no_answer_of_its_own_has_no_line(connections: Connections) -> None:
    """It came behind a request that runs: its connection ends with that one's answer."""
    may_go = asyncio.Event()
    async with (
        ScriptedUpstream([head(200, "sse"), tok("a"), gate(may_go), *chat_stream("b")[2:]]) as u,
        running_gateway(config(u.url, **SHORT)) as gw,
        gw.connect() as client,
    ):
        await client.send(request_bytes("POST", CHAT, r0()))
        await client.read_until(b'"content":"a"')
        await connections.take_apart(client, b"GET /healthz HTTP/1.1\r\nhost : x\r\n\r\n")
        may_go.set()
        await client.read_until(lambda got: got.endswith(b"0\r\n\r\n"))
        lines = await gw.logs.access(1)
    assert [line["path"] for line in lines] == [CHAT]
