"""Connections to a host with several addresses, to one whose name nobody tells, and none for want of our own means."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import ssl
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import pytest

from gateway.upstream.contract import TransportError, Upstream
from gateway.upstream.dialer import Dialer
from gateway.upstream.native import NativeUpstream
from gateway.upstream.via_httpx2 import Httpx2Upstream
from tests.fakes.patience import WAIT_S
from tests.gateway.upstream.lab import OK, REQUEST, Attempt
from tests.gateway.upstream.raw_peer import RawPeer, eventually


class Engine:
    """Listens on several addresses of the loopback, on one port; some take no connection.

    Attributes:
        port: Of all of them.
    """

    def __init__(self) -> None:
        self.port = 0
        self._open = ExitStack()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def swallows(self, host: str) -> None:
        """Answers no SYN there: the queue of connections that nobody accepts is full."""
        listener = self._listener(host, backlog=0)
        while True:
            filler = self._open.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            if not _is_open(filler):
                return

    def answers(self, host: str) -> None:
        self._listener(host)  # the kernel takes the connections

    def refuses(self, host: str) -> None:
        self._listener(host).close()

    def _listener(self, host: str, backlog: int = 100) -> socket.socket:
        listener = self._open.enter_context(socket.create_server((host, self.port), backlog=backlog))
        self.port = listener.getsockname()[1]
        return listener


def _is_open(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


@pytest.fixture
def engine() -> Generator[Engine]:
    with Engine() as engine:
        yield engine


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> Generator[list[str]]:
    """What the name server says of every name; it is silent on those of ``silent.test``."""
    hosts: list[str] = []
    over = Event()

    def look_up(name: str, port: int, **__: object) -> list[object]:
        if name.endswith("silent.test"):
            over.wait(WAIT_S)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield hosts
    over.set()


def sockets() -> int:
    """Returns how many this process has."""
    links = (link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink())
    return sum(str(link).startswith("socket:") for link in links)


async def connected(dialer: Dialer) -> str:
    """Returns the address that a connection was opened to, and closes it."""
    transport, _ = await dialer.connect(asyncio.Protocol)
    host: str = transport.get_extra_info("peername")[0]
    transport.abort()
    return host


@pytest.mark.parametrize("bad", ["swallows", "refuses"])
async def test_an_address_that_gives_no_connection_is_passed_over_and_asked_last_from_then_on(
    engine: Engine, addresses: list[str], bad: str
) -> None:
    getattr(engine, bad)("127.0.0.2")
    engine.answers("127.0.0.3")
    engine.answers("127.0.0.4")
    addresses += ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
    dialer = Dialer("engine.test", engine.port)
    assert await connected(dialer) == "127.0.0.3"
    addresses[:] = ["127.0.0.2", "127.0.0.4"]
    dialer._resolver._known_s = 0.0  # type: ignore[union-attr]
    assert await connected(dialer) == "127.0.0.4"


async def test_addresses_that_are_well_are_asked_in_the_order_of_the_name_server(
    engine: Engine, addresses: list[str]
) -> None:
    engine.answers("127.0.0.2")
    engine.answers("127.0.0.3")
    addresses += ["127.0.0.3", "127.0.0.2"]
    assert await connected(Dialer("engine.test", engine.port)) == "127.0.0.3"


async def test_where_no_address_gives_one_the_first_ones_reason_is_told(engine: Engine, addresses: list[str]) -> None:
    engine.refuses("127.0.0.2")
    engine.refuses("127.0.0.3")
    addresses += ["127.0.0.2", "127.0.0.3"]
    with pytest.raises(TransportError, match="cannot connect: Connection refused") as raised:
        await connected(Dialer("engine.test", engine.port))
    assert raised.value.kind == "connect"


@pytest.mark.parametrize(
    ("first", "second", "told", "kind"),
    [
        (errno.EADDRNOTAVAIL, errno.ECONNREFUSED, "refused", "connect"),
        (errno.ENETUNREACH, errno.ECONNREFUSED, "refused", "connect"),
        (errno.ECONNREFUSED, errno.ENETUNREACH, "refused", "connect"),
        (errno.EADDRNOTAVAIL, errno.EADDRNOTAVAIL, "assign", "local"),
    ],
)
async def test_of_several_reasons_that_of_an_address_to_which_there_is_a_way_is_told(
    engine: Engine,
    addresses: list[str],
    monkeypatch: pytest.MonkeyPatch,
    first: int,
    second: int,
    told: str,
    kind: str,
) -> None:
    engine.answers("127.0.0.2")
    addresses += ["127.0.0.2", "127.0.0.3"]
    dialer = Dialer("engine.test", engine.port)
    await connected(dialer)

    async def fails(_: object, host: str, *__: object, **___: object) -> None:
        code = first if host == "127.0.0.2" else second
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fails)
    with pytest.raises(TransportError, match=told) as raised:
        await connected(dialer)
    assert raised.value.kind == kind


async def test_tls_that_fails_at_one_address_is_told_and_not_that_another_refuses(
    addresses: list[str], tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    peer = RawPeer()
    addresses += ["127.0.0.2", "127.0.0.1"]
    dialing = asyncio.ensure_future(Dialer("engine.test", peer.port).connect(asyncio.Protocol, tls[1]))
    await (await peer.accept()).send(OK)
    with pytest.raises(TransportError, match="does it speak TLS on this port"):
        await dialing
    await peer.aclose()


async def test_an_engine_that_closes_during_the_tls_handshake_is_told_as_such(
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    peer = RawPeer()
    dialing = asyncio.ensure_future(Dialer("127.0.0.1", peer.port).connect(asyncio.Protocol, tls[1]))
    connection = await peer.accept()
    await connection.receive()
    connection.close()
    with pytest.raises(TransportError, match="closed the connection during the TLS handshake"):
        await dialing
    await peer.aclose()


async def test_the_scope_of_an_address_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []

    async def fails(_: object, host: str, *__: object, **___: object) -> None:
        tried.append(host)
        raise OSError(errno.ECONNREFUSED, "Connection refused")

    def look_up(*_: object, **__: object) -> list[object]:
        found = [("fe80::1", 80, 0, 3), ("2001:db8::1", 80, 0, 0)]
        return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", each) for each in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fails)
    with pytest.raises(TransportError):
        await connected(Dialer("engine.local", 80))
    assert tried == ["fe80::1%3", "2001:db8::1"]


async def test_the_dot_that_ends_a_full_name_is_no_part_of_the_certificates_name(
    addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    named: list[object] = []

    async def fails(*_: object, server_hostname: str | None, **__: object) -> None:
        named.append(server_hostname)
        raise OSError(errno.ECONNREFUSED, "Connection refused")

    addresses.append("127.0.0.1")
    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fails)
    with pytest.raises(TransportError):
        await Dialer("engine.test.", 443).connect(asyncio.Protocol, ssl.create_default_context())
    assert named == ["engine.test"]


async def test_who_leaves_while_it_is_tried_leaves_nothing_open(engine: Engine, addresses: list[str]) -> None:
    engine.swallows("127.0.0.2")
    engine.swallows("127.0.0.3")
    addresses += ["127.0.0.2", "127.0.0.3"]
    before = sockets()
    dialing = asyncio.ensure_future(connected(Dialer("engine.test", engine.port)))
    await eventually(lambda: sockets() == before + 2)
    dialing.cancel()
    await eventually(lambda: sockets() == before)


async def test_a_machine_that_is_gone_without_a_word_is_found_out(engine: Engine) -> None:
    engine.answers("127.0.0.1")
    transport, _ = await Dialer("127.0.0.1", engine.port).connect(asyncio.Protocol)
    sock = transport.get_extra_info("socket")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
    assert [sock.getsockopt(socket.IPPROTO_TCP, name) for name in names] == [15, 5, 3, 30_000]
    transport.abort()


@pytest.mark.parametrize("transport", ["native", "httpx2"])
async def test_a_silent_name_server_holds_up_nobody_else(addresses: list[str], transport: str) -> None:
    def upstream(host: str, port: int) -> Upstream:
        if transport == "native":
            return NativeUpstream(host, port, tls=None, idle_s=0.0)
        return Httpx2Upstream(f"http://{host}:{port}", idle_s=0.0)

    silent = [upstream(f"{number}.silent.test", 80) for number in range(20)]
    asking = [asyncio.ensure_future(each.send(REQUEST, Attempt(), connect_timeout_s=0.5)) for each in silent]
    await asyncio.sleep(0)
    addresses.append("127.0.0.1")
    peer = RawPeer()
    well, attempt = upstream("localhost", peer.port), Attempt()
    sending = asyncio.ensure_future(well.send(REQUEST, attempt, connect_timeout_s=WAIT_S))
    connection = await peer.accept()
    attempt.sent(await sending)
    await connection.read_request()
    await connection.send(OK)
    await attempt.until_ended()
    await well.aclose()
    await peer.aclose()
    failures = await asyncio.gather(*asking, return_exceptions=True)
    for failure in failures:
        assert isinstance(failure, TransportError)
        assert failure.kind == "connect_timeout"
        assert "is still being looked up" in str(failure)
    for each in silent:
        await each.aclose()


@contextmanager
def no_more_files() -> Generator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
    taken: list[int] = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        pass
    try:
        yield
    finally:
        for file in taken:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_no_file_left_for_a_socket_is_no_fault_of_the_engines(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.answers("127.0.0.1")
    dialer = Dialer("127.0.0.1", engine.port)
    with no_more_files():
        for _ in range(3):
            with pytest.raises(TransportError, match="Too many open files") as raised:
                await connected(dialer)
            assert raised.value.kind == "local"
    assert len(caplog.records) == 1
    assert "no engine is to blame" in caplog.text
    assert await connected(dialer) == "127.0.0.1"


@pytest.mark.parametrize(("reached", "kind"), [(True, "local"), (False, "connect")])
async def test_ports_run_out_only_where_there_were_some(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, reached: bool, kind: str
) -> None:
    engine.answers("127.0.0.1")
    dialer = Dialer("127.0.0.1", engine.port)
    if reached:
        await connected(dialer)

    async def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fails)
    with pytest.raises(TransportError, match="Cannot assign") as raised:
        await connected(dialer)
    assert raised.value.kind == kind
