"""Background: asks an engine how it is set up, once, or which models it holds, again and again."""

from __future__ import annotations

import logging
import time

from adapters.engine_facts import NO_FACTS, EngineFacts, FactSource, fact_source
from adapters.types import AdapterError

from ..endpoint import Endpoint
from ..printable import printable
from .engine_detection import Questioner
from .engine_loads import ABSENT, CAUSE_CHARS, REST
from .fact_sample import NO_FACT_SAMPLE, FactSample

log = logging.getLogger("weir.engine_facts")


class FactWatch:
    """Keeps the facts of one endpoint, with one question open at a time.

    Args:
        endpoint: Gets the facts.
        timeout_s: For each answer.
    """

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        self._endpoint = endpoint
        self._questioner = Questioner(endpoint.questions, endpoint.question, timeout_s)
        self._source: FactSource | None = None
        self._settled = False
        self._not_before_s = 0.0
        self._told: set[str] = set()

    def recognised(self) -> None:
        """The engine was recognised anew: it may have been started in another way."""
        self._settled = False

    async def sample(self) -> None:
        """Asks, unless it is too early, or there is nothing left to ask. What is not answered is not known any more."""
        source = fact_source(self._endpoint.adapter.name)
        if source is not self._source:
            self._source, self._settled = source, False
        if source is None:
            return
        asked_s = time.perf_counter()
        if not self._settled:
            if asked_s < self._not_before_s:
                return
            facts = await self._ask(source)
            now_s = time.perf_counter()
            self._not_before_s = now_s + REST * (now_s - asked_s)
            self._endpoint.facts = FactSample(facts, asked_s) if facts != NO_FACTS else NO_FACT_SAMPLE
            self._settled = self._settled or (source.lasting and facts != NO_FACTS)
        self._endpoint.missing.asked(source.tells, told=self._endpoint.facts.facts != NO_FACTS)

    async def _ask(self, source: FactSource) -> EngineFacts:
        reply = await self._questioner.ask(source.path)
        if reply is None:
            return self._untold(source, printable(self._questioner.failure, CAUSE_CHARS))
        if reply.status in ABSENT:
            self._settled = True
        if reply.status != 200:
            return self._untold(source, f"status {reply.status}")
        if reply.too_long:
            return self._untold(source, "the answer is too long")
        try:
            facts = source.read(reply.body)
        except AdapterError as error:
            return self._untold(source, str(error))
        return self._untold(source, "the answer does not have it") if facts == NO_FACTS else facts

    def _untold(self, source: FactSource, cause: str) -> EngineFacts:
        """Logs each cause once."""
        if cause not in self._told:
            self._told.add(cause)
            log.info("endpoint %s does not tell its %s at %s: %s", self._endpoint.id, source.tells, source.path, cause)
        return NO_FACTS
