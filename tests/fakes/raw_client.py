"""A client on a raw socket: it sends exact bytes, notes each read with its time, and can leave in any manner.

It shares no code with Weir. Every wait is bounded.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.fakes.patience import WAIT_S


def r0(**changes: object) -> dict[str, Any]:
    """The cases' standard chat request."""
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    return body | changes


def t0(**changes: object) -> dict[str, Any]:
    """The same for ``/v1/completions``."""
    body: dict[str, Any] = {"model": "m", "prompt": "hi", "stream": True}
    return body | changes


def request_bytes(
    method: str,
    path: str,
    body: object = None,
    headers: Sequence[tuple[str, str]] = (),
) -> bytes:
    """One HTTP/1.1 request; ``body`` is bytes as they are, or a value to be sent as JSON."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.lower() for name, _ in headers}
    lines = [f"{method} {path} HTTP/1.1"]
    if "host" not in named:
        lines.append("host: weir.test")
    if body is not None and "content-type" not in named:
        lines.append("content-type: application/json")
    if body is not None and "content-length" not in named and "transfer-encoding" not in named:
        lines.append(f"content-length: {len(data)}")
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data


def chunked(data: bytes, size: int = 65_536) -> bytes:
    """A body in chunked coding."""
    parts = (data[i : i + size] for i in range(0, len(data), size))
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Block:
    """One SSE block: the lines up to a blank line."""

    fields: tuple[tuple[str, str], ...]
    comments: tuple[str, ...]

    @property
    def data(self) -> str | None:
        """The data lines joined, or None if the block has none."""
        lines = [value for name, value in self.fields if name == "data"]
        return "\n".join(lines) if lines else None


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back.

    Attributes:
        reads: Loop time and bytes of each read.
        whole: The body ended as HTTP says it must: last chunk, or all of its length.
    """

    reads: tuple[tuple[float, bytes], ...]
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    whole: bool

    @property
    def raw(self) -> bytes:
        return b"".join(data for _, data in self.reads)

    def header(self, name: str) -> str | None:
        """The first header of that (lower case) name."""
        return next((value for key, value in self.headers if key == name), None)

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object of a JSON answer."""
        found: dict[str, Any] = self.json()["error"]
        return found

    @property
    def blocks(self) -> list[Block]:
        """The SSE blocks of the body; what follows the last blank line is not one."""
        return sse_blocks(self.body)

    @property
    def payloads(self) -> list[str]:
        return [block.data for block in self.blocks if block.data is not None]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """Each data payload parsed, ``[DONE]`` left out."""
        return [json.loads(payload) for payload in self.payloads if payload != "[DONE]"]

    @property
    def done(self) -> bool:
        return "[DONE]" in self.payloads

    @property
    def stream_error(self) -> dict[str, Any] | None:
        """The error object of an error event, or None."""
        return next((chunk["error"] for chunk in self.chunks if "error" in chunk), None)

    def content(self, index: int = 0) -> str:
        """The text at that index, chat or completions, joined."""
        return "".join(_text_of(choice) for choice in self.choices(index))

    def choices(self, index: int = 0) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for chunk in self.chunks:
            choices: list[dict[str, Any]] = chunk.get("choices") or []
            found += [choice for choice in choices if choice.get("index") == index]
        return found

    def finishes(self, index: int = 0) -> list[str]:
        return [choice["finish_reason"] for choice in self.choices(index) if choice.get("finish_reason")]


def _text_of(choice: Mapping[str, Any]) -> str:
    delta: Mapping[str, Any] = choice.get("delta") or {}
    text: str = delta.get("content") or choice.get("text") or ""
    return text


def sse_blocks(body: bytes) -> list[Block]:
    """Parses an event stream as the WHATWG standard says, bytes decoded only as whole lines."""
    lines = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    blocks: list[Block] = []
    fields: list[tuple[str, str]] = []
    comments: list[str] = []
    for line in lines[:-1]:
        if not line:
            if fields or comments:
                blocks.append(Block(tuple(fields), tuple(comments)))
            fields, comments = [], []
        elif line.startswith(b":"):
            comments.append(line[1:].strip().decode())
        else:
            name, _, value = line.decode().partition(":")
            fields.append((name, value.removeprefix(" ")))
    return blocks


class RawConnection:
    """One socket to the gateway. Reads are kept; parse them with ``reply``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.reads: list[tuple[float, bytes]] = []
        self.ended = False

    @property
    def received(self) -> bytes:
        return b"".join(data for _, data in self.reads)

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        async with asyncio.timeout(WAIT_S):
            await self._writer.drain()

    async def read_until(self, condition: Callable[[bytes], bool] | bytes, within_s: float = WAIT_S) -> bytes:
        """Reads until the received bytes hold the marker (or meet the condition) or the peer closes."""
        async with asyncio.timeout(within_s):
            while not self.ended:
                got = self.received
                if condition in got if isinstance(condition, bytes) else condition(got):
                    break
                await self._read()
        return self.received

    async def reply(self, within_s: float = WAIT_S, method: str = "POST") -> Reply:
        """Reads one answer to its end: last chunk, length, or close."""
        async with asyncio.timeout(within_s):
            while not self.ended:
                parsed = _parse(self.received, self.ended, method)
                if parsed.whole:
                    break
                if parsed.chunked_bytes:
                    await self._last_chunk(parsed.chunked_bytes)
                    break
                await self._read()
        parsed = _parse(self.received, self.ended, method)
        return Reply(tuple(self.reads), parsed.status, parsed.headers, parsed.body, parsed.whole)

    async def _last_chunk(self, chunked_bytes: int) -> None:
        """Reads until the last chunk has come, of those that begin so far before the end of what has been received.

        Chunk by chunk, as to parse a long stream anew at each read would take longer than the stream.
        """
        coming = bytearray(self.received[-chunked_bytes:])
        at, whole = _walk(coming, 0)
        while not (whole or self.ended):
            await self._read()
            if not self.ended:
                coming += self.reads[-1][1]
                at, whole = _walk(coming, at)

    def close(self) -> None:
        """Leaves with a FIN."""
        self._writer.close()

    def reset(self) -> None:
        """Leaves with a RST."""
        peer: socket.socket = self._writer.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def _read(self) -> None:
        try:
            data = await self._reader.read(262_144)
        except ConnectionResetError:
            data = b""
        if data:
            self.reads.append((asyncio.get_running_loop().time(), data))
        else:
            self.ended = True


