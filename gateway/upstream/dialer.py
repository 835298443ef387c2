"""Opens connections to one host and port, whichever of its addresses answers."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TypeVar

from gateway.dead_peers import ENGINE_S, find_dead_peer

from .connect_reason import connect_reason
from .contract import TransportError
from .resolver import Address, Resolver

log = logging.getLogger("weir.upstream")

STAGGER_S = 0.25
"""So long an address may take before the next one is tried beside it (RFC 8305, section 5)."""
DOUBT_S = 60.0
"""So long an address that another one was quicker than is tried after the others."""

_TOLD_EVERY_S = 60.0

# What stands in our own way: no file, no memory, no thread. It says nothing of the engine.
_LOCAL = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EAGAIN))

# This machine has no way to the address. It says less than what another address of the same host answered.
_NO_WAY = frozenset((errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.EAFNOSUPPORT))

P = TypeVar("P", bound=asyncio.BaseProtocol)
Opened = tuple[asyncio.Transport, P]


class Dialer:
    """Opens connections to one host and port.

    Names are looked up beside the event loop. If a name has several addresses, the next one is tried when one refuses,
    or is silent for a moment, and those that did come last for a while.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._resolver = None if _is_address(host) else Resolver(host, port)
        self._doubted_until_s: dict[Address, float] = {}
        self._reached = False
        self._told_s = -inf

    async def connect(self, make: Callable[[], P], tls: ssl.SSLContext | None = None) -> Opened[P]:
        """Returns an open connection and its protocol, which may have been closed by the peer already.

        Args:
            make: Makes a protocol; called for each address that is tried.
            tls: If given, the TLS handshake is part of it.

        Raises:
            TransportError: ``connect``, or ``local`` where Weir's own machine has no file, port or memory for it.
        """
        try:
            opened = await self._connect(make, tls)
        except OSError as error:
            raise self._translated(error) from error
        self._reached = True
        transport, _ = opened
        if not transport.is_closing():
            with suppress(OSError):  # the engine closed it in this moment
                find_dead_peer(transport.get_extra_info("socket"), ENGINE_S, unread=True)
        return opened

    def no_connection(self, timeout_s: float) -> TransportError:
        """Returns what went wrong if the time is up now. To be asked before anything else is awaited."""
        why = f"no connection within {timeout_s:g} s"
        if self._resolver is not None and self._resolver.asks:
            why += f": the name {self._host} is still being looked up"
        return TransportError("connect_timeout", why, sent=False)

    async def _connect(self, make: Callable[[], P], tls: ssl.SSLContext | None) -> Opened[P]:
        if self._resolver is None:
            return await self._open(make, tls, (self._host, self._port))
        addresses = self._in_order(await self._resolver.addresses())
        if len(addresses) == 1:
            return await self._open(make, tls, addresses[0])
        return await self._race(make, tls, addresses)

    async def _open(self, make: Callable[[], P], tls: ssl.SSLContext | None, address: Address) -> Opened[P]:
        host, port, *_ = address
        if len(address) == 4 and address[3]:
            host = f"{host}%{address[3]}"  # without its scope, a link-local address is none that can be reached
        name = certified_name(self._host) if tls else None
        return await asyncio.get_running_loop().create_connection(make, host, port, ssl=tls, server_hostname=name)

    async def _race(self, make: Callable[[], P], tls: ssl.SSLContext | None, addresses: Sequence[Address]) -> Opened[P]:
        """Tries them in order, and the next one as soon as one has failed or taken too long. The first one wins."""
        loop = asyncio.get_running_loop()
        left = list(addresses)
        tries: dict[asyncio.Task[Opened[P]], Address] = {}
        failures: list[BaseException] = []
        try:
            while left or tries:
                if left:
                    address = left.pop(0)
                    tries[loop.create_task(self._open(make, tls, address))] = address
                done, _ = await asyncio.wait(
                    tries, timeout=STAGGER_S if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    error = task.exception()
                    if error is None:
                        winner = tries.pop(task)
                        self._doubt(addresses[: addresses.index(winner)])
                        return task.result()
                    del tries[task]
                    failures.append(error)
        finally:
            for task in tries:
                task.cancel()
                task.add_done_callback(_drop)
        raise min(failures, key=_tells_little)  # the first of those that tell most

    def _in_order(self, addresses: Sequence[Address]) -> Sequence[Address]:
        doubted = self._doubted_until_s
        if not doubted or len(addresses) == 1:
            return addresses
        now_s = monotonic()
        self._doubted_until_s = doubted = {known: until_s for known, until_s in doubted.items() if until_s > now_s}
        return sorted(addresses, key=doubted.__contains__)

    def _doubt(self, addresses: Sequence[Address]) -> None:
        for address in addresses:
            self._doubted_until_s[address] = monotonic() + DOUBT_S

    def _translated(self, error: OSError) -> TransportError:
        reason = connect_reason(error)
        # All ports are in use; but of an address that was never reached: this machine has no way to it
        no_port = error.errno == errno.EADDRNOTAVAIL and self._reached
        if not isinstance(error, socket.gaierror) and (error.errno in _LOCAL or no_port):
            self._tell(reason)
            return TransportError("local", f"Weir cannot open a connection: {reason}", sent=False)
        return TransportError("connect", f"cannot connect: {reason}", sent=False)

    def _tell(self, reason: str) -> None:
        now_s = monotonic()
        if now_s - self._told_s >= _TOLD_EVERY_S:
            self._told_s = now_s
            log.error(
                "no connection to %s:%d can be opened here: %s; no engine is to blame. Give Weir more open files"
                " (ulimit -n, LimitNOFILE), ports or memory, whichever it lacks",
                self._host,
                self._port,
                reason,
            )


def certified_name(host: str) -> str:
    """Returns the name that a host's certificate has: without the dot that ends a full one (RFC 6066, section 3)."""
    return host.removesuffix(".")


def _tells_little(failure: BaseException) -> int:
    """Returns the less, the more it tells of the engine: one that answered, though not well, was reached."""
    if isinstance(failure, ssl.SSLError):
        return 0
    return 2 if isinstance(failure, OSError) and failure.errno in _NO_WAY else 1


def _drop(task: asyncio.Task[Opened[P]]) -> None:
    """Closes what was opened too late."""
    if not task.cancelled() and task.exception() is None:
        transport, _ = task.result()
        transport.abort()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
