"""The relay's own transport: pooled HTTP/1.1 on httptools, from the read callback straight to the sink.

No task and no await per request once the connection is open. A read is parsed in C; its body parts are joined and
given on as one piece. TCP_NODELAY is set by the event loop on every connection.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from time import monotonic, perf_counter
from typing import Any, cast

import httptools

from .contract import ResponseHead, Sink, TransportError, WireRequest, closing
from .dialer import Dialer
from .host_header import host_header

MAX_HEAD_BYTES = 65536
_TARGET = re.compile(r"[!-~]+")
_HEADER_LINE = b": ".join
RELEASE_GRACE_S = 1.0
# A body above this is handed to the socket on its own: joining it to its head would copy it once more.
_JOIN_BYTES = 65536
# Request lines are kept for so many targets: an engine is asked for few, unless clients put queries into them.
_MOST_BEGINNINGS = 16

# Body bytes of the read that is being parsed. One list for all connections: it is empty again when the read is done.
_PARTS: list[bytes] = []


class NativeUpstream:
    """Connections to one host and port; implements ``contract.Upstream``."""

    def __init__(self, host: str, port: int, *, tls: ssl.SSLContext | None, idle_s: float) -> None:
        self._dialer = Dialer(host, port)
        self._tls = tls
        self._idle_s = idle_s
        self._host_header = host_header(host, port, tls=tls is not None)
        self._beginnings: dict[tuple[str, str], bytes] = {}  # of requests, by method and target
        self._idle: dict[_Connection, None] = {}  # the one used last at the end; any can be taken out at once
        self._open: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._keeps = idle_s > 0
        self._closed = False

    @property
    def idle_connections(self) -> int:
        return len(self._idle)

    @property
    def open_connections(self) -> int:
        return len(self._open)

    async def send(self, request: WireRequest, sink: Sink, *, connect_timeout_s: float) -> NativeExchange:
        exchange = NativeExchange(sink, self._serialise(request), connect_timeout_s)
        connection = self._take_idle()
        if connection is None:
            connection = await self._connect(connect_timeout_s)
            connection.begin(exchange)
            exchange.data = b""  # only a reused connection is ever asked again
        else:
            exchange.reused = True
            connection.begin(exchange)
        return exchange

    async def aclose(self) -> None:
        self._keeps = False
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for task in tuple(self._tasks):
            task.cancel()
        for connection in tuple(self._open):
            connection.drop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- pool

    def _take_idle(self) -> _Connection | None:
        """The connection used last, so that those not needed grow old and are closed."""
        while self._idle:
            connection, _ = self._idle.popitem()
            if monotonic() - connection.idle_since_s <= self._idle_s and not connection.transport.is_closing():
                return connection
            connection.drop()
        return None

    def keep(self, connection: _Connection) -> None:
        """Takes back a connection whose exchange is over."""
        if not self._keeps:
            connection.drop()
            return
        connection.idle_since_s = monotonic()
        self._idle[connection] = None
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(self._idle_s, self._close_old)

    def forget(self, connection: _Connection) -> None:
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def _close_old(self) -> None:
        self._sweep = None
        now_s = monotonic()
        old: list[_Connection] = []
        for connection in self._idle:
            wait_s = connection.idle_since_s + self._idle_s - now_s
            if wait_s > 0:
                self._sweep = asyncio.get_running_loop().call_later(wait_s, self._close_old)
                break
            old.append(connection)
        for connection in old:
            del self._idle[connection]
            connection.drop()

    # --- connecting

    async def _connect(self, timeout_s: float) -> _Connection:
        try:
            async with asyncio.timeout(timeout_s):
                transport, connection = await self._dialer.connect(lambda: _Connection(self), self._tls)
        except TimeoutError as error:
            raise self._dialer.no_connection(timeout_s) from error
        if self._closed:
            transport.abort()
            raise closing()
        if transport.is_closing():
            raise TransportError("reset", "the engine closed the connection at once", sent=False)
        self._open.add(connection)
        return connection

    def resend(self, exchange: NativeExchange) -> None:
        """Sends once more on a new connection, after a reused one closed before any byte of the answer."""
        task = asyncio.get_running_loop().create_task(self._resend(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        exchange.resending = task

    async def _resend(self, exchange: NativeExchange) -> None:
        try:
            connection = await self._connect(exchange.connect_timeout_s)
        except TransportError as error:
            exchange.fail(error)
        else:
            connection.begin(exchange)
            exchange.data = b""
            if exchange.paused:
                connection.pause()

    def _serialise(self, request: WireRequest) -> bytes | tuple[bytes, bytes]:
        """Returns the request as one piece, or its head and a large body."""
        method, target, headers, body = request
        beginning = self._beginnings.get((method, target)) or self._beginning(method, target)
        size_bytes = len(body)
        length = b"content-length: %d\r\n" % size_bytes if body or method != "GET" else b""
        if size_bytes > _JOIN_BYTES:
            return b"\r\n".join((beginning, *map(_HEADER_LINE, headers), length, b"")), body
        return b"\r\n".join((beginning, *map(_HEADER_LINE, headers), length, body))

    def _beginning(self, method: str, target: str) -> bytes:
        """The lines that all requests of one method and target begin with, without the last line's end."""
        if not _TARGET.fullmatch(target):
            raise TransportError("malformed", "the request target holds a space or a control character", sent=False)
        line = f"{method} {target} HTTP/1.1".encode("ascii")
        beginning = b"%b\r\nhost: %b\r\naccept-encoding: identity" % (line, self._host_header)
        if len(self._beginnings) >= _MOST_BEGINNINGS:
            self._beginnings.clear()
        self._beginnings[method, target] = beginning
        return beginning


