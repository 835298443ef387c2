"""The relay's own transport: pooled HTTP/1.1 on httptools, from the read callback straight to the sink.

No task and no await per request once the connection is open. A read is parsed in C; its body parts are joined and
given on as one piece. TCP_NODELAY is set by the event loop on every connection.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from typing import Any, cast

import httptools

from .contract import ResponseHead, Sink, TransportError, WireRequest

MAX_HEAD_BYTES = 65536
_TARGET = re.compile(r"[!-~]+")
RELEASE_GRACE_S = 1.0
# A body above this is handed to the socket on its own: joining it to its head would copy it once more.
_JOIN_BYTES = 65536


# Body bytes of the read that is being parsed. One list for all connections: it is empty again when the read is done.
_PARTS: list[bytes] = []


class NativeUpstream:
    """Connections to one host and port; implements ``contract.Upstream``."""

    def __init__(self, host: str, port: int, *, tls: ssl.SSLContext | None, idle_s: float) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._idle_s = idle_s
        bracketed = f"[{host}]" if ":" in host else host
        usual = 443 if tls else 80
        self._host_header = (bracketed if port == usual else f"{bracketed}:{port}").encode("ascii")
        self._idle: dict[_Connection, None] = {}  # the one used last at the end; any can be taken out at once
        self._open: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def idle_connections(self) -> int:
        return len(self._idle)

    @property
    def open_connections(self) -> int:
        return len(self._open)

    async def send(self, request: WireRequest, sink: Sink, *, connect_timeout_s: float) -> NativeExchange:
        exchange = NativeExchange(self, self._serialise(request), sink, connect_timeout_s)
        connection = self._take_idle()
        if connection is None:
            connection = await self._connect(connect_timeout_s)
        else:
            exchange.reused = True
        exchange.start(connection)
        return exchange

    async def aclose(self) -> None:
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
        oldest_s = time.monotonic() - self._idle_s
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.idle_since_s >= oldest_s and not connection.closing:
                return connection
            connection.drop()
        return None

    def keep(self, connection: _Connection) -> None:
        """Takes back a connection whose exchange is over."""
        if self._closed or self._idle_s <= 0:
            connection.drop()
            return
        connection.idle_since_s = time.monotonic()
        self._idle[connection] = None
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(self._idle_s, self._close_old)

    def opened(self, connection: _Connection) -> None:
        self._open.add(connection)

    def forget(self, connection: _Connection) -> None:
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def _close_old(self) -> None:
        self._sweep = None
        now_s = time.monotonic()
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
        loop = asyncio.get_running_loop()
        made = _Connection(self)  # known before it is open: a cancelled connect tells it nothing (uvloop)
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    lambda: made,
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._host if self._tls else None,
                )
        except asyncio.CancelledError:
            self.forget(made)
            raise
        except TimeoutError as error:
            self.forget(made)
            raise TransportError("connect_timeout", f"no connection within {timeout_s:g} s", sent=False) from error
        except (OSError, ssl.SSLError) as error:
            reason = error.strerror or type(error).__name__
            raise TransportError("connect", f"cannot connect: {reason}", sent=False) from error
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
            exchange.start(connection)

    def _serialise(self, request: WireRequest) -> tuple[bytes, ...]:
        if not _TARGET.fullmatch(request.target):
            raise TransportError("malformed", "the request target holds a space or a control character", sent=False)
        lines = [
            b"%b %b HTTP/1.1\r\nhost: %b\r\naccept-encoding: identity\r\n"
            % (request.method.encode("ascii"), request.target.encode("latin-1"), self._host_header),
            *[b"%b: %b\r\n" % header for header in request.headers],
        ]
        if request.body or request.method != "GET":
            lines.append(b"content-length: %d\r\n" % len(request.body))
        lines.append(b"\r\n")
        if len(request.body) > _JOIN_BYTES:
            return b"".join(lines), request.body
        lines.append(request.body)
        return (b"".join(lines),)


class NativeExchange:
    """One request on one connection; implements ``contract.Exchange``."""

    __slots__ = (
        "_connection",
        "_data",
        "_over",
        "_paused",
        "_sink",
        "_upstream",
        "connect_timeout_s",
        "connected_s",
        "resending",
        "reused",
        "sent_s",
    )

    def __init__(self, upstream: NativeUpstream, data: tuple[bytes, ...], sink: Sink, connect_timeout_s: float) -> None:
        self._upstream = upstream
        self._data = data
        self._sink = sink
        self._connection: _Connection | None = None
        self._over = False
        self._paused = False
        self.connect_timeout_s = connect_timeout_s
        self.connected_s = 0.0
        self.sent_s = 0.0
        self.reused = False
        self.resending: asyncio.Task[None] | None = None

    def start(self, connection: _Connection) -> None:
        self._connection = connection
        self.connected_s = time.perf_counter()
        connection.begin(self, self._sink, self._data, reading=not self._paused)
        self.sent_s = time.perf_counter()
        if not self.reused:
            self._data = ()  # only a reused connection is ever asked again

    def pause(self) -> None:
        self._paused = True
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        self._paused = False
        if self._connection is not None:
            self._connection.resume()

    def abort(self) -> None:
        self._over = True
        if self.resending is not None:
            self.resending.cancel()
        if self._connection is not None:
            self._connection.drop()
            self._connection = None

    def release(self) -> None:
        if self._over:
            return
        self._over = True
        if self._connection is not None:
            self._connection.end_soon()
        elif self.resending is not None:
            self.resending.cancel()

    def answered(self) -> None:
        """The engine answers: the request will not be sent again, so its bytes need not be kept."""
        self._data = ()

    def end(self) -> None:
        """The answer is whole: the connection is no longer ours."""
        self._over = True
        self._connection = None

    def lost_before_any_byte(self) -> bool:
        """The connection closed with nothing said. Returns whether the request goes out again."""
        if self._over or not self.reused:
            return False
        self.reused = False
        self._connection = None
        self._upstream.resend(self)
        return True

    def fail(self, error: TransportError) -> None:
        if not self._over:
            self._over = True
            self._connection = None
            self._sink.on_error(error)


class _Connection(asyncio.Protocol):
    """One TCP connection: parses answers, one at a time, and tells the sink of the exchange that it serves."""

    __slots__ = (
        "_bare_bytes",
        "_complete",
        "_deliver",
        "_exchange",
        "_extra_at",
        "_flowing",
        "_grace",
        "_head_seen",
        "_headers",
        "_interim",
        "_keep_alive",
        "_parse",
        "_parser",
        "_paused",
        "_serving",
        "_sink",
        "_transport",
        "_until_close",
        "_upstream",
        "idle_since_s",
    )

    # The C parser calls list.append itself: a read of many HTTP chunks costs no Python call for each.
    on_body = _PARTS.append

    def __init__(self, upstream: NativeUpstream) -> None:
        self._upstream = upstream
        self._exchange: NativeExchange | None = None
        self._deliver: Any = None  # the sink's on_body
        self._flowing = False  # a body is under way, and there is a sink for it
        self._sink: Sink | None = None  # None while serving: the answer is read to its end for reuse only
        self._serving = False
        self._parser: Any = httptools.HttpResponseParser(self)
        self._parse: Any = self._parser.feed_data
        self._headers: list[tuple[bytes, bytes]] = []
        self._bare_bytes = 0  # in reads without body, since the request or the last body byte
        self._head_seen = False
        self._interim = False
        self._until_close = False
        self._complete = False
        self._extra_at: int | None = None
        self._keep_alive = False
        self._paused = False
        self._grace: asyncio.TimerHandle | None = None
        self.idle_since_s = 0.0

    @property
    def closing(self) -> bool:
        return self._transport.is_closing()

    # --- for the exchange

    def begin(self, exchange: NativeExchange, sink: Sink, data: tuple[bytes, ...], *, reading: bool) -> None:
        self._exchange = exchange
        self._sink = sink
        self._deliver = sink.on_body
        self._serving = True
        self._bare_bytes = 0
        self._head_seen = False
        self._complete = False
        self.idle_since_s = 0.0
        if len(data) == 1:
            self._transport.write(data[0])
        else:
            self._transport.writelines(data)  # one system call
        if not reading:
            self.pause()

    def pause(self) -> None:
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def drop(self) -> None:
        """Closes at once and tells nobody."""
        self._detach()
        self._transport.abort()

    def end_soon(self) -> None:
        """Reads on for a moment without a sink, so that the connection can be used again."""
        self._sink = self._deliver = None
        self._flowing = False
        self.resume()
        self._grace = asyncio.get_running_loop().call_later(RELEASE_GRACE_S, self.drop)

    def _detach(self) -> None:
        self._exchange = None
        self._sink = self._deliver = None
        self._flowing = False
        self._serving = False
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self._upstream.opened(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parse(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._complete:
                _PARTS.clear()
                if self._serving:
                    self._fail("malformed", "the engine's answer is not HTTP/1.1")
                else:
                    self._transport.abort()
                return
            self._keep_alive = False  # bytes after a whole answer: take it, never use the connection again
        if self._flowing and len(_PARTS) == 1:
            self._bare_bytes = 0
            self._deliver(_PARTS.pop())  # the usual read of a stream
        else:
            self._take_parts(len(data))

    def _take_parts(self, size_bytes: int) -> None:
        if self._extra_at is not None:
            del _PARTS[self._extra_at :]  # a second answer in the same read belongs to nobody
        if not _PARTS:
            self._without_body(size_bytes)
        else:
            self._bare_bytes = 0
            piece = b"".join(_PARTS)
            _PARTS.clear()
            if self._sink is not None:
                self._sink.on_body(piece)
        if self._complete:
            self._finish()

    def _without_body(self, size_bytes: int) -> None:
        """A read that held no body bytes: heads, chunk framing and trailers are bounded too."""
        if not self._serving:
            self._transport.abort()  # an answer that nobody asked for
            return
        self._bare_bytes += size_bytes
        if self._bare_bytes > MAX_HEAD_BYTES and not self._complete:
            part = "framing without any body" if self._head_seen else "head"
            self._fail("malformed", f"more than {MAX_HEAD_BYTES} bytes of {part}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._upstream.forget(self)
        # The parser refers to us: without this the pair would be garbage until a collection
        self._parser = self._parse = None
        if not self._serving:
            return
        if not self._head_seen:
            nothing_came = self._bare_bytes == 0
            if nothing_came and self._exchange is not None and self._exchange.lost_before_any_byte():
                self._detach()
                return
            self._fail("reset", "the engine closed the connection before it answered")
        elif self._until_close and exc is None:
            self._keep_alive = False
            self._finish()
        else:
            self._fail("truncated", "the engine closed the connection in the middle of its answer")

    # --- httptools callbacks

    def on_message_begin(self) -> None:
        if self._complete:
            self._keep_alive = False  # a second answer behind the first
            self._extra_at = len(_PARTS) if self._extra_at is None else self._extra_at
            return
        self._headers = []
        self._head_seen = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_seen:  # afterwards: a trailer
            self._headers.append((name.lower(), value.rstrip()))

    def on_headers_complete(self) -> None:
        if self._complete:
            return
        status = self._parser.get_status_code()
        self._interim = status < 200 and status != 101
        if self._interim:
            return
        if status == 101:
            self._fail("malformed", "the engine switched protocols although nobody asked")
            return
        self._head_seen = True
        self._until_close = True
        encoded = False
        for name, value in self._headers:
            if name == b"content-length" or name == b"transfer-encoding":
                self._until_close = False
            elif name == b"content-encoding" and value.lower() != b"identity":
                encoded = True
        if encoded:
            self._fail("encoding", "the engine compressed its answer although no coding was accepted")
        elif self._sink is not None:
            self._flowing = True
            if self._exchange is not None:
                self._exchange.answered()
            self._sink.on_head(ResponseHead(status, tuple(self._headers)))

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        elif not self._complete:
            self._complete = True
            self._flowing = False
            self._keep_alive = self._parser.should_keep_alive()

    # --- ends

    def _finish(self) -> None:
        exchange, sink = self._exchange, self._sink
        reusable = (
            self._keep_alive and not self._transport.is_closing() and self._transport.get_write_buffer_size() == 0
        )
        if reusable:
            self.resume()
        self._detach()
        if exchange is not None:
            exchange.end()
        if reusable:
            self._upstream.keep(self)
        else:
            self._transport.abort()  # close() would wait for a peer that no longer reads the request
        if sink is not None:
            sink.on_end()

    def _fail(self, kind: str, message: str) -> None:
        exchange = self._exchange
        self._detach()
        _PARTS.clear()
        self._transport.abort()
        if exchange is not None:
            exchange.fail(TransportError(kind, message, sent=True))
