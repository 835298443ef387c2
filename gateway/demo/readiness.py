"""Waiting for an engine until it answers."""

from __future__ import annotations

import asyncio

import httpx2

from .engine_process import EngineProcess

POLL_S = 0.05
ANSWER_S = 2.0


async def until_healthy(engine: EngineProcess, within_s: float) -> str:
    """Returns the engine's base URL once ``/health`` says 200.

    Raises:
        EngineFailed: The engine ended, or was not healthy within ``within_s``.
    """
    try:
        async with asyncio.timeout(within_s), httpx2.AsyncClient(trust_env=False, timeout=ANSWER_S) as client:
            while True:
                if engine.exit_status is not None:
                    raise engine.failed(f"ended with status {engine.exit_status} before it was ready")
                if engine.url is not None and await _healthy(client, engine.url):
                    return engine.url
                await asyncio.sleep(POLL_S)
    except TimeoutError as error:
        raise engine.failed(f"was not ready within {within_s:g} s") from error


async def _healthy(client: httpx2.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(f"{url}/health")).status_code == 200
    except httpx2.HTTPError:
        return False
