"""One short question to an engine, asked beside a request over the endpoint's own connections."""

from __future__ import annotations

import asyncio

from .endpoint import Endpoint
from .upstream.contract import ResponseHead, TransportError, WireRequest

MOST_BYTES = 8 * 1024 * 1024


async def ask(endpoint: Endpoint, wire: WireRequest, within_s: float) -> bytes | None:
    """Returns the body of a 200; None if there is none in time, or it is larger than ``MOST_BYTES``."""
    sink = _Body()
    try:
        async with asyncio.timeout(within_s):
            exchange = await endpoint.upstream.send(wire, sink, connect_timeout_s=within_s)
            try:
                return await sink.whole
            finally:
                exchange.abort()
    except (TransportError, TimeoutError):
        return None


class _Body:
    """Implements ``upstream.contract.Sink``.

    Attributes:
        whole: The body in the end; None of what is no good answer.
    """

    def __init__(self) -> None:
        self.whole: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._parts: list[bytes] = []
        self._room_bytes = MOST_BYTES

    def on_head(self, head: ResponseHead) -> None:
        if head.status != 200:
            self._end(None)

    def on_body(self, data: bytes) -> None:
        self._room_bytes -= len(data)
        if self._room_bytes < 0:
            self._end(None)
        elif not self.whole.done():
            self._parts.append(data)

    def on_end(self) -> None:
        self._end(b"".join(self._parts))

    def on_error(self, error: TransportError) -> None:
        self._end(None)

    def _end(self, body: bytes | None) -> None:
        if not self.whole.done():
            self.whole.set_result(body)
