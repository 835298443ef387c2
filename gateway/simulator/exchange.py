"""One HTTP request and its answer over ASGI: body in, JSON or a stream of frames out, and whether the client left."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress

import orjson
from starlette.types import Receive, Scope, Send

from gateway.simulator.wire import Fields


class ClientLeft(Exception):
    """The client closed the connection before its request was whole."""


class Exchange:
    """Wraps what ASGI hands to an application for one request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._receive = receive
        self._send = send

    def header(self, name: str) -> str:
        """Returns the first header of that lower case name, or an empty string."""
        wanted = name.encode()
        return next((value.decode("latin-1") for key, value in self._headers if key == wanted), "")

    async def read(self) -> bytes:
        """Returns the request's body. Raises ``ClientLeft``."""
        body = bytearray()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
            body += message.get("body", b"")
            if not message.get("more_body", False):
                return bytes(body)

    async def run_until_client_leaves(self, work: Coroutine[object, object, None]) -> None:
        """Runs ``work``, and cancels it as soon as the client has closed the connection."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(self._disconnected())
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not task.done():
                task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def reply(self, status: int, body: Fields | bytes, content_type: str = "application/json") -> None:
        """Sends a whole answer."""
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        headers = [(b"content-length", str(len(data)).encode()), (b"content-type", content_type.encode())]
        await self._send({"type": "http.response.start", "status": status, "headers": headers if data else headers[:1]})
        await self._send({"type": "http.response.body", "body": data})

    async def start_stream(self) -> None:
        """Sends the head of an event stream at once."""
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """Sends a piece of the stream; waits while the client reads too slowly."""
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})
