"""Every test of this folder runs on both event loops, those with a lab over both transports."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping

import pytest
import pytest_asyncio
import uvloop

from tests.fakes.certificate import certified
from tests.gateway.upstream.lab import TRANSPORTS, Lab


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def no_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(params=list(TRANSPORTS))
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest_asyncio.fixture
async def lab(transport: str) -> AsyncGenerator[Lab]:
    lab = Lab(transport)
    yield lab
    await lab.aclose()
    assert lab.breaches() == []


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context with a certificate for 127.0.0.1, and a client's that trusts it."""
    server, certificate = certified(tmp_path_factory.mktemp("tls"))
    return server, ssl.create_default_context(cafile=certificate)
