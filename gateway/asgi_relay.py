"""Our uvicorn protocol class: hands the client's transport to the relay.

It is uvicorn's httptools protocol, and offers one thing more: ``scope["extensions"]["weir.relay"]`` is a
``DirectLink``, through which an answer is written to the transport without an await. (The two refer to each other:
whoever gets the scope takes the link out of it.) It also answers in JSON what uvicorn itself answers in plain text, and
bounds the head of a request.

Of uvicorn's settings those that ``server`` never makes have no part here: a root path, a limit of concurrency or of
requests, WebSockets, state of the lifespan, its access log.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn._types import ASGI3Application, ASGIReceiveEvent, HTTPScope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import is_ssl

from .client_link import Flow, HeaderBlock, block
from .errors import BadRequest

LINGER_S = 2.0
FLUSH_S = 60.0
MAX_TRAILERS = 100
_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:", re.IGNORECASE)
_GLANCE_BYTES = 8192
"""So much is looked through faster than the end of a head is found in it."""
_KNOWN_TARGETS = 16  # few, for a client may send large ones


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


class _FlowControl(FlowControl):
    """uvicorn's, with an event only while a client takes nothing: one for each connection would be 800 bytes."""

    read_paused = False
    write_paused = False

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    async def drain(self) -> None:
        if self.write_paused:
            await super().drain()

    def pause_writing(self) -> None:
        if not self.write_paused:
            self.write_paused = True
            self._is_writable_event = asyncio.Event()


