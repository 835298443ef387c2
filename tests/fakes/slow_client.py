"""A client whose socket takes few bytes, so that one that does not read is felt soon."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.fakes.patience import WAIT_S
from tests.fakes.raw_client import RawConnection, Reply

WINDOW_BYTES = 16_384


class SlowConnection(RawConnection):
    """A raw connection that can also read an answer of many megabytes in reasonable time."""

    async def rest(self, *tails: bytes, within_s: float = WAIT_S) -> Reply:
        """Reads until what has come ends with one of these, or the peer closes."""
        end = b""
        async with asyncio.timeout(within_s):
            while not end.endswith(tails or b"0\r\n\r\n") and not self.ended:
                await self._read()
                end = (end + self.reads[-1][1])[-64:]
        return await self.reply(within_s)


@asynccontextmanager
async def connect_slow(port: int) -> AsyncGenerator[SlowConnection]:
    """A connection with a small receive buffer; nothing is read until the test reads."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW_BYTES)
    sock.setblocking(False)
    async with asyncio.timeout(WAIT_S):
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=WINDOW_BYTES)
    try:
        yield SlowConnection(reader, writer)
    finally:
        writer.transport.abort()
