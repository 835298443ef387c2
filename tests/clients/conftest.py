"""One simulated engine of each dialect for all tests of this folder, and Weir in front of it for each."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass

import httpx2
import pytest
import pytest_asyncio

from gateway.config import Engine
from gateway.demo.listening import configuration, listen
from tests.clients.dialects import DIALECTS, engine_of, running_engine
from tests.fakes.scripted import eventually

READY_S = 30.0


@dataclass(frozen=True, slots=True)
class Behind:
    """An engine of one dialect.

    Attributes:
        url: Without ``/v1``.
    """

    dialect: Engine
    url: str


@dataclass(frozen=True, slots=True)
class Front:
    """Weir before such an engine.

    Attributes:
        base_url: With ``/v1``.
        log: Takes the access lines.
    """

    dialect: Engine
    base_url: str
    log: io.BytesIO

    async def outcomes(self, least: int) -> list[str]:
        """Waits until so many requests have ended, for the log is written a moment later; returns how each ended."""
        await eventually(lambda: self.log.getvalue().count(b"\n") >= least)
        return [json.loads(line)["outcome"] for line in self.log.getvalue().splitlines()]


@pytest.fixture(scope="session", params=DIALECTS)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Behind]:
    dialect: Engine = request.param
    with running_engine(dialect, tmp_path_factory.mktemp("engine")) as url:
        yield Behind(dialect, url)


@pytest_asyncio.fixture
async def weir(engine: Behind) -> AsyncGenerator[Front]:
    log = io.BytesIO()
    running = await listen(configuration(engine_of(engine.dialect), [engine.url]), 0, log, print)
    try:
        url = f"http://127.0.0.1:{running.port}"
        async with asyncio.timeout(READY_S), httpx2.AsyncClient(base_url=url) as client:
            while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110 - Weir's probes decide
                await asyncio.sleep(0.01)
        yield Front(engine.dialect, f"{url}/v1", log)
    finally:
        await running.stop()
