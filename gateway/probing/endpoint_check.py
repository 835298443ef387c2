"""Connects to every endpoint of a configuration once, and tells what is there and what is wrong."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ..config import Config
from ..endpoint import Endpoint
from ..fleet import Fleet
from ..pool import Pool
from ..printable import printable
from .engine_detection import Questioner, Recognised, recognise
from .listed_models import doubt

SHOWN_CHARS = 256


class Finding(NamedTuple):
    """What one endpoint turned out to be.

    Attributes:
        endpoint_id: Its id.
        url: Its URL, as configured.
        engine: The engine that answers, or "" if none was recognised.
        version: As the engine tells it, or "".
        models: The models that it lists, in its words.
        problems: What is wrong and what to do.
        warnings: What may be wrong.
    """

    endpoint_id: str
    url: str
    engine: str = ""
    version: str = ""
    models: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


async def check_endpoints(config: Config) -> list[Finding]:
    """Returns a finding for each endpoint, in the order of the configuration; asks all at the same time."""
    fleet = Fleet(config)
    try:
        return await asyncio.gather(
            *(
                _check(pool, index, endpoint)
                for pool in fleet.pools.values()
                for index, endpoint in enumerate(pool.endpoints.values())
            )
        )
    finally:
        await fleet.aclose()


async def _check(pool: Pool, index: int, endpoint: Endpoint) -> Finding:
    key = f"pools.{pool.name}.endpoints[{index}]"
    url, configured = endpoint.config.url, endpoint.config.engine
    questioner = Questioner(endpoint.questions, endpoint.question, pool.config.health.timeout_s)
    try:
        found = await recognise(questioner)
    except Exception as fault:  # whatever one endpoint sends, the others are told
        problem = f"{key}: could not be asked: {type(fault).__name__}"
        return Finding(endpoint.id, url, problems=(problem,))
    if found is None:
        hint = "is it running, is the url right, does it take the api_key?"
        reason = printable(questioner.failure, SHOWN_CHARS) or hint
        problem = f"{key}: no engine was recognised at {url}: {reason}"
        return Finding(endpoint.id, url, problems=(problem,))
    problems = [_contradiction(key, configured, found)] if found.contradicts(configured) else []
    warnings: list[str] = []
    if (about_model := doubt(found, configured, endpoint.engine_model)) is not None:
        (problems if about_model.certain else warnings).append(f"{key}.model: {about_model.words}")
    version = printable(found.version, SHOWN_CHARS)
    return Finding(endpoint.id, url, found.engine, version, found.models, tuple(problems), tuple(warnings))


def _contradiction(key: str, configured: str, found: Recognised) -> str:
    return f"{key}.engine: is {configured}, but {found.engine} answers there: write {found.engine}, or auto"
