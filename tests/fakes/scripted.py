"""A scripted engine on a raw socket: every byte, pause and ending of its answers is written down in the test.

A script is a list of steps, each written to the socket alone:

    [head(200, "sse"), role(), tok("a"), pause(0.1), tok("b", index=1), fin("stop"), usage(5, 2), done(), end()]

It shares no code with Weir, so a fault in Weir's HTTP cannot hide here.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, cast

from tests.fakes.patience import WAIT_S
from tests.fakes.script import (
    CREATED_UNIX_S,
    ENGINE_MODEL,
    Body,
    Finish,
    Flood,
    Gate,
    Head,
    Pause,
    Script,
    Step,
    Wire,
    chat_stream,
    chunk,
    comment,
    completion,
    cut,
    delta,
    done,
    end,
    eof,
    event,
    fin,
    flood,
    gate,
    hang,
    head,
    joined,
    json_answer,
    pause,
    raw,
    role,
    rst,
    text,
    text_completion,
    text_stream,
    text_usage,
    to_json,
    tok,
    usage,
    usage_object,
    wire,
)

__all__ = [
    "CREATED_UNIX_S",
    "ENGINE_MODEL",
    "NOT_FOUND",
    "PLAIN",
    "VLLM",
    "Answer",
    "Body",
    "Finish",
    "Flood",
    "Gate",
    "Head",
    "Pause",
    "Request",
    "Script",
    "ScriptedUpstream",
    "Step",
    "Wire",
    "chat_stream",
    "chunk",
    "comment",
    "completion",
    "cut",
    "delta",
    "done",
    "end",
    "eof",
    "event",
    "eventually",
    "fin",
    "flood",
    "gate",
    "hang",
    "head",
    "in_turn",
    "joined",
    "json_answer",
    "pause",
    "raw",
    "role",
    "rst",
    "silent_listener",
    "text",
    "text_completion",
    "text_stream",
    "text_usage",
    "to_json",
    "tok",
    "unused_port",
    "usage",
    "usage_object",
    "wire",
]


async def eventually(condition: Callable[[], bool], within_s: float = WAIT_S) -> None:
    """Polls until the condition holds; TimeoutError when it does not in time."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - the condition belongs to code that knows no event
            await asyncio.sleep(0.002)


@dataclass(slots=True, eq=False)
class Request:
    """One request as it came in.

    Attributes:
        line: The request line.
        headers: Names and values in order, as sent.
        arrived_s: Loop time at which its last byte came.
        turn: 1 for the first request on its connection, 2 for the next.
        left: The peer closed the socket of this request, before or after the answer.
        finished: The script ran to its end.
        held_back: The peer read so slowly that the script had to wait for it.
        flooded: Bodies that a ``Flood`` has written.
    """

    line: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    arrived_s: float
    turn: int = 1
    left: asyncio.Event = field(default_factory=asyncio.Event)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    held_back: asyncio.Event = field(default_factory=asyncio.Event)
    flooded: int = 0

    @property
    def method(self) -> str:
        return self.line.split(b" ")[0].decode()

    @property
    def target(self) -> str:
        return self.line.split(b" ")[1].decode()

    def header(self, name: str) -> bytes | None:
        """The first header of that name, in whatever case it came."""
        wanted = name.lower().encode()
        return next((value for key, value in self.headers if key.lower() == wanted), None)

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def asked_for_stream(self) -> bool:
        return bool(self.body) and self.json().get("stream") is True


Answer = Callable[[Request], Script]

NOT_FOUND: Script = json_answer({"detail": "Not Found"}, 404)
"""What a GET path outside ``/v1/`` answers that is not in ``PLAIN``: the engine lacks what a probe looks for."""

PLAIN: Mapping[str, Script] = {
    "/health": [head(200, "", length=0), end()],
    "/version": json_answer({"version": "0.33.0"}),
    "/ready": [head(200, "", length=0), end()],
    "/metrics": [head(200, "text", length=0), end()],
    "/v1/models": json_answer(
        {"object": "list", "data": [{"id": ENGINE_MODEL, "object": "model", "created": 1, "owned_by": "scripted"}]}
    ),
    "/v1/loads": NOT_FOUND,
}
"""What an engine's GET paths answer when the test says nothing. It names itself nothing known: the configured it is."""