class RelayProtocol(HttpToolsProtocol):
    """uvicorn's protocol with the extension ``weir.relay``. Bounds are set by ``configured``.

    Attributes:
        running: The request whose application runs and whose answer is not over; those behind it wait in ``pipeline``.
    """

    # With these in its dictionary too, a connection would have one of its own instead of sharing the keys: 1 kB more
    __slots__ = (
        "_had_body",
        "_head_bytes",
        "_head_tail",
        "_idle_since_s",
        "_idle_timer",
        "_in_body",
        "_in_head",
        "_read_bytes",
        "_refused",
        "_trailer_bytes",
        "running",
    )

    buffer_bytes = 262_144
    header_bytes = 65_536
    cycle: DirectLink
    pipeline: deque[DirectLink]  # type: ignore[assignment]
    app: ASGI3Application
    parser: httptools.HttpRequestParser

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
        self.running: DirectLink | None = None
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
        self.flow = _FlowControl(transport)
        self.scheme = "https" if is_ssl(transport) else "http"
        transport.set_write_buffer_limits(high=self.buffer_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        running, self.running = self.running, None
        if running is not None:
            running.left()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        # What refers to itself is garbage until a collection, and a collection holds every stream up
        self.cycle = None  # type: ignore[assignment]
        self.pipeline.clear()

    def pause_writing(self) -> None:
        super().pause_writing()
        if (running := self.running) is not None:
            running.blocked = True
            if running.source is not None:
                running.source.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        if (running := self.running) is not None:
            running.blocked = False
            if running.source is not None:
                running.source.resume()

    def data_received(self, data: bytes) -> None:
        """uvicorn's, with bounds."""
        if self._refused:
            return
        size_bytes = len(data)
        if not self._in_body and (size_bytes > _GLANCE_BYTES or b"pgrade" in data or b"PGRADE" in data):
            data = _without_upgrade(data, self._head_tail)
            size_bytes = len(data)
        self._had_body = False
        self._read_bytes = size_bytes
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            message = "Invalid HTTP request received."
            self.logger.warning(message)
            self.send_400_response(message)
        except httptools.HttpParserUpgrade:
            self._unsupported_upgrade_warning()
        if self._in_head:
            self._read_head_on(data)
            return
        if self._in_body:
            self._read_body_on(data)
        if len(self.headers) > MAX_TRAILERS:
            self._refuse_trailers()

    def _read_head_on(self, data: bytes) -> None:
        """The head is not whole after this read, of which it may be all or the end."""
        self._head_tail = (self._head_tail + data)[-3:]
        self._head_bytes += len(data)
        if self._head_bytes > self.header_bytes:
            self._refuse_head()

    def _read_body_on(self, data: bytes) -> None:
        """The body is not whole after this read."""
        if self._had_body:
            self._trailer_bytes = 0
            return
        self._trailer_bytes += len(data)
        if self._trailer_bytes > self.header_bytes:
            self._refuse_trailers()

    def on_response_complete(self) -> None:
        """uvicorn's, with one timer for the connection instead of one for each answer."""
        self.running = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._begin(self.pipeline.pop())
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
        if self._refused:
            return
        if not self.cycle.response_complete:
            self.cycle.left()  # nobody may take what there is for the whole request
        self._refuse(BadRequest("connection upgrades are not served", code="invalid_http"))

    # --- what the parser finds

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._in_head = True
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """uvicorn's, straight."""
        self._in_head = False
        self._head_tail = b""
        if self._refused:
            return
        # The reads that held the head held at least all of it: only a large one has to be added up
        if self._head_bytes + self._read_bytes > self.header_bytes and self._head_size() > self.header_bytes:
            self._refuse_head()
            return
        self._in_body = True
        self._trailer_bytes = 0
        headers, self.headers = self.headers, []  # from here on they are trailers, which go nowhere
        parser = self.parser
        http_version = parser.get_http_version()
        path, raw_path, query = _target(self.url)
        before = self.cycle  # None before the first
        cycle = DirectLink(
            self,
            {
                "type": "http",
                "asgi": {"version": "3.0", "spec_version": "2.3"},
                "http_version": http_version,
                "server": None,
                "client": None,
                "scheme": self.scheme,  # type: ignore[typeddict-item]
                "method": parser.get_method().decode("ascii"),
                "root_path": "",
                "path": path,
                "raw_path": raw_path,
                "query_string": query,
                "headers": headers,
                "state": {},
            },
            keep_alive=http_version != "1.0" and parser.should_keep_alive(),
        )
        self.cycle = cycle  # pyright: ignore[reportIncompatibleVariableOverride]
        if b"expect" in dict(headers):
            cycle.waiting_for_100_continue = any(n == b"expect" and v.lower() == b"100-continue" for n, v in headers)
        if not before or before.response_complete:
            self._begin(cycle)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft(cycle)

    def _begin(self, cycle: DirectLink) -> None:
        self.running = cycle
        if self.flow.write_paused:
            cycle.blocked = True
        cycle.scope["extensions"] = {"weir.relay": cycle}  # type: ignore[dict-item]
        task = self.loop.create_task(cycle.run_asgi(self.app))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def on_body(self, body: bytes) -> None:
        self._had_body = True
        cycle = self.cycle
        if self._refused or cycle.response_complete:
            return
        if not cycle.body:
            cycle.body = body
        else:
            if isinstance(cycle.body, bytes):
                cycle.body = bytearray(cycle.body)
            cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        if cycle.news is not None:
            cycle.news.set()

    def on_message_complete(self) -> None:
        self._in_body = False
        cycle = self.cycle
        if self._refused or cycle.response_complete:
            return
        cycle.more_body = False
        if cycle.news is not None:
            cycle.news.set()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's answer to what is not HTTP, as JSON."""
        self._refuse(BadRequest("the request is not valid HTTP/1.1", code="invalid_http"))

    def _head_size(self) -> int:
        return len(self.url) + sum(map(len, chain.from_iterable(self.headers)))

    def _refuse_head(self) -> None:
        message = f"the request's headers are larger than {self.header_bytes} bytes (limits_http.header)"
        self._refuse(BadRequest(message, status=431, code="headers_too_large"))

    def _refuse_trailers(self) -> None:
        self._refuse(BadRequest("the request has more trailers than anybody reads", code="invalid_http"))

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


@functools.lru_cache(_KNOWN_TARGETS)
def _target(url: bytes) -> tuple[str, bytes, bytes]:
    """Returns the path of a request's target, the same as it was sent, and the query."""
    parsed = httptools.parse_url(url)
    raw_path = parsed.path
    path = raw_path.decode("ascii")
    return unquote(path) if "%" in path else path, raw_path, parsed.query or b""


_UvicornHeaders = list[tuple[bytes, bytes]]
_openings: dict[int, tuple[_UvicornHeaders, bytes]] = {}
"""By status: its line and those of uvicorn's own headers, which are a new list each second."""


def _opening(status: int, headers: _UvicornHeaders) -> tuple[_UvicornHeaders, bytes]:
    return headers, STATUS_LINE[status] + block(headers)


def _without_upgrade(data: bytes, tail: bytes) -> bytes:
    """Renames ``Upgrade`` in a request's head: the offer (``h2c``, of Java's client) is declined, the request served.

    The parser would take everything after such a head for another protocol, and lose the body.
    """
    found = (tail + data).find(b"\r\n\r\n")
    end = max(found + 1 - len(tail), 0) if found >= 0 else len(data)
    if data.find(b"pgrade", 0, end) < 0 and data.find(b"PGRADE", 0, end) < 0:
        return data
    return _UPGRADE.sub(b"\r\nx-declined:", data[:end]) + data[end:]
