"""The server's side of every connection to a gateway of the test."""

from __future__ import annotations

import asyncio
import weakref

import pytest

from gateway.asgi_relay import RelayProtocol
from tests.fakes.raw_client import RawConnection
from tests.fakes.scripted import eventually


class Connections:
    """What the clients' connections have come to.

    Attributes:
        open: How many are open.
        reads: Reads from clients so far.
    """

    def __init__(self) -> None:
        self.open = 0
        self.reads = 0
        self._made: list[weakref.ref[RelayProtocol]] = []  # weak: whoever counts garbage must not keep it

    def made(self, protocol: RelayProtocol) -> None:
        self.open += 1
        self._made.append(weakref.ref(protocol))

    @property
    def last(self) -> RelayProtocol:
        protocol = self._made[-1]()
        assert protocol is not None
        return protocol

    async def take_apart(self, client: RawConnection, *parts: bytes) -> None:
        """Sends each part so that it is read alone."""
        for part in parts:
            await self._take(client, part)

    async def _take(self, client: RawConnection, part: bytes) -> None:
        before = self.reads
        await client.send(part)
        await eventually(lambda: self.reads > before)


def watched_connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    """Lets every gateway that is started from now on tell of its connections."""
    seen = Connections()
    made, lost, received = RelayProtocol.connection_made, RelayProtocol.connection_lost, RelayProtocol.data_received

    def connection_made(self: RelayProtocol, transport: asyncio.Transport) -> None:
        made(self, transport)
        seen.made(self)

    def connection_lost(self: RelayProtocol, exc: Exception | None) -> None:
        lost(self, exc)
        seen.open -= 1

    def data_received(self: RelayProtocol, data: bytes) -> None:
        received(self, data)
        seen.reads += 1

    monkeypatch.setattr(RelayProtocol, "connection_made", connection_made)
    monkeypatch.setattr(RelayProtocol, "connection_lost", connection_lost)
    monkeypatch.setattr(RelayProtocol, "data_received", data_received)
    return seen
