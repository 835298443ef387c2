"""The addresses of one host, as the system's resolver tells them, without waiting for a name server that is silent.

The event loop's own look-ups share a few threads, which one silent name server fills for everybody, and which a
process that ends waits for.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from threading import Thread
from time import monotonic
from typing import cast

FRESH_S = 1.0
"""So long an answer is used again without asking."""
PATIENCE_S = 0.5
"""So long a look-up may take before the answer of an earlier one is used instead."""

# EAI_FAIL is what glibc makes of a name server that refuses to answer, as forwarders do while they have nobody to ask
_CANNOT_NOW = frozenset((socket.EAI_AGAIN, socket.EAI_FAIL))

Address = tuple[str, int] | tuple[str, int, int, int]
"""What a socket connects to: host and port, of IPv6 also flow and scope."""


class Resolver:
    """Looks one name up, once for all that ask at the same time.

    An answer that is no longer true is used only while the name server gives none, or says that it cannot now.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._known: tuple[Address, ...] = ()
        self._known_s = -inf
        self._question: asyncio.Future[tuple[Address, ...]] | None = None
        self._asked_s = 0.0

    @property
    def asks(self) -> bool:
        """Whether a look-up is under way."""
        return self._question is not None

    async def addresses(self) -> tuple[Address, ...]:
        """Returns at least one address, in the resolver's order.

        Raises:
            OSError: The name has none, or the resolver failed and never told any.
        """
        now_s = monotonic()
        if now_s - self._known_s < FRESH_S:
            return self._known
        question = self._question or self._ask(now_s)
        timeout_s = max(self._asked_s + PATIENCE_S - now_s, 0.0) if self._known else None
        await asyncio.wait((question,), timeout=timeout_s)  # unlike the question itself, it may be cancelled
        if not question.done():
            return self._known
        error = question.exception()
        if error is None:
            return question.result()
        if self._known and isinstance(error, socket.gaierror) and error.errno in _CANNOT_NOW:
            return self._known
        raise error

    def _ask(self, now_s: float) -> asyncio.Future[tuple[Address, ...]]:
        loop = asyncio.get_running_loop()
        question: asyncio.Future[tuple[Address, ...]] = loop.create_future()
        # A thread of a pool would be waited for when the process ends
        thread = Thread(
            target=_look_up, args=(loop, question, self._host, self._port), name="weir-resolver", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, "no thread can be started to look its name up") from error
        self._question, self._asked_s = question, now_s
        question.add_done_callback(self._answered)
        return question

    def _answered(self, question: asyncio.Future[tuple[Address, ...]]) -> None:
        self._question = None
        if question.exception() is None:  # seen now, though nobody may wait for it any more
            self._known, self._known_s = question.result(), monotonic()


def _look_up(
    loop: asyncio.AbstractEventLoop, question: asyncio.Future[tuple[Address, ...]], host: str, port: int
) -> None:
    """Runs in its thread."""
    tell: Callable[[], None]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        tell = partial(question.set_exception, error)
    except UnicodeError:
        tell = partial(question.set_exception, OSError(errno.EINVAL, "its name is none that can be looked up"))
    else:
        addresses = tuple(dict.fromkeys(cast(Address, address) for *_, address in found))
        tell = partial(question.set_result, addresses)
    with suppress(RuntimeError):  # the loop is closed: nobody waits
        loop.call_soon_threadsafe(tell)
