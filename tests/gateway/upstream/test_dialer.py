"""Connections to a host with several addresses, to one whose name nobody tells, and none for want of our own means."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
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
    with pytest.raises(TransportError, match="cannot connect: Conn") as raised:
        await connected(Dialer("engine.test", engine.port))
    assert raised.value.kind == "connect"


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
