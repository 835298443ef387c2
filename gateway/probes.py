"""Background: asks every endpoint whether it can serve, and which engine it is."""

from __future__ import annotations

import asyncio
import logging
import random

import httpx2

from adapters import ADAPTERS

from .engine_detection import recognise
from .fleet import Endpoint, Fleet, Pool

log = logging.getLogger("weir.probes")


class Probes:
    """One task an endpoint, at the pool's interval; the first probe comes at once."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._tasks: list[asyncio.Task[None]] = []
        self._client: httpx2.AsyncClient | None = None

    def start(self) -> None:
        self._client = httpx2.AsyncClient(
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0), trust_env=False
        )
        for pool in self._fleet.pools.values():
            for endpoint in pool.endpoints.values():
                self._tasks.append(asyncio.get_running_loop().create_task(self._watch(pool, endpoint, self._client)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    async def _watch(self, pool: Pool, endpoint: Endpoint, client: httpx2.AsyncClient) -> None:
        rules = pool.config.health
        while True:
            failure = await self._probe(endpoint, client, rules.timeout_s)
            pool.probed(endpoint, failure)
            if failure is None and not endpoint.recognised:
                await self._recognise(endpoint, client, rules.timeout_s)
            # Jitter, so that many gateways do not ask an engine in step
            await asyncio.sleep(rules.interval_s * random.uniform(0.9, 1.1))

    async def _probe(self, endpoint: Endpoint, client: httpx2.AsyncClient, timeout_s: float) -> str | None:
        """Returns why the endpoint cannot serve, or None."""
        try:
            wire = endpoint.wire("GET", endpoint.adapter.health_path, b"", ())
            response = await client.get(endpoint.origin + wire.target, headers=[*wire.headers], timeout=timeout_s)
        except httpx2.TimeoutException:
            return f"no answer to a probe within {timeout_s:g} s"
        except httpx2.HTTPError as error:
            return f"probe failed: {type(error).__name__}"
        # A server that has no such path lives, and says no more
        return f"probe answered {response.status_code}" if response.status_code >= 500 else None

    async def _recognise(self, endpoint: Endpoint, client: httpx2.AsyncClient, timeout_s: float) -> None:
        found = await recognise(client, endpoint.origin + endpoint.config.base_path, timeout_s)
        if found is None:
            return
        endpoint.recognised = True
        endpoint.adapter = ADAPTERS.get(found.engine, endpoint.adapter)
        endpoint.engine_version = found.version
        log.info("endpoint %s is %s %s", endpoint.id, endpoint.adapter.name, found.version)
