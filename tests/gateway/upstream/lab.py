"""One transport, one peer, and sinks that note every breach of the contract."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gateway.upstream.contract import Exchange, ResponseHead, TransportError, Upstream, WireRequest
from gateway.upstream.native import NativeUpstream
from gateway.upstream.via_httpx2 import Httpx2Upstream
from tests.fakes.patience import WAIT_S
from tests.gateway.upstream.raw_peer import PeerConnection, RawPeer, RawRequest, eventually

REQUEST = WireRequest("POST", "/v1/chat/completions", ((b"content-type", b"application/json"),), b'{"model":"m"}')
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
IDLE_S = 30.0


def native(port: int, tls: ssl.SSLContext | None, idle_s: float) -> Upstream:
    return NativeUpstream("127.0.0.1", port, tls=tls, idle_s=idle_s)


def httpx2(port: int, tls: ssl.SSLContext | None, idle_s: float) -> Upstream:
    scheme = "https" if tls else "http"
    return Httpx2Upstream(f"{scheme}://127.0.0.1:{port}", idle_s=idle_s, verify=tls)


TRANSPORTS: dict[str, Callable[[int, ssl.SSLContext | None, float], Upstream]] = {"native": native, "httpx2": httpx2}


@dataclass(eq=False)
class Attempt:
    """A sink together with its exchange."""

    when_head: Callable[[], None] | None = None
    when_body: Callable[[], None] | None = None
    head: ResponseHead | None = None
    pieces: list[bytes] = field(default_factory=list[bytes])
    ended: bool = False
    error: TransportError | None = None
    breaches: list[str] = field(default_factory=list[str])
    deaf: bool = False
    sending: bool = True
    _exchange: Exchange | None = None

    @property
    def exchange(self) -> Exchange:
        assert self._exchange is not None, "send has not returned yet"
        return self._exchange

    @property
    def status(self) -> int | None:
        return self.head.status if self.head else None

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def over(self) -> bool:
        return self.ended or self.error is not None

    def sent(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.sending = False

    # --- contract.Sink

    def on_head(self, head: ResponseHead) -> None:
        self._called("on_head", after_head=False)
        self.head = head
        if self.when_head is not None:
            self.when_head()

    def on_body(self, data: bytes) -> None:
        self._called("on_body", after_head=True)
        if not data:
            self.breaches.append("on_body without bytes")
        self.pieces.append(data)
        if self.when_body is not None:
            self.when_body()

    def on_end(self) -> None:
        self._called("on_end", after_head=True)
        self.ended = True

    def on_error(self, error: TransportError) -> None:
        self._called("on_error", after_head=None)
        self.error = error

    def _called(self, name: str, *, after_head: bool | None) -> None:
        if self.sending:
            self.breaches.append(f"{name} during send")
        if self.deaf:
            self.breaches.append(f"{name} after abort, release or aclose")
        if self.over:
            self.breaches.append(f"{name} after the end")
        if after_head is not None and after_head != (self.head is not None):
            self.breaches.append(f"{name} {'before' if after_head else 'after'} the head")

    # --- what tests do

    def abort(self) -> None:
        self.deaf = True
        self.exchange.abort()

    def release(self) -> None:
        self.deaf = True
        self.exchange.release()

    async def until_over(self) -> None:
        await eventually(lambda: self.over)

    async def until_ended(self) -> None:
        await self.until_over()
        assert self.error is None, f"{self.error.kind}: {self.error}"

    async def until_failed(self) -> TransportError:
        await self.until_over()
        assert self.error is not None, f"ended with status {self.status} and {self.body!r}"
        return self.error


class Lab:
    """A transport and the peer it talks to."""

    def __init__(self, transport: str) -> None:
        self._make = TRANSPORTS[transport]
        self.attempts: list[Attempt] = []
        self.loop_errors: list[dict[str, Any]] = []
        self.peer = RawPeer()
        self.upstream = self._make(self.peer.port, None, IDLE_S)
        self._upstreams = [self.upstream]
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.loop_errors.append(context))

    def connect_to(self, port: int, *, tls: ssl.SSLContext | None = None, idle_s: float = IDLE_S) -> None:
        """Another upstream takes the place of the first, which stays open to the end of the test."""
        self.upstream = self._make(port, tls, idle_s)
        self._upstreams.append(self.upstream)

    async def start(
        self, request: WireRequest = REQUEST, *, attempt: Attempt | None = None, connect_timeout_s: float = WAIT_S
    ) -> Attempt:
        attempt = attempt or Attempt()
        self.attempts.append(attempt)
        attempt.sent(await self.upstream.send(request, attempt, connect_timeout_s=connect_timeout_s))
        return attempt

    async def arrive(
        self, request: WireRequest = REQUEST, *, attempt: Attempt | None = None
    ) -> tuple[Attempt, PeerConnection, RawRequest]:
        """Starts a request on a new connection and reads it at the peer."""
        attempt = await self.start(request, attempt=attempt)
        connection = await self.peer.accept()
        return attempt, connection, await connection.read_request()

    async def warm(self) -> PeerConnection:
        """Returns a connection that served one request and now is idle."""
        attempt, connection, _ = await self.arrive()
        await connection.send(OK)
        await attempt.until_ended()
        await eventually(lambda: self.upstream.idle_connections == 1)
        return connection

    async def until_nothing_is_open(self) -> None:
        await eventually(lambda: self.upstream.open_connections == 0)

    async def aclose(self) -> None:
        for attempt in self.attempts:
            attempt.deaf = attempt.deaf or not attempt.over
        for upstream in self._upstreams:
            await upstream.aclose()
        await self.peer.aclose()
        await asyncio.sleep(0)

    def breaches(self) -> list[str]:
        found = [breach for attempt in self.attempts for breach in attempt.breaches]
        found += [f"{context.get('message')}: {context.get('exception')!r}" for context in self.loop_errors]
        return found