class NativeExchange:
    """One request on one connection; implements ``contract.Exchange``.

    Attributes:
        sink: Who is told; None once nobody wants to be.
        data: The request, for as long as it may have to be sent again.
        connection: Where the answer comes; None when there is nothing more of it, or not yet.
        resending: Connects once more.
    """

    # Defaults of the class, not of each exchange: few change them
    connection: _Connection | None = None
    connected_s = 0.0
    sent_s = 0.0
    reused = False
    paused = False
    resending: asyncio.Task[None] | None = None

    def __init__(self, sink: Sink, data: bytes | tuple[bytes, bytes], connect_timeout_s: float) -> None:
        self.sink: Sink | None = sink
        self.data = data
        self.connect_timeout_s = connect_timeout_s

    def pause(self) -> None:
        self.paused = True
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        self.paused = False
        if self.connection is not None:
            self.connection.resume()

    def abort(self) -> None:
        self.sink = None
        if self.resending is not None:
            self.resending.cancel()
        if self.connection is not None:
            self.connection.drop()
            self.connection = None

    def release(self) -> None:
        if self.sink is None:
            return
        self.sink = None
        if self.connection is not None:
            self.connection.end_soon()
        elif self.resending is not None:
            self.resending.cancel()

    def lost_before_any_byte(self) -> bool:
        """The connection closed with nothing said. Returns whether the request is to go out again."""
        if self.sink is None or not self.reused:
            return False
        self.reused = False
        self.connection = None
        return True

    def fail(self, error: TransportError) -> None:
        self.connection = None
        if self.sink is not None:
            self.sink.on_error(error)


