"""Two real llama.cpp engines for all tests of this folder, and Weir in front of them for each."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack

import openai
import pytest
import pytest_asyncio

from gateway.demo import engine_kind
from gateway.demo.engine_process import EngineProcess
from gateway.demo.installation import NotInstalled, find_model
from gateway.demo.listening import configuration, listen
from gateway.demo.readiness import until_healthy

ENGINES = 2


@pytest.fixture(scope="session")
def engine_urls(tmp_path_factory: pytest.TempPathFactory) -> Generator[list[str]]:
    try:
        kind = engine_kind.llamacpp(find_model(), ENGINES)
    except NotInstalled as error:
        pytest.skip(str(error))
    logs = tmp_path_factory.mktemp("engines")
    with ExitStack() as started:
        engines = [
            started.enter_context(
                EngineProcess(f"engine {number}", kind.module, kind.arguments, logs / f"{number}.log")
            )
            for number in range(ENGINES)
        ]
        yield [asyncio.run(until_healthy(engine, kind.start_s)) for engine in engines]


@pytest_asyncio.fixture
async def base_url(engine_urls: list[str]) -> AsyncGenerator[str]:
    """Weir's URL with ``/v1``."""
    kind = engine_kind.EngineKind("llama.cpp", "llamacpp", engine_kind.MODEL, "", (), 0.0)
    weir = await listen(configuration(kind, engine_urls), 0, io.BytesIO(), print)
    yield f"http://127.0.0.1:{weir.port}/v1"
    await weir.stop()


@pytest_asyncio.fixture
async def client(base_url: str) -> AsyncGenerator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=50) as client:
        yield client
