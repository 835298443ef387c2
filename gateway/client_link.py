"""The client's side of one request: how an answer gets out, and how its leaving is felt.

``direct_link.DirectLink`` writes to the client's transport (our uvicorn protocol); ``AsgiLink`` serves under any other
ASGI server, at the price of an await for each piece.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from starlette.types import Message, Receive, Send

log = logging.getLogger("weir.client")

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

    def leave(self) -> None:
        """The client has left: nothing more may be written."""
        ...


class ClientLink(Protocol):
    """One answer on its way out.

    What is called once the answer is finished, or the client gone, does nothing: a timer may fire late.

    Attributes:
        takes_trailers: Whether ``finish`` can send trailers; else none may be announced.
        gone: The client has left. Everything written since is lost.
        started: The head is out: the status can no longer change.
        finished: The last byte has been handed over, or the body was cut off.
        blocked: The client does not take its bytes now.
        source: Who is paused while the client does not take its bytes.
        write_chunk: Takes a piece that has its chunk framing already, until ``flow.leave()``; None where there is none.
        extra_headers: For whatever head goes out (request id, CORS).
    """

    gone: bool
    started: bool
    finished: bool
    source: Flow | None
    write_chunk: Callable[[bytes], object] | None
    extra_headers: HeaderBlock

    @property
    def takes_trailers(self) -> bool: ...

    @property
    def blocked(self) -> bool: ...

    def take_body(self) -> bytes | None:
        """Returns the request's whole body if it has come, to be asked once; else it is to be received."""
        ...

    def watch(self, on_leave: Callable[[], Any]) -> None:
        """Calls ``on_leave`` once, when the client leaves before the answer is finished; at once if it has left.

        To be called when the request begins, and again when its body has been received: until then a server's
        ``receive`` belongs to the body's reader, who feels the leaving as well.

        ``on_leave`` is the request's own ``task.cancel``. ``gone`` is set before, so that whoever catches the
        ``CancelledError`` can tell the two apart: ``gone``, and the request ends as ``cancelled``, its cancellation
        taken back (``uncancel``); not ``gone``, and it is the server that ends the request, and the client can still
        be told. After ``finish``, ``respond`` or ``cut`` the task is never cancelled from here.
        """
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

    async def writable(self) -> None:
        """Returns when the client takes bytes again."""
        ...

    async def drained(self) -> None:
        """Returns when everything has been handed to the server."""
        ...


class AsgiLink:
    """A link over plain ASGI messages: a pump task sends, a watcher task receives the disconnect."""

    takes_trailers = False

    def __init__(self, receive: Receive, send: Send, buffer_bytes: int) -> None:
        self.gone = False
        self.started = False
        self.finished = False
        self.source: Flow | None = None
        self.write_chunk: Callable[[bytes], object] | None = None
        self.extra_headers: HeaderBlock = b""
        self._receive = receive
        self._send = send
        self._buffer_bytes = buffer_bytes
        self._queue: deque[Message] = deque()
        self._queued_bytes = 0
        self._paused = False
        self._pump: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._on_leave: Callable[[], Any] | None = None

    @property
    def blocked(self) -> bool:
        return self._paused

    def take_body(self) -> None:
        """Only ``receive`` has it."""

    def watch(self, on_leave: Callable[[], Any]) -> None:
        if self.gone:
            on_leave()
        elif self._on_leave is None:
            self._on_leave = on_leave
        elif self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._watch())

    def start(self, status: int, headers: HeaderBlock) -> None:
        if self._is_over:
            return
        self.started = True
        self._put({"type": "http.response.start", "status": status, "headers": pairs(headers + self.extra_headers)})

    def write(self, data: bytes) -> None:
        if not self._is_over:
            self._put({"type": "http.response.body", "body": data, "more_body": True})

    def finish(self, data: bytes = b"", trailers: HeaderBlock = b"") -> None:
        if not self._is_over:
            self._put({"type": "http.response.body", "body": data, "more_body": False})
        self._finished()

    def respond(self, status: int, headers: HeaderBlock, body: bytes) -> None:
        self.start(status, headers + b"content-length: %d\r\n" % len(body))
        self.finish(body)

    def cut(self) -> None:
        # An application that returns without completing its answer makes the server break the connection off.
        self._queue.clear()
        self._finished()
        if self._watcher is not None:
            self._watcher.cancel()

    async def writable(self) -> None:
        """Nothing of this answer is on its way yet, and the server holds back what the last one left."""

    async def drained(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        if self._pump is not None:
            await self._pump

    @property
    def _is_over(self) -> bool:
        return self.finished or self.gone

    def _finished(self) -> None:
        self.finished = True
        self._on_leave = None

    def _put(self, message: Message) -> None:
        self._queue.append(message)
        self._queued_bytes += len(message.get("body", b""))
        if self._queued_bytes > self._buffer_bytes:
            self._paused = True
            if self.source is not None:
                self.source.pause()
        if self._pump is None or self._pump.done():
            self._pump = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        while self._queue:
            message = self._queue.popleft()
            try:
                await self._send(message)
            except OSError:  # ASGI's word for a client that has left
                self._left()
            except Exception:
                log.exception("the server takes no more of an answer; its client is left without the rest")
                self._left()
            self._queued_bytes -= len(message.get("body", b""))
            if self._paused and self._queued_bytes <= self._buffer_bytes // 2:
                self._paused = False
                if self.source is not None:
                    self.source.resume()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            continue
        self._left()

    def _left(self) -> None:
        self.gone = True
        self._queue.clear()
        on_leave, self._on_leave = self._on_leave, None
        if on_leave is not None:
            on_leave()
