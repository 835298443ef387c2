"""What only the httpx2 transport does: forward proxies, HTTP/2, and its URLs."""

from __future__ import annotations

import asyncio
import importlib.util
import ssl
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from gateway.upstream.contract import TransportError, WireRequest
from gateway.upstream.via_httpx2 import Httpx2Upstream
from tests.fakes.patience import WAIT_S
from tests.gateway.upstream.lab import OK, REQUEST, Attempt
from tests.gateway.upstream.raw_peer import PeerConnection, RawPeer, eventually

Tls = tuple[ssl.SSLContext, ssl.SSLContext]


@pytest_asyncio.fixture
async def proxy() -> AsyncGenerator[RawPeer]:
    peer = RawPeer()
    yield peer
    await peer.aclose()


async def _start(upstream: Httpx2Upstream) -> Attempt:
    attempt = Attempt()
    attempt.sent(await upstream.send(REQUEST, attempt, connect_timeout_s=WAIT_S))
    return attempt


# --- URLs


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host/", "http://", "http://:80", ""])
def test_what_is_no_url_of_an_engine_is_refused_with_advice(url: str) -> None:
    with pytest.raises(ValueError, match="http://host:port"):
        Httpx2Upstream(url, idle_s=1.0)


async def test_the_host_header_of_an_ipv6_engine_has_its_brackets() -> None:
    upstream = Httpx2Upstream("http://[::1]:8123/v1", idle_s=1.0)
    request = upstream.encode(WireRequest("GET", "/v1/models", (), b""), None)
    assert dict(request.headers)[b"host"] == b"[::1]:8123"
    assert (request.url.host, request.url.port) == (b"::1", 8123)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://engine.test", b"engine.test"),
        ("https://engine.test:443", b"engine.test"),
        ("https://engine.test:80", b"engine.test:80"),
    ],
)
async def test_the_usual_port_is_left_out_of_the_host_header(url: str, host: bytes) -> None:
    upstream = Httpx2Upstream(url, idle_s=1.0, verify=ssl.create_default_context())
    request = upstream.encode(WireRequest("GET", "/v1/models", (), b""), None)
    assert dict(request.headers)[b"host"] == host


def test_http2_without_its_package_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(_: str) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find_nothing)
    with pytest.raises(ValueError, match="pip install"):
        Httpx2Upstream("https://127.0.0.1:1", idle_s=1.0, http2=True)


# --- forward proxies of the environment


async def test_a_forward_proxy_gets_the_whole_url_and_its_credentials(
    proxy: RawPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://weir:p%40ss@127.0.0.1:{proxy.port}")
    upstream = Httpx2Upstream("http://engine.test:8000", idle_s=30.0)
    attempt = await _start(upstream)
    connection = await proxy.accept()
    for reused in (False, True):
        if reused:
            attempt = await _start(upstream)
        seen = await connection.read_request()
        assert seen.line == b"POST http://engine.test:8000/v1/chat/completions HTTP/1.1"
        assert seen.all(b"host") == [b"engine.test:8000"]
        assert seen.all(b"proxy-authorization") == [b"Basic d2VpcjpwQHNz"]
        assert seen.body == REQUEST.body
        await connection.send(OK)
        await attempt.until_ended()
        assert attempt.exchange.reused == reused
        await eventually(lambda: upstream.idle_connections == 1)
    await upstream.aclose()


async def test_an_engine_named_in_no_proxy_is_reached_directly(proxy: RawPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    upstream = Httpx2Upstream(f"http://127.0.0.1:{proxy.port}", idle_s=30.0)
    attempt = await _start(upstream)
    connection = await proxy.accept()
    assert (await connection.read_request()).line == b"POST /v1/chat/completions HTTP/1.1"
    await connection.send(OK)
    await attempt.until_ended()
    await upstream.aclose()


async def test_a_proxy_of_an_unknown_kind_is_refused_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "ftp://weir:secret@proxy.test")
    with pytest.raises(ValueError, match=r"ftp://proxy\.test") as caught:
        Httpx2Upstream("http://engine.test", idle_s=1.0)
    assert "secret" not in str(caught.value)


async def test_tls_goes_through_a_tunnel_of_the_proxy(
    proxy: RawPeer, monkeypatch: pytest.MonkeyPatch, tls: Tls
) -> None:
    server_tls, client_tls = tls
    server = await asyncio.start_server(_says_ok, "127.0.0.1", 0, ssl=server_tls)
    port = server.sockets[0].getsockname()[1]
    asked: list[bytes] = []

    async def tunnel(connection: PeerConnection) -> None:
        asked.append((await connection.read_head()).line)
        await connection.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(_copy_up(connection, writer), _copy_down(reader, connection))
        finally:
            writer.close()

    proxy.serve(tunnel)
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
    upstream = Httpx2Upstream(f"https://127.0.0.1:{port}", idle_s=30.0, verify=client_tls)
    for reused in (False, True):
        attempt = await _start(upstream)
        assert attempt.exchange.reused == reused
        assert 0 < attempt.exchange.connected_s <= attempt.exchange.sent_s
        await attempt.until_ended()
        assert attempt.body == b"ok"
        await eventually(lambda: upstream.idle_connections == 1)
    assert asked == [b"CONNECT 127.0.0.1:%d HTTP/1.1" % port]
    await upstream.aclose()
    await proxy.aclose()
    server.close()


async def test_a_proxy_that_refuses_is_a_connect_error_that_says_so(
    proxy: RawPeer, monkeypatch: pytest.MonkeyPatch, tls: Tls
) -> None:
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
    upstream = Httpx2Upstream("https://engine.test", idle_s=30.0, verify=tls[1])

    async def refuse(connection: PeerConnection) -> None:
        await connection.read_head()
        await connection.send(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
        await connection.until_closed()

    proxy.serve(refuse)
    with pytest.raises(TransportError, match="the forward proxy refused: 407") as caught:
        await _start(upstream)
    assert (caught.value.kind, caught.value.sent) == ("connect", False)
    await eventually(lambda: upstream.open_connections == 0)
    await upstream.aclose()


async def test_a_tunnel_that_never_opens_is_a_connect_timeout(
    proxy: RawPeer, monkeypatch: pytest.MonkeyPatch, tls: Tls
) -> None:
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
    upstream = Httpx2Upstream("https://engine.test", idle_s=30.0, verify=tls[1])
    with pytest.raises(TransportError) as caught:
        await upstream.send(REQUEST, Attempt(), connect_timeout_s=0.1)
    assert caught.value.kind == "connect_timeout"
    connection = await proxy.accept()
    await connection.until_closed()
    await upstream.aclose()


async def _copy_up(connection: PeerConnection, writer: asyncio.StreamWriter) -> None:
    while data := await connection.receive():
        writer.write(data)
    writer.write_eof()


async def _copy_down(reader: asyncio.StreamReader, connection: PeerConnection) -> None:
    while data := await reader.read(65536):
        await connection.send(data)


async def _says_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while await reader.readuntil(REQUEST.body):
            writer.write(OK)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
