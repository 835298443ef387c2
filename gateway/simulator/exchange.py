"""One HTTP request and its answer over ASGI: body in, JSON or a stream of frames out, and whether the client left."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress

import orjson
from starlette.types import Receive, Scope, Send

from gateway.simulator.closing_protocol import close_after
from gateway.simulator.dialects.protocol import Headers, Reply


class ClientLeft(Exception):
    """The client closed the connection before its request was whole."""


class Exchange:
    """Wraps what ASGI hands to an application for one request.

    Args:
        fixed: Headers of every answer.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, fixed: Headers) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: str = scope["query_string"].decode("latin-1")
        self._scope = scope
        self._fixed = fixed
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

    async def reply(self, reply: Reply) -> None:
        """Sends a whole answer; without its body to a HEAD."""
        data = _data(reply)
        headers = [*self._fixed, ("content-length", str(len(data))), *reply.headers]
        if data and reply.content_type:
            headers.append(("content-type", reply.content_type))
        await self._send({"type": "http.response.start", "status": reply.status, "headers": _encoded(headers)})
        await self._send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else data})

    async def start_stream(self, media_type: str, headers: Headers, *, closes: bool) -> None:
        """Sends the head of a stream at once; ``closes``: the connection ends with it."""
        if closes:
            close_after(self._scope)
        sent = _encoded([*self._fixed, ("content-type", media_type), *headers])
        await self._send({"type": "http.response.start", "status": 200, "headers": sent})

    async def reply_as_stream(self, reply: Reply, headers: Headers) -> None:
        """Sends a whole answer as a stream is sent: nobody says how long it is."""
        await self.start_stream(reply.content_type, headers, closes=False)
        await self.write(_data(reply), last=True)

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """Sends a piece of the stream; waits while the client reads too slowly."""
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})


def _encoded(headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers]


def _data(reply: Reply) -> bytes:
    return reply.body if isinstance(reply.body, bytes) else orjson.dumps(reply.body)
