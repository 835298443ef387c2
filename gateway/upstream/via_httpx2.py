"""The second transport, on httpx2's connection layer (httpcore2): for HTTP/2 and forward proxies.

httpx2's own client is left out: it sends the cookies of one answer with the requests of everybody, rewrites targets,
and reads nothing while it writes, so that an early 413 is lost. Its pool is left out too: a connection serves one
exchange at a time here, HTTP/2 included, because httpcore2 resets no stream that it leaves, and an engine then notices
only a closed connection.
"""

from __future__ import annotations

import asyncio
import importlib.util
import ssl
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2

from ..extras import how_to_install
from .connect_reason import connect_reason
from .contract import ResponseHead, Sink, TransportError, WireRequest, closing
from .dialer import Dialer, certified_name
from .host_header import host_header

MAX_HEAD_BYTES = 65536
RELEASE_GRACE_S = 1.0


class Httpx2Upstream:
    """Connections to one base URL; implements ``contract.Upstream``.

    The forward proxies of the environment are used (``http_proxy``, ``https_proxy``, ``all_proxy``, ``no_proxy``).
    """

    def __init__(
        self, base_url: str, *, idle_s: float, http2: bool = False, verify: ssl.SSLContext | None = None
    ) -> None:
        """Opens nothing yet.

        Args:
            base_url: Scheme, host and port; the path is the request's business.
            idle_s: How long a connection is kept without use, in seconds.
            http2: Whether HTTP/2 is offered where TLS lets both sides choose.
            verify: How the engine's certificate is checked; None trusts what the system and ``SSL_CERT_FILE`` say.

        Raises:
            ValueError: The URL is no http or https URL, or HTTP/2 is asked for and not installed.
        """
        url = urlsplit(base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"{base_url!r} is no engine's URL: write http://host:port or https://host:port")
        if http2 and importlib.util.find_spec("h2") is None:
            raise ValueError(f"HTTP/2 to {base_url} needs the package h2: {how_to_install('http2')}")
        self._scheme = url.scheme.encode("ascii")
        self._host = url.hostname.encode("idna")
        self._port = url.port or _usual_port(url)
        self._http2 = http2
        self._idle_s = idle_s
        self._proxy = _proxy_of_the_environment(url, self._port)
        self._tls = verify or (httpx2.create_ssl_context() if url.scheme == "https" else None)
        self._host_header = host_header(self._host.decode("ascii"), self._port, tls=url.scheme == "https")
        self._idle: list[_Link] = []
        self._open: set[_Link] = set()
        self._exchanges: dict[asyncio.Task[None], Httpx2Exchange] = {}
        self._closed = False
        self._dialer: Dialer | None = None

    @property
    def idle_connections(self) -> int:
        return len(self._idle)

    @property
    def open_connections(self) -> int:
        return len(self._open)

    async def send(self, request: WireRequest, sink: Sink, *, connect_timeout_s: float) -> Httpx2Exchange:
        if self._closed:
            raise closing()
        exchange = Httpx2Exchange(self, request, sink, connect_timeout_s)
        task = asyncio.get_running_loop().create_task(exchange.run())
        self._exchanges[task] = exchange
        task.add_done_callback(self._exchanges.pop)
        await exchange.until_sent(task)
        return exchange

    async def aclose(self) -> None:
        self._closed = True
        tasks = tuple(self._exchanges)
        for exchange in tuple(self._exchanges.values()):
            exchange.abort()
        for link in tuple(self._open):
            link.drop()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- for links and exchanges

    def encode(self, request: WireRequest, trace: Any) -> httpcore2.Request:
        headers = [(b"host", self._host_header), (b"accept-encoding", b"identity"), *request.headers]
        if request.body or request.method != "GET":
            headers.append((b"content-length", b"%d" % len(request.body)))
        url = httpcore2.URL(
            scheme=self._scheme, host=self._host, port=self._port, target=request.target.encode("latin-1")
        )
        return httpcore2.Request(
            request.method, url, headers=headers, content=request.body, extensions={"trace": trace}
        )

    def connection_over(self, backend: httpcore2.AsyncNetworkBackend) -> httpcore2.AsyncConnectionInterface:
        factory = httpcore2.AsyncConnectionPool(
            ssl_context=self._tls, proxy=self._proxy, http2=self._http2, network_backend=backend
        )
        return factory.create_connection(httpcore2.Origin(self._scheme, self._host, self._port))

    def dialer(self, host: str, port: int) -> Dialer:
        """Returns what connects to the first hop. It is one for all connections: the engine, or the proxy."""
        self._dialer = self._dialer or Dialer(host, port)
        return self._dialer

    def no_connection(self, timeout_s: float) -> TransportError:
        assert self._dialer is not None  # whatever takes time to connect has asked for it
        return self._dialer.no_connection(timeout_s)

    def take_idle(self) -> _Link | None:
        """The connection used last, so that those not needed grow old and are closed."""
        while self._idle:
            link = self._idle.pop()
            if link.wake():
                return link
            link.drop()
        return None

    def keep(self, link: _Link) -> None:
        if self._closed or self._idle_s <= 0:
            link.drop()
        else:
            self._idle.append(link)
            link.rest(self._idle_s)

    def opened(self, link: _Link) -> None:
        self._open.add(link)

    def forget(self, link: _Link) -> None:
        self._open.discard(link)
        if link in self._idle:
            self._idle.remove(link)


