"""A request's way to its client under our uvicorn protocol: an answer is written to the transport without an await."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from uvicorn._types import ASGIReceiveEvent, HTTPScope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from .client_link import Flow, HeaderBlock, block

if TYPE_CHECKING:
    from .asgi_relay import RelayProtocol

LINGER_S = 2.0
FLUSH_S = 60.0


class DirectLink(RequestResponseCycle):
    """One request and its answer, written straight to the client's transport; implements ``client_link.ClientLink``.

    To applications that do not know it, it is uvicorn's cycle of ``receive`` and ``send``.
    """

    gone = False
    started = False
    finished = False
    blocked = False
    takes_trailers = True  # and chunks: HTTP/1.1
    source: Flow | None = None
    extra_headers: HeaderBlock = b""
    write_chunk: Callable[[bytes], object] | None = None
    _on_leave: Callable[[], Any] | None = None
    _end_told = False
    news: asyncio.Event | None = None  # what ``receive`` waits for

    # uvicorn's own
    disconnected = False
    waiting_for_100_continue = False
    more_body = True
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0
    access_log = False
    logger = logging.getLogger("uvicorn.error")
    body: bytes | bytearray = b""  # type: ignore[assignment]

    def __init__(self, protocol: RelayProtocol, scope: HTTPScope, *, keep_alive: bool) -> None:
        """Without uvicorn's: what most requests never change is the class's."""
        self._protocol = protocol
        self.scope = scope
        self.keep_alive = keep_alive
        self.transport = transport = protocol.transport
        self.flow = protocol.flow
        self.default_headers = protocol.server_state.default_headers
        if scope["http_version"] == "1.1":
            self.write_chunk = transport.write
        else:
            self.takes_trailers = False

    # --- the request

    def take_body(self) -> bytes | None:
        """Returns what the first ``receive`` would return at once, if that is the whole body."""
        if self.more_body or self.waiting_for_100_continue or self.gone:
            return None
        self._end_told = True
        if self.flow.read_paused:
            self.flow.resume_reading()
        body, self.body = self.body, b""
        return bytes(body)

    async def receive(self) -> ASGIReceiveEvent:
        """uvicorn's, with an event only while somebody waits for it."""
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
            if not self.body and (self.more_body or self._end_told):
                if self.news is None:
                    self.news = asyncio.Event()
                await self.news.wait()
                self.news = None
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        self._end_told = not self.more_body
        body, self.body = self.body, b""
        return {"type": "http.request", "body": bytes(body), "more_body": self.more_body}

    def peer_address(self) -> str | None:
        """The client's address, without its port; None if it cannot be told."""
        peer = self.transport.get_extra_info("peername")
        return str(cast(tuple[object, ...], peer)[0]) if isinstance(peer, tuple) and peer else None

    def watch(self, on_leave: Callable[[], Any]) -> None:
        self._on_leave = on_leave
        # Reading stops at a body above 64 KiB; without reading, the client's leaving would not be felt
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.gone:
            on_leave()

    # --- the answer

    def start(self, status: int, headers: HeaderBlock) -> None:
        framing = b"transfer-encoding: chunked\r\n"
        if not self.takes_trailers:  # HTTP/1.0: the end of the body is the end of the connection
            framing = b""
            self.keep_alive = False
        self._write(self._head(status, headers, framing))

    def write(self, data: bytes) -> None:
        if not self.gone:
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self.takes_trailers else data)

    def finish(self, data: bytes = b"", trailers: HeaderBlock = b"") -> None:
        if self.takes_trailers:
            end = b"0\r\n%b\r\n" % trailers
            data = b"%x\r\n%b\r\n%b" % (len(data), data, end) if data else end
        self._write(data)
        self._complete()

    def respond(self, status: int, headers: HeaderBlock, body: bytes) -> None:
        framing = b"" if status in (204, 304) else b"content-length: %d\r\n" % len(body)
        head = self._head(status, headers, framing)
        if not self.gone:
            self.transport.write(head if self.scope["method"] == "HEAD" else head + body)
        self._complete()

    def cut(self) -> None:
        self._on_leave = None
        self.finished = self.response_complete = True
        if self._protocol.running is self:
            self._protocol.running = None
        self.transport.abort()

    async def writable(self) -> None:
        if self.flow.write_paused and not self.gone:
            await self.flow.drain()

    async def drained(self) -> None:
        """The transport has it already."""

    def left(self) -> None:
        """The connection is gone; called by the protocol."""
        self.gone = self.disconnected = True
        if self.source is not None:
            self.source.leave()
        if self.news is not None:
            self.news.set()
        on_leave, self._on_leave = self._on_leave, None
        if on_leave is not None:
            on_leave()

    @property
    def message_event(self) -> asyncio.Event:  # type: ignore[override]
        """What uvicorn sets when there is something new."""
        return self.news or asyncio.Event()

    def on_response(self) -> None:
        self._protocol.on_response_complete()

    def _write(self, data: bytes) -> None:
        if not self.gone:
            self.transport.write(data)

    def _head(self, status: int, headers: HeaderBlock, framing: bytes) -> bytes:
        self.started = self.response_started = True
        self.waiting_for_100_continue = False
        if self.more_body:
            self.keep_alive = False  # what is still to come of the body must not be read as a request
        opening = _openings.get(status)
        if opening is None or opening[0] is not self.default_headers:
            opening = _openings[status] = _opening(status, self.default_headers)
        return b"%b%b%b%b%b" % (
            opening[1],
            headers,
            self.extra_headers,
            framing,
            b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n",
        )

    def _complete(self) -> None:
        """What uvicorn's own cycle does when an answer is complete."""
        self.finished = self.response_complete = True
        self._on_leave = None
        if self.news is not None:
            self.news.set()
        if self.gone:
            return
        if not self.keep_alive:
            self._close_in_time()
        self._protocol.on_response_complete()

    def _close_in_time(self) -> None:
        loop = self._protocol.loop
        if self.more_body:
            # An answer before the body was read (413): closing now would reset the connection, and the answer be lost
            loop.call_later(LINGER_S, self.transport.close)
        else:
            self.transport.close()
        loop.call_later(FLUSH_S, self.transport.abort)  # a client that never takes the rest


_UvicornHeaders = list[tuple[bytes, bytes]]
_openings: dict[int, tuple[_UvicornHeaders, bytes]] = {}
"""By status: its line and those of uvicorn's own headers, which are a new list each second."""


def _opening(status: int, headers: _UvicornHeaders) -> tuple[_UvicornHeaders, bytes]:
    return headers, STATUS_LINE[status] + block(headers)
