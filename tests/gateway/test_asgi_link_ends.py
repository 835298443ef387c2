"""The link over plain ASGI when the answer, or the client, is at an end: whatever comes after goes nowhere."""

from __future__ import annotations

import asyncio
import gc
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.types import Message

from gateway.app import App
from gateway.client_link import AsgiLink
from gateway.config.file import parse
from tests.fakes.gateway import config
from tests.fakes.patience import WAIT_S
from tests.fakes.plain_asgi import plain_asgi
from tests.fakes.raw_client import r0, request_bytes
from tests.fakes.scripted import ScriptedUpstream, chat_stream, eventually, hang, head, tok

CHAT = "/v1/chat/completions"


class Server:
    """An ASGI server of which the test says how ``send`` ends.

    Attributes:
        sent: The messages that were taken.
        gone: Lets ``receive`` tell of the disconnect.
    """

    def __init__(self, body: bytes = b"", refuse: Callable[[Message], Exception | None] = lambda _: None) -> None:
        self.sent: list[Message] = []
        self.gone = asyncio.Event()
        self._refuse = refuse
        self._unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive(self) -> Message:
        if self._unread:
            return self._unread.pop()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if (refusal := self._refuse(message)) is not None:
            raise refusal
        self.sent.append(message)

    @property
    def bodies(self) -> list[bytes | None]:
        return [message.get("body") for message in self.sent]


def scope() -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": CHAT,
        "raw_path": CHAT.encode(),
        "query_string": b"",
        "headers": [],
    }


def never() -> None:
    raise AssertionError("nobody left")


@pytest.mark.parametrize("end", ["finish", "respond", "cut"])
async def test_nothing_follows_the_end_of_an_answer(end: str) -> None:
    server = Server()
    link = AsgiLink(server.receive, server.send, 1024)
    link.watch(never)
    link.watch(never)
    if end == "respond":
        link.respond(200, b"", b"last")
    else:
        link.start(200, b"")
        link.finish(b"last") if end == "finish" else link.cut()
    assert link.finished
    link.start(200, b"")
    link.write(b": keep-alive\n\n")
    link.finish(b"more")
    link.respond(500, b"", b"more")
    await link.drained()
    assert server.bodies == ([] if end == "cut" else [None, b"last"])


async def test_nothing_is_written_to_a_client_that_has_gone() -> None:
    server = Server()
    link = AsgiLink(server.receive, server.send, 1024)
    left: list[str] = []
    link.watch(lambda: left.append("once"))
    link.watch(lambda: left.append("twice"))
    link.start(200, b"")
    await eventually(lambda: len(server.sent) == 1)
    server.gone.set()
    await eventually(lambda: link.gone)
    link.write(b"a")
    link.finish(b"b")
    await link.drained()
    assert (server.bodies, left) == ([None], ["once"])


async def test_one_who_watches_after_the_client_has_left_is_told_at_once() -> None:
    server = Server(refuse=lambda _: OSError("gone"))
    link = AsgiLink(server.receive, server.send, 1024)
    link.start(200, b"")
    await eventually(lambda: link.gone)
    left: list[str] = []
    link.watch(lambda: left.append("told"))
    assert left == ["told"]


async def test_what_waits_for_the_server_is_held_back_although_nobody_is_paused_yet() -> None:
    taken = asyncio.Event()

    async def send(_: Message) -> None:
        await taken.wait()

    link = AsgiLink(Server().receive, send, 10)
    link.start(200, b"")
    link.write(b"x" * 11)
    assert link.blocked
    taken.set()
    await link.drained()
    assert not link.blocked


@pytest.mark.parametrize("refusal", [OSError("gone"), BrokenPipeError(), RuntimeError("the server's fault")])
@pytest.mark.parametrize("told", [True, False])
async def test_a_server_that_takes_no_more_ends_the_request_and_leaves_no_task_behind(
    refusal: Exception, told: bool
) -> None:
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    async with ScriptedUpstream([head(200, "sse"), tok("a"), tok("b"), hang()]) as u:
        out = io.BytesIO()
        app = App(parse(config(u.url), source="test", environ={}), out)
        body = request_bytes("POST", CHAT, r0()).partition(b"\r\n\r\n")[2]
        server = Server(body, lambda message: refusal if b'"b"' in message.get("body", b"") else None)
        if told:
            server.gone.set()
        await asyncio.wait_for(app(scope(), server.receive, server.send), WAIT_S)
        app.flush()
        assert json.loads(out.getvalue())["outcome"] == "cancelled"
        await app.fleet.aclose()
    gc.collect()
    assert unheard == []


async def test_a_client_that_leaves_with_the_last_byte_fails_nothing() -> None:
    async with ScriptedUpstream(chat_stream()) as u:
        out = io.BytesIO()
        app = App(parse(config(u.url), source="test", environ={}), out)
        body = request_bytes("POST", CHAT, r0()).partition(b"\r\n\r\n")[2]
        server = Server(body, lambda message: OSError() if message.get("more_body") is False else None)
        await asyncio.wait_for(app(scope(), server.receive, server.send), WAIT_S)
        app.flush()
        assert json.loads(out.getvalue())["outcome"] == "ok"
        await app.fleet.aclose()


@pytest.mark.parametrize("protocol", ["httptools", "h11"])
async def test_a_body_that_comes_in_pieces_is_read_whole(protocol: str) -> None:
    """Who watches for the client's leaving must not take what the body's reader waits for."""
    data = request_bytes("POST", CHAT, r0(messages=[{"role": "user", "content": "x" * 300_000}]))
    async with (
        ScriptedUpstream(chat_stream("ab")) as u,
        plain_asgi(config(u.url), protocol) as gw,
        gw.connect() as client,
    ):
        for at in range(0, len(data), 50_000):
            await client.send(data[at : at + 50_000])
            await asyncio.sleep(0)
        reply = await client.reply()
        assert (reply.status, reply.content()) == (200, "ab")
        assert len(u.last.json()["messages"][0]["content"]) == 300_000