class _Connection(asyncio.Protocol):
    """One TCP connection: parses answers, one at a time, and tells the sink of the exchange that it serves."""

    __slots__ = (
        "_bare_bytes",
        "_complete",
        "_deliver",
        "_exchange",
        "_extra_at",
        "_grace",
        "_headers",
        "_in_body",
        "_keep_alive",
        "_parse",
        "_parser",
        "_paused",
        "_upstream",
        "idle_since_s",
        "transport",
    )

    transport: asyncio.Transport

    # The C parser calls list.append itself: a read of many HTTP chunks costs no Python call for each.
    on_body = _PARTS.append

    def __init__(self, upstream: NativeUpstream) -> None:
        self._upstream = upstream
        self._exchange: NativeExchange | None = None
        self._deliver: Any = None  # the sink's on_body, while a body is under way
        self._parser: Any = httptools.HttpResponseParser(self)
        self._parse: Any = self._parser.feed_data
        self._headers: list[tuple[bytes, bytes]] = []  # of the answer, then its trailers
        self._bare_bytes = 0  # in reads without body, since the request or the last body byte
        self._in_body = False  # the final head has come, and the answer is not whole
        self._complete = True  # what comes now belongs to nobody
        self._extra_at: int | None = None
        self._keep_alive = False
        self._paused = False
        self._grace: asyncio.TimerHandle | None = None
        self.idle_since_s = 0.0

    # --- for the exchange

    def begin(self, exchange: NativeExchange) -> None:
        """Sends its request; from now on the answer is its sink's."""
        exchange.connection = self
        exchange.connected_s = perf_counter()
        self._exchange = exchange
        self._headers = []
        self._bare_bytes = 0
        self._complete = False
        data = exchange.data
        if isinstance(data, bytes):
            self.transport.write(data)
        else:
            self.transport.writelines(data)  # one system call
        exchange.sent_s = perf_counter()

    def pause(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self._paused and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    def drop(self) -> None:
        """Closes at once and tells nobody."""
        self._detach()
        self.transport.abort()

    def end_soon(self) -> None:
        """Reads on for a moment without a sink, so that the connection can be used again."""
        self._deliver = None
        self.resume()
        self._grace = asyncio.get_running_loop().call_later(RELEASE_GRACE_S, self.drop)

    def _detach(self) -> None:
        self._exchange = self._deliver = None
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        try:
            self._parse(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._complete:
                self._fail("malformed", "the engine's answer is not HTTP/1.1")
                return
            self._keep_alive = False  # bytes after a whole answer: take it, never use the connection again
        deliver = self._deliver
        if deliver is not None and len(_PARTS) == 1:
            self._bare_bytes = 0
            deliver(_PARTS.pop())  # the usual read of a stream
        else:
            self._take_parts(len(data))

    def _take_parts(self, size_bytes: int) -> None:
        if self._extra_at is not None:
            del _PARTS[self._extra_at :]  # a second answer in the same read belongs to nobody
        exchange = self._exchange
        if exchange is None:
            _PARTS.clear()
            self.transport.abort()  # an answer that nobody asked for, or that nobody wants any more
        elif not _PARTS:
            self._without_body(size_bytes)
        else:
            self._bare_bytes = 0
            piece = b"".join(_PARTS)
            _PARTS.clear()
            sink = exchange.sink
            if sink is not None:
                sink.on_body(piece)
        if self._complete:
            self._finish()

    def _without_body(self, size_bytes: int) -> None:
        """A read that held no body bytes: heads, chunk framing and trailers are bounded too."""
        self._bare_bytes += size_bytes
        if self._bare_bytes > MAX_HEAD_BYTES and not self._complete:
            part = "framing without any body" if self._in_body else "head"
            self._fail("malformed", f"more than {MAX_HEAD_BYTES} bytes of {part}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._upstream.forget(self)
        # The parser refers to us: without this the pair would be garbage until a collection
        self._parser = self._parse = None
        exchange = self._exchange
        if exchange is None:
            return
        lost = (
            "the engine's machine fell silent" if isinstance(exc, TimeoutError) else "the engine closed the connection"
        )
        if not self._in_body:
            nothing_came = self._bare_bytes == 0
            if nothing_came and exchange.lost_before_any_byte():
                self._detach()
                self._upstream.resend(exchange)
                return
            self._fail("reset", f"{lost} before it answered")
        elif exc is None and _ends_with_connection(self._headers):
            self._keep_alive = False
            self._finish()
        else:
            self._fail("truncated", f"{lost} in the middle of its answer")

    # --- httptools callbacks

    def on_message_begin(self) -> None:
        if self._complete:
            self._keep_alive = False  # a second answer behind the first
            self._extra_at = len(_PARTS) if self._extra_at is None else self._extra_at

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value.rstrip()))

    def on_headers_complete(self) -> None:
        if self._complete:
            return
        status = self._parser.get_status_code()
        headers = self._headers
        if status < 200:
            self._headers = []
            if status == 101:
                self._fail("malformed", "the engine switched protocols although nobody asked")
            return
        self._in_body = True
        if b"content-encoding" in dict(headers) and _is_encoded(headers):
            self._fail("encoding", "the engine compressed its answer although no coding was accepted")
            return
        exchange = self._exchange
        if exchange is not None and (sink := exchange.sink) is not None:
            exchange.data = b""  # the engine answers: it will not be sent again
            self._deliver = sink.on_body
            sink.on_head(ResponseHead(status, tuple(headers)))

    def on_message_complete(self) -> None:
        if self._in_body:  # neither an interim answer nor a second one
            self._in_body = False
            self._complete = True
            self._deliver = None
            self._keep_alive = self._parser.should_keep_alive()

    # --- ends

    def _finish(self) -> None:
        """The answer is whole: the connection is no longer its exchange's."""
        exchange = self._exchange
        if exchange is None:
            return
        exchange.connection = self._exchange = None
        if self._grace is not None:
            self._detach()
        transport = self.transport
        if self._keep_alive and not transport.is_closing() and transport.get_write_buffer_size() == 0:
            if self._paused:
                self.resume()
            self._upstream.keep(self)
        else:
            transport.abort()  # close() would wait for a peer that no longer reads the request
        if exchange.sink is not None:
            exchange.sink.on_end()

    def _fail(self, kind: str, message: str) -> None:
        exchange = self._exchange
        self._detach()
        _PARTS.clear()
        self.transport.abort()
        if exchange is not None:
            exchange.fail(TransportError(kind, message, sent=True))


def _is_encoded(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name == b"content-encoding" and value.lower() != b"identity" for name, value in headers)


def _ends_with_connection(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether the head says of no other end of its body."""
    return not any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)
