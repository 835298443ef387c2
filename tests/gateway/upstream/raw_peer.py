"""A scripted HTTP peer on raw sockets: the test decides every byte, pause, reset and close, and sees what comes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.fakes.patience import WAIT_S

# How long a socket must stay full before the reader counts as stopped.
STANDSTILL_S = 0.2
_BUFFER_BYTES = 65536


async def eventually(condition: Callable[[], bool]) -> None:
    """Polls until the condition holds; fails after ``WAIT_S``."""
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "the awaited state never came"
        await asyncio.sleep(0.001)


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request as it came: request line, headers in their order, body."""

    line: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key.lower() == name]


class PeerConnection:
    """The peer's end of one connection. Each method gives up after ``WAIT_S``."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._seen = b""
        self._loop = asyncio.get_running_loop()

    async def read_head(self) -> RawRequest:
        """Reads a request up to the blank line; what came of the body stays unread."""
        while b"\r\n\r\n" not in self._seen:
            data = await self.receive()
            assert data, "closed before a whole request head came"
            self._seen += data
        head, self._seen = self._seen.split(b"\r\n\r\n", 1)
        line, *lines = head.split(b"\r\n")
        pairs = (entry.split(b":", 1) for entry in lines)
        return RawRequest(line, tuple((name, value.strip()) for name, value in pairs), b"")

    async def read_request(self, *, at_most_bytes: int = _BUFFER_BYTES) -> RawRequest:
        """Reads a whole request, so many bytes at a time."""
        head = await self.read_head()
        length = int(next(iter(head.all(b"content-length")), b"0"))
        body = bytearray(self._seen)
        while len(body) < length:
            data = await self.receive(at_most_bytes)
            assert data, f"closed after {len(body)} of {length} bytes of the request body"
            body += data
        self._seen = bytes(body[length:])
        return RawRequest(head.line, head.headers, bytes(body[:length]))

    async def receive(self, at_most_bytes: int = _BUFFER_BYTES) -> bytes:
        """Returns what came, b"" when the other side closed or reset."""
        async with asyncio.timeout(WAIT_S):
            try:
                return await self._loop.sock_recv(self._sock, at_most_bytes)
            except ConnectionError:
                return b""

    async def until_closed(self) -> None:
        """Waits until the other side is gone."""
        while await self.receive():
            pass

    async def send(self, data: bytes) -> None:
        async with asyncio.timeout(WAIT_S):
            await self._loop.sock_sendall(self._sock, data)

    async def send_byte_by_byte(self, data: bytes) -> None:
        for index in range(len(data)):
            await self.send(data[index : index + 1])
            await asyncio.sleep(0)

    async def send_until_full(self, data: bytes) -> int:
        """Sends until the other side takes no more. Returns the number of bytes that it took."""
        taken = 0
        full_since_s: float | None = None
        while taken < len(data):
            try:
                taken += self._sock.send(data[taken : taken + _BUFFER_BYTES])
                full_since_s = None
            except BlockingIOError:
                now_s = time.monotonic()
                full_since_s = full_since_s or now_s
                if now_s - full_since_s > STANDSTILL_S:
                    break
            await asyncio.sleep(0.001)
        return taken

    def close(self) -> None:
        """Closes as a server does; the kernel makes it a reset if bytes of the request were left unread."""
        self._sock.close()

    def reset(self) -> None:
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()


class RawPeer:
    """A listening socket on loopback, whose connections the test accepts and serves by hand."""

    def __init__(self, *, backlog: int = 128) -> None:
        self._sock = socket.socket()
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self._sock.setblocking(False)
        self._sock.bind(("127.0.0.1", 0))
        self._sock.listen(backlog)
        self._connections: list[PeerConnection] = []
        self._fillers: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.port: int = self._sock.getsockname()[1]

    @property
    def accepted(self) -> int:
        return len(self._connections)

    async def accept(self) -> PeerConnection:
        async with asyncio.timeout(WAIT_S):
            sock, _ = await asyncio.get_running_loop().sock_accept(self._sock)
        connection = PeerConnection(sock)
        self._connections.append(connection)
        return connection

    def serve(self, script: Callable[[PeerConnection], Awaitable[None]]) -> None:
        """Runs the script on each connection from now on, until the peer is closed."""
        self._spawn(self._accept_for(script))

    async def _accept_for(self, script: Callable[[PeerConnection], Awaitable[None]]) -> None:
        while True:
            sock, _ = await asyncio.get_running_loop().sock_accept(self._sock)
            connection = PeerConnection(sock)
            self._connections.append(connection)
            self._spawn(self._run(script, connection))

    async def _run(self, script: Callable[[PeerConnection], Awaitable[None]], connection: PeerConnection) -> None:
        with contextlib.suppress(ConnectionError, AssertionError):  # it left while the script spoke or listened
            await script(connection)
        connection.close()

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def fill_backlog(self) -> None:
        """Takes every place in the queue of connections: from now on the kernel leaves connecting unanswered."""
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", self.port))
            self._fillers.append(filler)

    def stop_listening(self) -> None:
        self._sock.close()

    async def aclose(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._sock.close()
        for filler in self._fillers:
            filler.close()
        for connection in self._connections:
            connection.close()
