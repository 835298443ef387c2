"""Background: asks every endpoint whether it can serve, which engine it is, and how busy."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import traceback
from typing import NamedTuple

from adapters import ADAPTERS
from adapters.loading import READ_BYTES, probe_says_loading

from ..endpoint import Endpoint
from ..fleet import Fleet
from ..pool import Pool
from ..printable import printable
from ..small_answer import fetch
from ..upstream.contract import TransportError
from .engine_detection import MOST_QUESTIONS, Questioner, Recognised, recognise
from .engine_facts import FactWatch
from .engine_loads import LoadWatch
from .listed_models import doubt

log = logging.getLogger("weir.probes")

VERSION_CHARS = 64


class Probed(NamedTuple):
    """What came of one probe.

    Attributes:
        failure: Why the endpoint cannot serve; None if it can.
        loads: It is only because it loads its model.
        status: Of its answer; None without one.
    """

    failure: str | None
    loads: bool = False
    status: int | None = None


class NotAsked(Exception):
    """Weir's own machine let no connection be opened: that tells nothing of an endpoint."""


class Probes:
    """One task an endpoint, at the pool's interval; the first probe comes at once."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._tasks: list[asyncio.Task[None]] = []
        self._told: set[tuple[str, str]] = set()

    def start(self) -> None:
        for pool in self._fleet.pools.values():
            for endpoint in pool.endpoints.values():
                self._tasks.append(asyncio.get_running_loop().create_task(self._watch(pool, endpoint)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, pool: Pool, endpoint: Endpoint) -> None:
        rules = pool.config.health
        load = LoadWatch(endpoint, rules.timeout_s)
        facts = FactWatch(endpoint, rules.timeout_s)
        status: int | None = None
        while True:
            try:
                probed = await self._probe(endpoint, rules.timeout_s)
            except NotAsked:
                await asyncio.sleep(rules.interval_s)
                continue
            except Exception as fault:
                self._unforeseen(endpoint, fault)
                probed = Probed(f"probe failed: {type(fault).__name__}")
            if probed.loads:
                pool.loading(endpoint)
            else:
                pool.probed(endpoint, probed.failure)
            # Jitter, so that many gateways do not ask an engine in step
            pause_s = rules.interval_s * random.uniform(0.9, 1.1)
            if probed.failure is not None or probed.status != status:
                endpoint.recognised = False  # what comes back may be another version, or another engine
            status = probed.status
            if probed.failure is None:
                try:
                    if not endpoint.recognised and await self._recognise(endpoint, rules.timeout_s):
                        load.recognised()
                        facts.recognised()
                        endpoint.own.restarted()
                    asked_s = time.monotonic()
                    await load.sample()
                    await facts.sample()
                    pause_s -= time.monotonic() - asked_s  # an engine slow to tell its load is probed as often
                except Exception as fault:
                    self._unforeseen(endpoint, fault)
            await asyncio.sleep(max(pause_s, 0.0))

    def _unforeseen(self, endpoint: Endpoint, fault: Exception) -> None:
        """Logs a fault without its words, which may be the engine's; whatever it sends, it is probed again."""
        name = type(fault).__name__
        if (endpoint.id, name) not in self._told:
            self._told.add((endpoint.id, name))
            frames = "".join(traceback.format_tb(fault.__traceback__))
            log.error("a probe of endpoint %s failed by a fault of Weir's: %s\n%s", endpoint.id, name, frames)

    async def _probe(self, endpoint: Endpoint, timeout_s: float) -> Probed:
        """Asks whether the endpoint can serve.

        Raises:
            NotAsked: Weir could not.
        """
        question = endpoint.question(endpoint.adapter.health_path)
        try:
            answer = await fetch(endpoint.questions, question, timeout_s, READ_BYTES, lambda status: status >= 500)
        except TimeoutError:
            return Probed(f"no answer to a probe within {timeout_s:g} s")
        except TransportError as error:
            if error.kind == "local":
                raise NotAsked from error
            return Probed(f"probe failed: {error}")
        status = answer.head.status
        # A server that has no such path lives, and says no more
        if status < 500:
            return Probed(None, status=status)
        loads = probe_says_loading(endpoint.adapter.name, status, answer.body)
        return Probed(f"probe answered {status}", loads, status)

    async def _recognise(self, endpoint: Endpoint, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(MOST_QUESTIONS * timeout_s):
                found = await recognise(Questioner(endpoint.questions, endpoint.question, timeout_s))
        except TimeoutError:
            return False
        if found is None:
            return False
        endpoint.recognised = True
        _settle(endpoint, found)
        about_model = doubt(found, endpoint.config.engine, endpoint.engine_model)
        if about_model is not None and about_model.certain and (endpoint.id, about_model.words) not in self._told:
            self._told.add((endpoint.id, about_model.words))
            log.warning("endpoint %s: %s", endpoint.id, about_model.words)
        return True


def _settle(endpoint: Endpoint, found: Recognised) -> None:
    """Speaks to the endpoint as the engine that it is, whatever the configuration says, and logs what is news."""
    configured = endpoint.config.engine
    before = (endpoint.adapter, endpoint.engine_version)
    wrong = found.contradicts(configured)
    engine = found.engine if wrong or configured == "auto" else configured
    version = printable(found.version, VERSION_CHARS) if found.engine == engine else ""
    endpoint.speak(ADAPTERS.get(engine, endpoint.adapter), version)
    if (endpoint.adapter, endpoint.engine_version) == before:
        return
    name = f"{engine} {version}".strip()
    if wrong:
        log.warning(
            "endpoint %s is %s and not %s, as the configuration says: Weir speaks %s to it; correct its engine",
            endpoint.id,
            name,
            configured,
            endpoint.adapter.name,
        )
    else:
        log.info("endpoint %s is %s", endpoint.id, name)
