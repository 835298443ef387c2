"""HTTP/2 over the httpx2 transport. Needs the package h2, which `httpx2[http2]` brings."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

pytest.importorskip("h2", reason="HTTP/2 needs the package h2")

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, RequestReceived, StreamEnded

from gateway.upstream.contract import WireRequest
from gateway.upstream.via_httpx2 import Httpx2Upstream
from tests.fakes.patience import WAIT_S
from tests.gateway.upstream.lab import REQUEST, Attempt
from tests.gateway.upstream.raw_peer import eventually

Tls = tuple[ssl.SSLContext, ssl.SSLContext]


class Http2Engine:
    """Answers /whole at once, streams at /slow until told to stop, resets /reset, and counts connections."""

    def __init__(self) -> None:
        self.connections = 0
        self.left = 0
        self.headers: list[dict[bytes, bytes]] = []
        self.body = bytearray()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        http2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        http2.initiate_connection()
        writer.write(http2.data_to_send())
        paths: dict[int, bytes] = {}
        try:
            while data := await reader.read(65536):
                for event in http2.receive_data(data):
                    self._take(http2, paths, event)
                writer.write(http2.data_to_send())
        except ConnectionError:
            pass
        self.left += 1
        writer.close()

    def _take(self, http2: H2Connection, paths: dict[int, bytes], event: Event) -> None:
        if isinstance(event, RequestReceived):
            headers = {bytes(name): bytes(value) for name, value in event.headers or []}
            self.headers.append(headers)
            paths[event.stream_id or 0] = headers[b":path"]
        elif isinstance(event, DataReceived):
            self.body += event.data or b""
            http2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
        elif isinstance(event, StreamEnded):
            stream_id = event.stream_id or 0
            if paths[stream_id] == b"/unheard":
                http2.reset_stream(stream_id, error_code=2)
                return
            http2.send_headers(stream_id, [(":status", "200"), ("x-a", "1")])
            http2.send_data(stream_id, b"hello")
            if paths[stream_id] == b"/reset":
                http2.reset_stream(stream_id, error_code=2)
            elif paths[stream_id] == b"/whole":
                http2.send_data(stream_id, b" world", end_stream=True)


@pytest.fixture
def engine() -> Http2Engine:
    return Http2Engine()


@pytest_asyncio.fixture
async def upstream(engine: Http2Engine, tls: Tls) -> AsyncGenerator[Httpx2Upstream]:
    server_tls, client_tls = tls
    server_tls.set_alpn_protocols(["h2"])
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0, ssl=server_tls)
    port = server.sockets[0].getsockname()[1]
    upstream = Httpx2Upstream(f"https://127.0.0.1:{port}", idle_s=30.0, http2=True, verify=client_tls)
    yield upstream
    await upstream.aclose()
    await eventually(lambda: engine.left == engine.connections)
    server.close()
    server_tls.set_alpn_protocols(["http/1.1"])


async def _start(upstream: Httpx2Upstream, path: str, body: bytes = REQUEST.body) -> Attempt:
    attempt = Attempt()
    request = WireRequest("POST", path, REQUEST.headers, body)
    attempt.sent(await upstream.send(request, attempt, connect_timeout_s=WAIT_S))
    return attempt


async def test_an_answer_over_http2_is_like_any_other_and_its_connection_is_used_again(
    upstream: Httpx2Upstream, engine: Http2Engine
) -> None:
    for reused in (False, True, True):
        attempt = await _start(upstream, "/whole")
        assert attempt.exchange.reused == reused
        await attempt.until_ended()
        assert attempt.head is not None
        assert (attempt.status, attempt.body, attempt.head.get(b"x-a")) == (200, b"hello world", b"1")
        await eventually(lambda: upstream.idle_connections == 1)
    assert engine.connections == 1
    assert engine.headers[0][b"accept-encoding"] == b"identity"
    assert engine.body == REQUEST.body * 3


async def test_a_large_request_goes_through_the_flow_control_of_http2(
    upstream: Httpx2Upstream, engine: Http2Engine
) -> None:
    attempt = await _start(upstream, "/whole", bytes(range(250)) * 4_000)
    await attempt.until_ended()
    assert engine.body == bytes(range(250)) * 4_000


async def test_an_abort_over_http2_closes_the_connection_so_that_the_engine_feels_it(
    upstream: Httpx2Upstream, engine: Http2Engine
) -> None:
    attempt = await _start(upstream, "/slow")
    await eventually(lambda: attempt.body == b"hello")
    other = await _start(upstream, "/slow")
    await eventually(lambda: other.body == b"hello")
    assert engine.connections == 2
    attempt.abort()
    await eventually(lambda: engine.left == 1)
    assert upstream.open_connections == 1
    assert not other.over


@pytest.mark.parametrize(("path", "kind"), [("/reset", "truncated"), ("/unheard", "reset")])
async def test_a_stream_that_the_engine_resets_is_an_error(upstream: Httpx2Upstream, path: str, kind: str) -> None:
    attempt = await _start(upstream, path)
    error = await attempt.until_failed()
    assert error.kind == kind
    await eventually(lambda: upstream.open_connections == 0)