class Httpx2Exchange:
    """One request and the task that carries it; implements ``contract.Exchange``."""

    def __init__(self, upstream: Httpx2Upstream, request: WireRequest, sink: Sink, connect_timeout_s: float) -> None:
        self._upstream = upstream
        self._request = request
        self._sink = sink
        self._connect_timeout_s = connect_timeout_s
        self._connecting: asyncio.Timeout | None = None
        self._link: _Link | None = None  # to be dropped if this is aborted
        self._carrier: _Link | None = None  # until the task is over
        self._task: asyncio.Task[None] | None = None
        self._sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._returned = asyncio.Event()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._parts: list[bytes] = []
        self._deaf = False
        self._grace: asyncio.TimerHandle | None = None
        self.head_seen = False
        self.reused = False
        self.connected_s = 0.0
        self.sent_s = 0.0

    # --- contract.Exchange

    def pause(self) -> None:
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()

    def abort(self) -> None:
        self._deaf = True
        self._returned.set()  # a task that has failed meanwhile waits for send to return, which it will not
        if self._grace is not None:
            self._grace.cancel()
        if self._link is not None:
            self._link.drop()
            self._link = None
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if not self._sent.done():  # who waits for it has not left: the upstream is being closed
            self._sent.set_exception(closing())
            self._sent.exception()  # seen, also if the caller of send was cancelled in this very moment

    def release(self) -> None:
        if not self._deaf:
            self._deaf = True
            self.resume()
            self._grace = asyncio.get_running_loop().call_later(RELEASE_GRACE_S, self.abort)

    # --- for the upstream and the link

    async def until_sent(self, task: asyncio.Task[None]) -> None:
        self._task = task
        try:
            await self._sent
        except BaseException:
            self.abort()
            self._sent = _settled()  # the error in it has a traceback, which holds this exchange
            raise
        self._returned.set()

    async def before_read(self) -> None:
        """Gives on what the last read held, and waits while the exchange is paused."""
        self._flush()
        await self._flowing.wait()

    async def run(self) -> None:
        try:
            response = await self._answer()
            self._take_head(response)
            async for part in response.aiter_stream():
                self._parts.append(part)
            self._flush()
            await self._give_back(response)
        except Exception as error:  # httpcore2 maps most of what h11 and h2 raise, not all; the sink must hear of each
            await self._fail(error)
        else:
            self._settle()
            if not self._deaf:
                self._deaf = True
                self._sink.on_end()
        finally:
            if self._carrier is not None:
                self._carrier.leave()
            self._carrier = self._connecting = None  # the latter holds the task, and what ended it with its frames

    # --- the steps of a run

    async def _answer(self) -> httpcore2.Response:
        link = self._upstream.take_idle()
        self.reused = link is not None
        while True:
            self._link = self._carrier = link = link or _Link(self._upstream)
            self.connected_s = 0.0
            link.begin(self)
            try:
                async with asyncio.timeout(self._connect_timeout_s) as self._connecting:
                    response = await link.connection.handle_async_request(
                        self._upstream.encode(self._request, self._trace)
                    )
            except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.ConnectionNotAvailable):
                if not self.reused or link.heard_bytes:
                    raise
                link.drop()
                link.leave()
                link = None
                self.reused = False
            else:
                await self._returned.wait()
                return response

    async def _trace(self, event: str, info: dict[str, Any]) -> None:
        """Told by httpcore2 of each step; a proxy's CONNECT passes the same steps first."""
        step = event.partition(".")[2]
        if step == "send_request_headers.started" and info["request"].method != b"CONNECT":
            self.connected_s = time.perf_counter()
            assert self._connecting is not None
            self._connecting.reschedule(None)
        elif self.connected_s and step in ("send_request_headers.complete", "send_request_headers.failed"):
            self.sent_s = time.perf_counter()
            if not self._sent.done():
                self._sent.set_result(None)

    def _take_head(self, response: httpcore2.Response) -> None:
        head = ResponseHead(response.status, tuple((name.lower(), value) for name, value in response.headers))
        if head.status < 200:
            raise TransportError("malformed", "the engine switched protocols although nobody asked", sent=True)
        for name, value in head.headers:
            if name == b"content-encoding" and value.lower() != b"identity":
                message = "the engine compressed its answer although no coding was accepted"
                raise TransportError("encoding", message, sent=True)
        self.head_seen = True
        if not self._deaf:
            self._sink.on_head(head)

    def _flush(self) -> None:
        piece = b"".join(self._parts)
        self._parts.clear()
        if piece and not self._deaf:
            self._sink.on_body(piece)

    async def _give_back(self, response: httpcore2.Response) -> None:
        link = self._link
        left_over = _left_over(response)
        await response.aclose()
        if link is not None and link.connection.is_idle() and not left_over and not link.holds_bytes:
            self._upstream.keep(link)
        elif link is not None:
            link.drop()

    async def _fail(self, cause: Exception) -> None:
        error = self._translate(cause)
        if self._link is not None:
            self._link.drop()
        self._settle()
        if not self._sent.done():
            self._sent.set_exception(error)
            self._sent.exception()  # seen, also if the caller of send was cancelled in this very moment
            return
        await self._returned.wait()
        self._flush()
        if not self._deaf:
            self._deaf = True
            self._sink.on_error(error)

    def _settle(self) -> None:
        """The connection and the task are no longer this exchange's to end."""
        self._link = None
        self._task = None
        if self._grace is not None:
            self._grace.cancel()

    def _translate(self, cause: Exception) -> TransportError:
        if isinstance(cause, TransportError):
            return cause
        sent = self._sent.done()
        if isinstance(cause, TimeoutError):
            error = self._upstream.no_connection(self._connect_timeout_s)
        elif isinstance(cause, httpcore2.ProxyError):
            error = TransportError("connect", f"the forward proxy refused: {cause}", sent=sent)
        elif not self.connected_s:
            error = TransportError("connect", f"cannot connect: {cause}", sent=sent)
        elif self._link is not None and not self._link.broke_off:
            error = TransportError("malformed", "the engine's answer is not HTTP", sent=True)
        elif self.head_seen:
            error = TransportError(
                "truncated", "the engine closed the connection in the middle of its answer", sent=True
            )
        else:
            error = TransportError("reset", "the engine closed the connection before it answered", sent=True)
        error.__cause__ = cause
        return error


