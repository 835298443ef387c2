"""One short question to an engine, asked beside the requests, whose answer is kept whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from .upstream.contract import ResponseHead, TransportError, Upstream, WireRequest

MOST_BYTES = 8 * 1024 * 1024


class SmallAnswer(NamedTuple):
    """What was answered.

    Attributes:
        head: Its head.
        body: What was read of it, uncompressed: b"" where the status says that nobody wants it.
        too_long: It has more than was to be read.
    """

    head: ResponseHead
    body: bytes
    too_long: bool


async def fetch(
    upstream: Upstream,
    wire: WireRequest,
    within_s: float,
    most_bytes: int = MOST_BYTES,
    wanted: Callable[[int], bool] = lambda status: True,
) -> SmallAnswer:
    """Asks a question.

    Args:
        upstream: Carries it.
        wire: What is asked.
        within_s: For all of it, however slowly it drips in.
        most_bytes: The most that is read of the body.
        wanted: Whether it is to be read, by the status.

    Raises:
        TransportError: There was no answer.
        TimeoutError: Not in time.
    """
    sink = _Sink(most_bytes, wanted)
    async with asyncio.timeout(within_s):
        # Its own limit is not to be reached before ours
        exchange = await upstream.send(wire, sink, connect_timeout_s=2 * within_s)
        try:
            return await sink.answer
        finally:
            exchange.abort()


class _Sink:
    """Implements ``upstream.contract.Sink``.

    Attributes:
        answer: Resolves to it.
    """

    def __init__(self, most_bytes: int, wanted: Callable[[int], bool]) -> None:
        self.answer: asyncio.Future[SmallAnswer] = asyncio.get_running_loop().create_future()
        self._most_bytes = most_bytes
        self._wanted = wanted
        self._head: ResponseHead | None = None
        self._body = bytearray()

    def on_head(self, head: ResponseHead) -> None:
        self._head = head
        if not self._wanted(head.status):
            self._end()

    def on_body(self, data: bytes) -> None:
        if not self.answer.done():
            self._body += data
            if len(self._body) > self._most_bytes:
                self._end(too_long=True)

    def on_end(self) -> None:
        self._end()

    def on_error(self, error: TransportError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def _end(self, *, too_long: bool = False) -> None:
        assert self._head is not None
        if not self.answer.done():
            self.answer.set_result(SmallAnswer(self._head, bytes(self._body[: self._most_bytes]), too_long))
