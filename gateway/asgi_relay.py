"""Our uvicorn protocol class: hands the client's transport to the relay.

It is uvicorn's httptools protocol, and offers one thing more: ``scope["extensions"]["weir.relay"]`` is a
``DirectLink``, through which an answer is written to the transport without an await. It also answers in JSON what
uvicorn itself answers in plain text, and bounds the head of a request.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import is_ssl

from .client_link import Flow, HeaderBlock, block
from .errors import BadRequest

LINGER_S = 2.0
FLUSH_S = 60.0
MAX_TRAILERS = 100
_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:", re.IGNORECASE)


class DirectLink:
    """One answer, written straight to the client's transport; implements ``client_link.ClientLink``."""

    __slots__ = (
        "_chunked",
        "_cycle",
        "_on_leave",
        "_protocol",
        "_transport",
        "extra_headers",
        "finished",
        "flow",
        "gone",
        "started",
        "write_chunk",
    )

    def __init__(self, protocol: RelayProtocol, cycle: RequestResponseCycle) -> None:
        self.gone = False
        self.started = False
        self.finished = False
        self.flow: Flow | None = None
        self.extra_headers: HeaderBlock = b""
        self._protocol = protocol
        self._cycle = cycle
        self._transport: asyncio.Transport = cycle.transport
        self._chunked = cycle.scope["http_version"] == "1.1"
        self.write_chunk: Callable[[bytes], object] | None = cycle.transport.write if self._chunked else None
        self._on_leave: Callable[[], Any] | None = None

    @property
    def takes_trailers(self) -> bool:
        return self._chunked

    @property
    def blocked(self) -> bool:
        return self._protocol.flow.write_paused

    def peer_address(self) -> str | None:
        """The client's address, without its port; None if it cannot be told."""
        peer = self._transport.get_extra_info("peername")
        return str(cast(tuple[object, ...], peer)[0]) if isinstance(peer, tuple) and peer else None

    def watch(self, on_leave: Callable[[], Any]) -> None:
        self._on_leave = on_leave
        self._protocol.links.add(self)
        # uvicorn stops reading at a body above 64 KiB; without reading, the client's leaving would not be felt
        self._protocol.flow.resume_reading()
        if self.gone:
            on_leave()

    def start(self, status: int, headers: HeaderBlock) -> None:
        framing = b"transfer-encoding: chunked\r\n"
        if not self._chunked:  # HTTP/1.0: the end of the body is the end of the connection
            framing = b""
            self._cycle.keep_alive = False
        self._write(self._head(status, headers, framing))

    def write(self, data: bytes) -> None:
        if not self.gone:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def finish(self, data: bytes = b"", trailers: HeaderBlock = b"") -> None:
        if self._chunked:
            end = b"0\r\n%b\r\n" % trailers
            data = b"%x\r\n%b\r\n%b" % (len(data), data, end) if data else end
        self._write(data)
        self._complete()

    def respond(self, status: int, headers: HeaderBlock, body: bytes) -> None:
        framing = b"" if status in (204, 304) else b"content-length: %d\r\n" % len(body)
        head = self._head(status, headers, framing)
        self._write(head if self._cycle.scope["method"] == "HEAD" else head + body)
        self._complete()

    def cut(self) -> None:
        self._on_leave = None
        self.finished = True
        self._cycle.response_complete = True
        self._protocol.links.discard(self)
        self._transport.abort()

    async def writable(self) -> None:
        if self._protocol.flow.write_paused and not self.gone:
            await self._protocol.flow.drain()

    async def drained(self) -> None:
        """The transport has it already."""

    def left(self) -> None:
        """The connection is gone; called by the protocol."""
        self.gone = True
        if self.flow is not None:
            self.flow.leave()
        self._cycle.disconnected = True
        self._cycle.scope.pop("extensions", None)
        if self._on_leave is not None:
            self._on_leave()

    def _write(self, data: bytes) -> None:
        if not self.gone:
            self._transport.write(data)

    def _head(self, status: int, headers: HeaderBlock, framing: bytes) -> bytes:
        cycle = self._cycle
        self.started = True
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        if cycle.more_body:
            cycle.keep_alive = False  # what is still to come of the body must not be read as a request
        return b"".join(
            (
                STATUS_LINE[status],
                _block_of(cycle.default_headers),
                headers,
                self.extra_headers,
                framing,
                b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n",
            )
        )

    def _complete(self) -> None:
        """What uvicorn's own cycle does when an answer is complete."""
        cycle = self._cycle
        self.finished = True
        self._on_leave = None
        self._protocol.links.discard(self)
        cycle.scope.pop("extensions", None)
        cycle.response_complete = True
        cycle.message_event.set()
        if self.gone:
            return
        loop = asyncio.get_running_loop()
        if cycle.more_body:
            # An answer before the body was read (413): closing now would reset the connection, and the answer be lost
            loop.call_later(LINGER_S, cycle.transport.close)
        elif not cycle.keep_alive:
            cycle.transport.close()
        if not cycle.keep_alive:
            loop.call_later(FLUSH_S, cycle.transport.abort)  # a client that never takes the rest
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
        self._idle_since_s = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._in_head = False
        self._in_body = False
        self._head_bytes = 0  # in the reads before this one
        self._read_bytes = 0
        self._refused = False
        self._head_tail = b""  # the last bytes of a head that is not whole: its end may be split over reads
        self._had_body = False
        self._trailer_bytes = 0  # in reads without body bytes, since the last one with
        self.headers = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """uvicorn's, without asking the kernel for both addresses of every connection."""
        self.connections.add(self)
        self.transport = transport
        self.flow = FlowControl(transport)
        self.scheme = "https" if is_ssl(transport) else "http"
        transport.set_write_buffer_limits(high=self.buffer_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for link in tuple(self.links):
            link.left()
        self.links.clear()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        # What refers to itself is garbage until a collection, and a collection holds every stream up
        self.cycle = self.scope = None  # type: ignore[assignment]

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
        if not self._in_body:
            data = _without_upgrade(data, self._head_tail)
        self._had_body = False
        self._read_bytes = len(data)
        super().data_received(data)
        self._head_tail = (self._head_tail + data)[-3:] if self._in_head else b""
        if self._in_head:  # still: all of it was head
            self._head_bytes += len(data)
            if self._head_bytes > self.header_bytes:
                self._refuse_head()
        elif self._in_body and not self._had_body:
            self._trailer_bytes += len(data)
            if self._trailer_bytes > self.header_bytes:
                self._refuse(BadRequest("the request has more trailers than anybody reads", code="invalid_http"))
        elif len(self.headers) > MAX_TRAILERS:
            self._refuse(BadRequest("the request has more trailers than anybody reads", code="invalid_http"))

    def on_response_complete(self) -> None:
        """uvicorn's, with one timer for the connection instead of one for each answer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
            return
        self._idle_since_s = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._close_if_idle)

    def _close_if_idle(self) -> None:
        """Ends a connection that asks for nothing; at once, for close() would wait for a client that takes nothing."""
        self._idle_timer = None
        if self.transport.is_closing():
            return
        waited_s = self.loop.time() - self._idle_since_s if self.cycle.response_complete else 0.0
        if waited_s >= self.timeout_keep_alive:
            self.transport.abort()
        else:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive - waited_s, self._close_if_idle)

    def _unsupported_upgrade_warning(self) -> None:
        """An upgrade that ``_without_upgrade`` did not see: the parser has lost the body."""
        extensions = cast(dict[str, DirectLink], self.cycle.scope.get("extensions") or {})
        if "weir.relay" in extensions:
            extensions["weir.relay"].left()  # nobody may take what there is for the whole request
        self._refuse(BadRequest("connection upgrades are not served", code="invalid_http"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        scope = self.scope
        if self._refused:
            return
        # The reads that held the head held at least all of it: only a large one has to be added up
        if self._head_bytes + self._read_bytes > self.header_bytes and self._head_size() > self.header_bytes:
            self._refuse_head()
            return
        self._in_body = True
        super().on_headers_complete()
        self.headers = []  # from here on they are trailers, which go nowhere
        if self.cycle.scope is scope:
            scope["extensions"] = {"weir.relay": DirectLink(self, self.cycle)}  # type: ignore[dict-item]

    def on_body(self, body: bytes) -> None:
        self._had_body = True
        self._trailer_bytes = 0
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        if not self._refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's answer to what is not HTTP, as JSON."""
        self._refuse(BadRequest("the request is not valid HTTP/1.1", code="invalid_http"))

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _refuse_head(self) -> None:
        message = f"the request's headers are larger than {self.header_bytes} bytes (limits_http.header)"
        self._refuse(BadRequest(message, status=431, code="headers_too_large"))

    def _refuse(self, error: BadRequest) -> None:
        if self._refused:
            return
        self._refused = True
        cycle = cast(RequestResponseCycle | None, self.cycle)  # None before the first request
        if cycle is not None and not cycle.response_complete:
            is_its_own = (cycle.more_body or cycle.disconnected) and not cycle.response_started and not self.pipeline
            if not is_its_own:
                cycle.keep_alive = False  # answers come in order: the one before ends, and this one is not given
                if cycle.response_started and cycle.more_body:
                    self.transport.close()
                return
        body = error.body(None)
        head = b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (STATUS_LINE[error.status], len(body)) + body)
        self.transport.close()


_default_headers: tuple[object, HeaderBlock] = (None, b"")


def _block_of(headers: list[tuple[bytes, bytes]]) -> HeaderBlock:
    """The lines of uvicorn's own headers, a new list each second: made once for each."""
    global _default_headers
    if _default_headers[0] is not headers:
        _default_headers = (headers, block(headers))
    return _default_headers[1]


def _without_upgrade(data: bytes, tail: bytes) -> bytes:
    """Renames ``Upgrade`` in a request's head: the offer (``h2c``, of Java's client) is declined, the request served.

    The parser would take everything after such a head for another protocol, and lose the body.
    """
    found = (tail + data).find(b"\r\n\r\n")
    end = max(found + 1 - len(tail), 0) if found >= 0 else len(data)
    if data.find(b"pgrade", 0, end) < 0 and data.find(b"PGRADE", 0, end) < 0:
        return data
    return _UPGRADE.sub(b"\r\nx-declined:", data[:end]) + data[end:]
