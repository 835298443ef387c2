"""One Weir in front of all engines of ``dialects``, for all tests of this folder."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

import httpx2
import pytest
import pytest_asyncio

from gateway.config import Config, EndpointConfig, PoolConfig, ShutdownConfig
from gateway.demo.listening import DRAIN_S, listen
from tests.clients.dialects import DIALECTS, REAL, Behind, simulated
from tests.fakes.scripted import eventually
from tests.live.real_engine import CHOSEN, RealEngines

READY_S = 30.0


@dataclass(frozen=True, slots=True)
class Front:
    """Weir before such engines.

    Attributes:
        behind: By the model name that clients ask for: the dialect, or ``REAL``.
        base_url: With ``/v1``.
        log: Takes the access lines.
    """

    behind: Mapping[str, Behind]
    base_url: str
    log: io.BytesIO

    async def outcomes(self, least: Mapping[str, int]) -> dict[str, list[str]]:
        """Returns by pool how each request ended.

        Waits until so many have, for the log is written a moment later; if they never do, there are fewer.
        """
        with suppress(TimeoutError):
            await eventually(lambda: all(len(self._ended(pool)) >= count for pool, count in least.items()))
        pools = {line["pool"] for line in self._lines()} | least.keys()
        return {pool: self._ended(pool) for pool in pools}

    def _ended(self, pool: str) -> list[str]:
        return [line["outcome"] for line in self._lines() if line["pool"] == pool]

    def _lines(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]


@pytest.fixture
def real(request: pytest.FixtureRequest) -> RealEngines | None:
    return None if CHOSEN == "llamacpp" else request.getfixturevalue("real_engines")


@pytest_asyncio.fixture
async def behind(real: RealEngines | None) -> AsyncGenerator[Mapping[str, Behind]]:
    if real is not None:
        yield {REAL: Behind(real.kind.engine, real.kind.model, real.urls)}
        return
    async with AsyncExitStack() as started:
        yield {dialect: await started.enter_async_context(simulated(dialect)) for dialect in DIALECTS}


def pool_of(engines: Behind) -> PoolConfig:
    made = [EndpointConfig(url=url, engine=engines.engine, model=engines.model) for url in engines.urls]
    return PoolConfig(endpoints=tuple(made))


@pytest_asyncio.fixture
async def weir(behind: Mapping[str, Behind]) -> AsyncGenerator[Front]:
    pools = {model: pool_of(engines) for model, engines in behind.items()}
    log = io.BytesIO()
    running = await listen(Config(pools=pools, shutdown=ShutdownConfig(drain_s=DRAIN_S)), 0, log, print)
    try:
        url = f"http://127.0.0.1:{running.port}"
        async with asyncio.timeout(READY_S), httpx2.AsyncClient(base_url=url) as client:
            while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110 - Weir's probes decide
                await asyncio.sleep(0.01)
        yield Front(behind, f"{url}/v1", log)
    finally:
        await running.stop()
