"""Every test of this folder runs on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

from tests.gateway.client.connections import Connections, watched_connections


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    return watched_connections(monkeypatch)
