"""The engines of ``dialects`` for all tests of this folder, and Weir in front of them for each."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from typing import Literal

import httpx2
import pytest
import pytest_asyncio

from gateway.config import Engine
from gateway.demo.listening import configuration, listen
from tests.clients.dialects import DIALECTS, LACKS, REAL, REAL_LACKS, Behind, engine_of, running_engine
from tests.fakes.scripted import eventually
from tests.live.real_engine import CHOSEN, RealEngines

READY_S = 30.0


@dataclass(frozen=True, slots=True)
class Front:
    """Weir before such engines.

    Attributes:
        base_url: With ``/v1``.
        log: Takes the access lines.
    """

    behind: Behind
    base_url: str
    log: io.BytesIO

    @property
    def model(self) -> str:
        return self.behind.kind.model

    async def outcomes(self, least: int) -> list[str]:
        """Waits until so many requests have ended, for the log is written a moment later; returns how each ended."""
        await eventually(lambda: self.log.getvalue().count(b"\n") >= least)
        return [json.loads(line)["outcome"] for line in self.log.getvalue().splitlines()]


@pytest.fixture(scope="session")
def truth_url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """A simulated engine: to the same prompt, all of them answer the same."""
    with running_engine("openai", tmp_path_factory.mktemp("truth")) as url:
        yield url


@pytest.fixture(scope="session", params=DIALECTS if CHOSEN == "llamacpp" else (REAL,))
def behind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Behind]:
    dialect: Engine | Literal["real"] = request.param
    if dialect == REAL:
        engines: RealEngines = request.getfixturevalue("real_engines")
        yield Behind(engines.kind, engines.urls, REAL_LACKS, engines.urls[0])
        return
    truth_url: str = request.getfixturevalue("truth_url")
    with running_engine(dialect, tmp_path_factory.mktemp("engine")) as url:
        yield Behind(engine_of(dialect), (url,), LACKS.get(dialect, frozenset()), truth_url)


@pytest_asyncio.fixture
async def weir(behind: Behind) -> AsyncGenerator[Front]:
    log = io.BytesIO()
    running = await listen(configuration(behind.kind, behind.urls), 0, log, print)
    try:
        url = f"http://127.0.0.1:{running.port}"
        async with asyncio.timeout(READY_S), httpx2.AsyncClient(base_url=url) as client:
            while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110 - Weir's probes decide
                await asyncio.sleep(0.01)
        yield Front(behind, f"{url}/v1", log)
    finally:
        await running.stop()
