"""Weir in front of the real engines, anew for each test."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator

import openai
import pytest
import pytest_asyncio

from gateway.demo.listening import configuration, listen
from tests.live.real_engine import RealEngines


@pytest.fixture
def engine_urls(real_engines: RealEngines) -> tuple[str, ...]:
    return real_engines.urls


@pytest_asyncio.fixture
async def base_url(real_engines: RealEngines) -> AsyncGenerator[str]:
    """Weir's URL with ``/v1``."""
    weir = await listen(configuration(real_engines.kind, real_engines.urls), 0, io.BytesIO(), print)
    yield f"http://127.0.0.1:{weir.port}/v1"
    await weir.stop()


@pytest_asyncio.fixture
async def client(base_url: str) -> AsyncGenerator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=50) as client:
        yield client