@asynccontextmanager
async def connect(port: int) -> AsyncGenerator[RawConnection]:
    """A connection that is closed on the way out."""
    async with asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.transport.abort()


@dataclass(frozen=True, slots=True)
class _Parsed:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    whole: bool
    chunked_bytes: int = 0  # how much of the data is in chunked coding


def _parse(data: bytes, ended: bool, method: str) -> _Parsed:
    """Parses what there is of an answer."""
    top, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        return _Parsed(0, (), b"", False)
    status_line, *rows = top.decode("latin-1").split("\r\n")
    status = int(status_line.split(" ")[1])
    if 100 <= status < 200:
        return _parse(rest, ended, method)
    headers = tuple((name.lower(), value.strip()) for name, _, value in (row.partition(":") for row in rows))
    named: Mapping[str, str] = dict(headers)
    if method == "HEAD" or status in (204, 304):
        return _Parsed(status, headers, b"", True)
    if named.get("transfer-encoding", "").lower() == "chunked":
        return _Parsed(status, headers, *_dechunk(rest), len(rest))
    if "content-length" in named:
        length = int(named["content-length"])
        body, whole = rest[:length], len(rest) >= length
    else:
        body, whole = rest, ended
    return _Parsed(status, headers, body, whole)


def _walk(data: bytearray, at: int) -> tuple[int, bool]:
    """Goes from one chunk to the next; returns where the first begins that is not there, and if the last one is."""
    while (line_end := data.find(b"\r\n", at)) >= 0:
        size = int(bytes(data[at:line_end]).split(b";")[0], 16)
        start = line_end + 2
        if size == 0:
            return at, data.startswith(b"\r\n", start) or data.find(b"\r\n\r\n", start) >= 0
        if len(data) < start + size + 2:
            break
        at = start + size + 2
    return at, False


def _dechunk(data: bytes) -> tuple[bytes, bool]:
    """Takes chunked coding off; True if the last chunk and its trailers are there."""
    body = bytearray()
    start = 0
    while True:
        line_end = data.find(b"\r\n", start)
        if line_end < 0:
            return bytes(body), False
        size = int(data[start:line_end].split(b";")[0], 16)
        start = line_end + 2
        if size == 0:
            return bytes(body), data.startswith(b"\r\n", start) or b"\r\n\r\n" in data[start:]
        body += data[start : start + size]
        start += size + 2
