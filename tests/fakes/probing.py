"""Weir's background probes of one endpoint, without the rest of Weir."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from gateway.config import Config
from gateway.endpoint import Endpoint
from gateway.fleet import Fleet
from gateway.probing.probes import Probes


@asynccontextmanager
async def probing(url: str, engine: str, *, within: str = "20s", **options: Any) -> AsyncGenerator[Endpoint]:
    """Probes the endpoint every 10 ms for as long as the block runs.

    Args:
        url: Of the endpoint, whose id is ``m-0``.
        engine: What the configuration says that it is.
        within: How long an answer to a probe may take.
        options: More keys of the endpoint's configuration.
    """
    rules = {"interval": "10ms", "timeout": within}
    pool = {"endpoints": [{"url": url, "engine": engine, **options}], "health": rules}
    fleet = Fleet(Config.model_validate({"pools": {"m": pool}}))
    probes = Probes(fleet)
    probes.start()
    try:
        yield fleet.pools["m"].endpoints["m-0"]
    finally:
        await probes.stop()
        await fleet.aclose()