class _Link(httpcore2.AsyncNetworkBackend):
    """One connection of httpcore2, and the one socket that it opens."""

    def __init__(self, upstream: Httpx2Upstream) -> None:
        self._upstream = upstream
        self._wire: _Wire | None = None
        self._dropped = False
        self._expiry: asyncio.TimerHandle | None = None
        self._connection: httpcore2.AsyncConnectionInterface | None = upstream.connection_over(self)
        self.exchange: Httpx2Exchange | None = None
        self.heard_bytes = 0

    @property
    def connection(self) -> httpcore2.AsyncConnectionInterface:
        assert self._connection is not None  # a dropped one is used by the exchange that it was dropped under alone
        return self._connection

    @property
    def broke_off(self) -> bool:
        """Whether httpcore2 has been told of the end; an HTTP/2 stream may be reset without one."""
        return self._wire is not None and (self._wire.end_told or self._wire.http2)

    @property
    def holds_bytes(self) -> bool:
        return self._wire is not None and self._wire.holds_bytes

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (httpcore2's signature; the exchange keeps the time)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        _, wire = await self._upstream.dialer(host, port).connect(lambda: _Wire(self))
        self.opened(wire)
        return wire

    def begin(self, exchange: Httpx2Exchange) -> None:
        self.exchange = exchange
        self.heard_bytes = 0

    def leave(self) -> None:
        """Its exchange is over, however it ended."""
        self.exchange = None
        if self._dropped:
            self._take_apart()

    def opened(self, wire: _Wire) -> None:
        self._wire = wire
        if self._dropped:
            wire.abort()
        else:
            self._upstream.opened(self)

    def lost(self, wire: _Wire) -> None:
        if wire is self._wire:
            self._upstream.forget(self)

    def rest(self, idle_s: float) -> None:
        self.exchange = None
        self._expiry = asyncio.get_running_loop().call_later(idle_s, self.drop)

    def wake(self) -> bool:
        """Returns whether the connection can be used."""
        if self._expiry is not None:
            self._expiry.cancel()
        return self._wire is not None and not self._wire.ended

    def drop(self) -> None:
        """Closes at once."""
        self._dropped = True
        if self._expiry is not None:
            self._expiry.cancel()
        self._upstream.forget(self)
        if self._wire is not None:
            self._wire.abort()
        if self.exchange is None:
            self._take_apart()

    def _take_apart(self) -> None:
        """It, the wire and httpcore2's connection hold each other: garbage until a collection, with the request."""
        self._wire = None
        self._connection = None


class _Wire(asyncio.Protocol, httpcore2.AsyncNetworkStream):
    """One socket. Unlike the stream of httpcore2 it goes on reading while it writes, and while it is idle."""

    def __init__(self, link: _Link) -> None:
        self._link = link
        self._transport: asyncio.Transport
        self._held: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._writable = True
        self._reading = True
        self._error: Exception | None = None
        self.ended = False
        self.end_told = False

    @property
    def holds_bytes(self) -> bool:
        return bool(self._held)

    @property
    def http2(self) -> bool:
        tls: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        return tls is not None and tls.selected_alpn_protocol() == "h2"

    def abort(self) -> None:
        self.ended = True
        self._transport.abort()

    # --- httpcore2.AsyncNetworkStream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        exchange = self._link.exchange
        if exchange is not None:
            await exchange.before_read()
            if not exchange.head_seen and self._link.heard_bytes > MAX_HEAD_BYTES:
                raise httpcore2.RemoteProtocolError(f"a head larger than {MAX_HEAD_BYTES} bytes")
        while not self._held and not self.ended:
            await self._wait()
        if not self._held:
            self.end_told = True
            if self._error is not None:
                raise httpcore2.ReadError(str(self._error)) from self._error
            return b""
        data = self._held.popleft()
        if len(data) > max_bytes:
            self._held.appendleft(data[max_bytes:])
            data = data[:max_bytes]
        if not self._held and not self._reading and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()
        self._link.heard_bytes += len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        if self._transport.is_closing():
            raise httpcore2.WriteError("the engine closed the connection")
        self._transport.write(buffer)
        while not self._writable and not self.ended:
            if self._held and not self.http2:
                # httpcore2 takes this as the sign to read the answer now; what is written still goes out.
                raise httpcore2.WriteError("the engine answers before the request is whole")
            await self._wait()
        if self.ended:
            raise httpcore2.WriteError("the engine closed the connection")

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        name = None if server_hostname is None else certified_name(server_hostname)
        if self._held:
            self._link.drop()
            raise httpcore2.ConnectError("the engine spoke before the TLS handshake: does it speak TLS on this port?")
        try:
            transport = await loop.start_tls(self._transport, self, ssl_context, server_hostname=name)
        except BaseException as error:
            self._link.drop()
            if isinstance(error, OSError):
                raise httpcore2.ConnectError(connect_reason(error)) from error
            raise
        if transport is None:
            self._link.drop()
            raise httpcore2.ConnectError("the engine closed the connection during the TLS handshake")
        self._transport = transport
        return self

    async def aclose(self) -> None:
        self._link.drop()

    def get_extra_info(self, info: str) -> Any:
        return self.ended if info == "is_readable" else self._transport.get_extra_info(info)

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        if self._link.exchange is None:
            self._link.drop()  # an answer that nobody asked for
            return
        self._held.append(data)
        if self._reading and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)
        self._link.lost(self)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._wake()

    def _end(self, error: Exception | None) -> None:
        self.ended = True
        self._error = self._error or error
        self._wake()
        if self._link.exchange is None:
            self._link.drop()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _settled() -> asyncio.Future[None]:
    settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    settled.set_result(None)
    return settled