VLLM: Mapping[str, Script] = {
    "/v1/models": json_answer(
        {"object": "list", "data": [{"id": ENGINE_MODEL, "object": "model", "created": 1, "owned_by": "vllm"}]}
    ),
    "/version": json_answer({"version": "0.33.0"}),
}
"""The same of one that names itself."""


def in_turn(*scripts: Script) -> Answer:
    """One script a request, the last one repeated; may be shared by several upstreams."""
    taken = 0

    def answer(_: Request) -> Script:
        nonlocal taken
        taken += 1
        return scripts[min(taken, len(scripts)) - 1]

    return answer


class ScriptedUpstream:
    """Listens on a free port of 127.0.0.1 and answers by script.

    Args:
        scripts: One script a request, the last one repeated, or one function from a request to its script.
        plain: Scripts of GET paths; they replace those of ``PLAIN``.

    Attributes:
        requests: Everything that a script of the test answered, in order of arrival.
        probes: The GET requests answered by ``PLAIN``, ``plain`` or ``NOT_FOUND``.
        connections: Sockets accepted so far.
    """

    def __init__(self, *scripts: Script | Answer, plain: Mapping[str, Script] | None = None) -> None:
        first = scripts[0]
        self._answer = first if callable(first) else in_turn(*cast("tuple[Script, ...]", scripts))
        self._plain = {**PLAIN, **(plain or {})}
        self._server: asyncio.Server | None = None
        self._open: set[_Connection] = set()
        self._told = asyncio.Event()  # of a connection
        self.requests: list[Request] = []
        self.probes: list[Request] = []
        self.connections = 0
        self.port = 0
        self.failures: list[BaseException] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        return len(self._open)

    @property
    def last(self) -> Request:
        return self.requests[-1]

    async def arrived(self, count: int = 1, within_s: float = WAIT_S) -> Request:
        """Waits for that many requests; returns the last of them."""
        await eventually(lambda: len(self.requests) >= count, within_s)
        return self.requests[count - 1]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(lambda: _Connection(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        await self._all_told()
        self._server.close()
        for connection in list(self._open):
            connection.transport.abort()
        await eventually(lambda: not self._open)
        if self.failures and error is None:
            raise self.failures[0]

    async def _all_told(self) -> None:
        """Waits until asyncio has told of all it has accepted: if the server closes before, it forgets their sockets.

        One more connection is told of after all that came before it.
        """
        last, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, "127.0.0.1", self.port)
        name = last.get_extra_info("sockname")
        while not any(connection.transport.get_extra_info("peername") == name for connection in self._open):
            self._told.clear()
            await self._told.wait()
        last.abort()

    def opened(self, connection: _Connection) -> None:
        self.connections += 1
        self._open.add(connection)
        self._told.set()

    def closed(self, connection: _Connection) -> None:
        self._open.discard(connection)

    def script_for(self, request: Request) -> Script:
        path = request.target.split("?")[0]
        if request.method == "GET" and (path in self._plain or not path.startswith("/v1/")):
            self.probes.append(request)
            return self._plain.get(path, NOT_FOUND)
        self.requests.append(request)
        return self._answer(request)


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, upstream: ScriptedUpstream) -> None:
        self._upstream = upstream
        self._unread = bytearray()
        self._request: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._turns = 0
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._upstream.opened(self)

    def data_received(self, data: bytes) -> None:
        self._unread += data
        self._next_request()

    def eof_received(self) -> None:
        self._peer_left()

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer_left()
        self._writable.set()
        if self._task is not None:
            self._task.cancel()
        self._upstream.closed(self)

    def pause_writing(self) -> None:
        self._writable.clear()
        if self._request is not None:
            self._request.held_back.set()

    def resume_writing(self) -> None:
        self._writable.set()

    def _peer_left(self) -> None:
        if self._request is not None:
            self._request.left.set()

    def _next_request(self) -> None:
        if self._task is not None and not self._task.done():
            return
        request = _take_request(self._unread)
        if request is None:
            return
        self._turns += 1
        request.turn = self._turns
        self._request = request
        script = tuple(self._upstream.script_for(request))  # the test may change its list while this one is played
        self._task = asyncio.get_running_loop().create_task(self._play(request, script))
        self._task.add_done_callback(self._played)

    def _played(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._upstream.failures.append(error)
            self.transport.abort()
        else:
            self._next_request()

    async def _play(self, request: Request, script: Script) -> None:
        chunked = False
        by_close = False
        for step in script:
            match step:
                case Head():
                    chunked = step.chunked
                    by_close = not step.chunked and step.length_bytes is None
                    await self._write(_head_bytes(step))
                case Body():
                    await self._write(_body_bytes(step, chunked))
                case Flood(body):
                    while not (request.held_back.is_set() or self.transport.is_closing()):
                        made = body(request.flooded)
                        request.flooded += 1
                        await self._write(_body_bytes(made, chunked))
                case Wire(data):
                    await self._write(data)
                case Pause(seconds):
                    await asyncio.sleep(seconds)
                case Gate(event=opened):
                    await opened.wait()
                case Finish("end"):
                    if chunked:
                        await self._write(b"0\r\n\r\n")
                    if by_close:
                        self.transport.close()
                case Finish("eof"):
                    self.transport.close()
                case Finish("rst"):
                    self._reset()
                case _:
                    await asyncio.Event().wait()
        request.finished.set()

    async def _write(self, data: bytes) -> None:
        """Writes in one call and lets the peer, who may live in this event loop, read it before the next."""
        if self.transport.is_closing():
            return
        self.transport.write(data)
        await self._writable.wait()
        for _ in range(2):
            await asyncio.sleep(0)

    def _reset(self) -> None:
        peer: socket.socket = self.transport.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


def _body_bytes(step: Body, chunked: bool) -> bytes:
    return b"%x\r\n%b\r\n" % (len(step.data), step.data) if chunked and step.data else step.data


def _head_bytes(step: Head) -> bytes:
    lines = [f"HTTP/1.1 {step.status} Scripted", *(f"{name}: {value}" for name, value in step.headers)]
    if step.chunked:
        lines.append("transfer-encoding: chunked")
    elif step.length_bytes is not None:
        lines.append(f"content-length: {step.length_bytes}")
    else:
        lines.append("connection: close")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def _take_request(unread: bytearray) -> Request | None:
    """Takes one whole request off the buffer, or nothing while it is not whole."""
    stop = unread.find(b"\r\n\r\n")
    if stop < 0:
        return None
    line, *rest = bytes(unread[:stop]).split(b"\r\n")
    headers = [(name, value.strip()) for name, _, value in (row.partition(b":") for row in rest)]
    lower = {name.lower(): value for name, value in headers}
    if lower.get(b"transfer-encoding", b"").lower() == b"chunked":
        found = _take_chunked(unread, stop + 4)
        if found is None:
            return None
        body, used = found
    else:
        used = stop + 4 + int(lower.get(b"content-length", b"0"))
        if len(unread) < used:
            return None
        body = bytes(unread[stop + 4 : used])
    del unread[:used]
    return Request(line, headers, body, asyncio.get_running_loop().time())


def _take_chunked(unread: bytearray, start: int) -> tuple[bytes, int] | None:
    body = bytearray()
    while True:
        line_end = unread.find(b"\r\n", start)
        if line_end < 0:
            return None
        size = int(bytes(unread[start:line_end]).split(b";")[0], 16)
        start = line_end + 2
        if len(unread) < start + size + 2:
            return None
        body += unread[start : start + size]
        start += size + 2
        if size == 0:
            return bytes(body), start


def unused_port() -> int:
    """A port of 127.0.0.1 on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def silent_listener() -> Generator[int]:
    """A port whose accept queue is full: a connection to it is neither made nor refused."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port: int = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
            yield port
        finally:
            for filler in fillers:
                filler.close()
