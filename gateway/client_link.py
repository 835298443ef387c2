"""The client's side of one request: how an answer gets out, and how its leaving is felt.

``asgi_relay.DirectLink`` writes to the client's transport (our uvicorn protocol); ``AsgiLink`` serves under any other
ASGI server, at the price of an await for each piece.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from starlette.types import Message, Receive, Send

HeaderBlock = bytes
"""Header lines, names in lower case, each with its CRLF: formatted in one go, they cost a third of a list of pairs."""


def block(headers: Iterable[tuple[bytes, bytes]]) -> HeaderBlock:
    """Returns the lines of these headers."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def pairs(headers: HeaderBlock) -> list[tuple[bytes, bytes]]:
    """Returns the headers of these lines."""
    split = [line.partition(b": ") for line in headers.split(b"\r\n")]
    return [(name, value) for name, _, value in split if name]


class Flow(Protocol):
    """Who is told that the client takes no more bytes, or takes them again."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class ClientLink(Protocol):
    """One answer on its way out.

    Attributes:
        gone: The client has left. Everything written since is lost.
        started: The head is out: the status can no longer change.
        blocked: The client does not take its bytes now.
        flow: Who is paused while the client does not take its bytes.
        extra_headers: For whatever head goes out (request id, CORS).
    """

    gone: bool
    started: bool
    flow: Flow | None
    extra_headers: HeaderBlock

    @property
    def blocked(self) -> bool: ...

    def watch(self, on_leave: Callable[[], Any]) -> None:
        """Calls ``on_leave`` once, when the client leaves before the answer is complete."""
        ...

    def start(self, status: int, headers: HeaderBlock) -> None:
        """Sends the head of a body of unknown length."""
        ...

    def write(self, data: bytes) -> None:
        """Sends a piece of it, at once."""
        ...

    def finish(self, data: bytes = b"", trailers: HeaderBlock = b"") -> None:
        """Sends the last piece, and the end."""
        ...

    def respond(self, status: int, headers: HeaderBlock, body: bytes) -> None:
        """Sends a whole answer."""
        ...

    def cut(self) -> None:
        """Breaks the body off, so that the client cannot take it for whole."""
        ...

    async def drained(self) -> None:
        """Returns when everything has been handed to the server."""
        ...


class AsgiLink:
    """A link over plain ASGI messages: a pump task sends, a watcher task receives the disconnect."""

    def __init__(self, receive: Receive, send: Send, buffer_bytes: int) -> None:
        self.gone = False
        self.started = False
        self.flow: Flow | None = None
        self.extra_headers: HeaderBlock = b""
        self._receive = receive
        self._send = send
        self._buffer_bytes = buffer_bytes
        self._queue: deque[Message] = deque()
        self._queued_bytes = 0
        self._paused = False
        self._pump: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def blocked(self) -> bool:
        return self._paused

    def watch(self, on_leave: Callable[[], Any]) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._watch(on_leave))

    def start(self, status: int, headers: HeaderBlock) -> None:
        self.started = True
        self._put({"type": "http.response.start", "status": status, "headers": pairs(headers + self.extra_headers)})

    def write(self, data: bytes) -> None:
        self._put({"type": "http.response.body", "body": data, "more_body": True})

    def finish(self, data: bytes = b"", trailers: HeaderBlock = b"") -> None:
        self._put({"type": "http.response.body", "body": data, "more_body": False})

    def respond(self, status: int, headers: HeaderBlock, body: bytes) -> None:
        self.start(status, headers + b"content-length: %d\r\n" % len(body))
        self.finish(body)

    def cut(self) -> None:
        self._queue.clear()
        # An application that returns without completing its answer makes the server break the connection off.
        if self._watcher is not None:
            self._watcher.cancel()

    async def drained(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        if self._pump is not None:
            await self._pump

    def _put(self, message: Message) -> None:
        self._queue.append(message)
        self._queued_bytes += len(message.get("body", b""))
        if self._queued_bytes > self._buffer_bytes and not self._paused and self.flow is not None:
            self._paused = True
            self.flow.pause()
        if self._pump is None or self._pump.done():
            self._pump = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        while self._queue:
            message = self._queue.popleft()
            await self._send(message)
            self._queued_bytes -= len(message.get("body", b""))
            if self._paused and self._queued_bytes <= self._buffer_bytes // 2 and self.flow is not None:
                self._paused = False
                self.flow.resume()

    async def _watch(self, on_leave: Callable[[], Any]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            continue
        self.gone = True
        on_leave()
