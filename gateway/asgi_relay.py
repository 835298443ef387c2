"""Our uvicorn protocol class: hands the client's transport to the relay.

It is uvicorn's httptools protocol, and offers one thing more: ``scope["extensions"]["weir.relay"]`` is a
``DirectLink``, through which an answer is written to the transport without an await. It also answers in JSON what
uvicorn itself answers in plain text, and bounds the head of a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from .client_link import Flow, HeaderBlock, block
from .errors import BadRequest

LINGER_S = 2.0


class DirectLink:
    """One answer, written straight to the client's transport; implements ``client_link.ClientLink``."""

    __slots__ = (
        "_chunked",
        "_cycle",
        "_on_leave",
        "_protocol",
        "_transport",
        "extra_headers",
        "flow",
        "gone",
        "started",
    )

    def __init__(self, protocol: RelayProtocol, cycle: RequestResponseCycle) -> None:
        self.gone = False
        self.started = False
        self.flow: Flow | None = None
        self.extra_headers: HeaderBlock = b""
        self._protocol = protocol
        self._cycle = cycle
        self._transport: asyncio.Transport = cycle.transport
        self._chunked = cycle.scope["http_version"] == "1.1"
        self._on_leave: Callable[[], Any] | None = None

    @property
    def blocked(self) -> bool:
        return self._protocol.flow.write_paused

    def watch(self, on_leave: Callable[[], Any]) -> None:
        self._on_leave = on_leave
        if self.gone:
            on_leave()

    def start(self, status: int, headers: HeaderBlock) -> None:
        framing = b"transfer-encoding: chunked\r\n"
        if not self._chunked:  # HTTP/1.0: the end of the body is the end of the connection
            framing = b""
            self._cycle.keep_alive = False
        self._transport.write(self._head(status, headers, framing))

    def write(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def finish(self, data: bytes = b"", trailers: HeaderBlock = b"") -> None:
        if self._chunked:
            end = b"0\r\n%b\r\n" % trailers
            data = b"%x\r\n%b\r\n%b" % (len(data), data, end) if data else end
        self._transport.write(data)
        self._complete()

    def respond(self, status: int, headers: HeaderBlock, body: bytes) -> None:
        head = self._head(status, headers, b"content-length: %d\r\n" % len(body))
        self._transport.write(head if self._cycle.scope["method"] == "HEAD" else head + body)
        self._complete()

    def cut(self) -> None:
        self._on_leave = None
        self._cycle.response_complete = True
        self._protocol.links.discard(self)
        self._transport.abort()

    async def drained(self) -> None:
        """The transport has it already."""

    def left(self) -> None:
        """The connection is gone; called by the protocol."""
        self.gone = True
        if self._on_leave is not None:
            self._on_leave()

    def _head(self, status: int, headers: HeaderBlock, framing: bytes) -> bytes:
        cycle = self._cycle
        self.started = True
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        return b"".join(
            (
                STATUS_LINE[status],
                block(cycle.default_headers),
                headers,
                self.extra_headers,
                framing,
                b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n",
            )
        )

    def _complete(self) -> None:
        """What uvicorn's own cycle does when an answer is complete."""
        cycle = self._cycle
        self._protocol.links.discard(self)
        self._on_leave = None
        cycle.response_complete = True
        cycle.message_event.set()
        if cycle.more_body:
            # An answer before the body was read (413): closing now would reset the connection, and the answer be lost
            asyncio.get_running_loop().call_later(LINGER_S, cycle.transport.close)
        elif not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()


class RelayProtocol(HttpToolsProtocol):
    """uvicorn's protocol with the extension ``weir.relay``. Bounds are set by ``configured``."""

    buffer_bytes = 262_144
    header_bytes = 65_536

    @classmethod
    def configured(cls, *, buffer_bytes: int, header_bytes: int) -> type[RelayProtocol]:
        """Returns the class with these bounds.

        Args:
            buffer_bytes: Written to a client's transport and not yet taken, at which its engine is paused.
            header_bytes: The largest request head.
        """
        return type("RelayProtocol", (cls,), {"buffer_bytes": buffer_bytes, "header_bytes": header_bytes})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.links: set[DirectLink] = set()
        self._in_head = False
        self._head_bytes = 0
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=self.buffer_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for link in tuple(self.links):
            link.left()
        self.links.clear()

    def pause_writing(self) -> None:
        super().pause_writing()
        for link in self.links:
            if link.flow is not None:
                link.flow.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        for link in self.links:
            if link.flow is not None:
                link.flow.resume()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if self._in_head:  # still: all of it was head
            self._head_bytes += len(data)
            if self._head_bytes > self.header_bytes:
                self._refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        scope = self.scope
        if len(self.url) + sum([len(name) + len(value) for name, value in self.headers]) > self.header_bytes:
            self._refuse_head()
            return
        super().on_headers_complete()
        if self.cycle.scope is scope:
            link = DirectLink(self, self.cycle)
            self.links.add(link)
            scope["extensions"] = {"weir.relay": link}  # type: ignore[dict-item]

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's answer to what is not HTTP, as JSON."""
        self._refuse(BadRequest("the request is not valid HTTP/1.1", code="invalid_http"))

    def _refuse_head(self) -> None:
        message = f"the request's headers are larger than {self.header_bytes} bytes (limits_http.header)"
        self._refuse(BadRequest(message, status=431, code="headers_too_large"))

    def _refuse(self, error: BadRequest) -> None:
        if self._refused:
            return
        self._refused = True
        body = error.body(None)
        head = b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (STATUS_LINE[error.status], len(body)) + body)
        self.transport.close()