def _left_over(response: httpcore2.Response) -> bool:
    """Whether bytes follow the answer. httpcore2 would read them as the answer to the next request."""
    stream: Any = response.stream
    h11_state: Any = getattr(stream._connection, "_h11_state", None)  # an HTTP/2 connection has none
    return h11_state is not None and bool(h11_state.trailing_data[0])


def _usual_port(url: SplitResult) -> int:
    return 443 if url.scheme == "https" else 80


def _proxy_of_the_environment(url: SplitResult, port: int) -> httpcore2.Proxy | None:
    proxies = getproxies()
    address = proxies.get(url.scheme) or proxies.get("all")
    if not address or proxy_bypass(f"{url.hostname}:{port}"):
        return None
    proxy = urlsplit(address if "://" in address else f"http://{address}")
    if proxy.scheme not in ("http", "https", "socks5", "socks5h") or not proxy.hostname:
        raise ValueError(f"the environment names a proxy Weir cannot use: {proxy.scheme}://{proxy.hostname or ''}")
    auth = (unquote(proxy.username), unquote(proxy.password or "")) if proxy.username else None
    target = httpcore2.URL(scheme=proxy.scheme, host=proxy.hostname, port=proxy.port, target=b"/")
    return httpcore2.Proxy(target, auth=auth)
