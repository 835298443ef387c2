"""Background: asks an engine how busy it is. What it says is kept with its time; what it does not say stays unknown."""

from __future__ import annotations

import logging
import time

from adapters.engine_load import UNKNOWN, EngineLoad, LoadSource, load_sources, promised
from adapters.types import AdapterError

from ..endpoint import Endpoint
from ..printable import printable
from .engine_detection import Questioner
from .load_sample import LoadSample

log = logging.getLogger("weir.engine_loads")

ANSWER_BYTES = 4_194_304
"""The most that is read of an answer. vLLM writes 70 kB for each of its ranks; a megabyte is searched in 1 ms."""
REST = 10
"""An engine is left alone for so many times as long as it took to answer."""
CAUSE_CHARS = 200
ABSENT = frozenset((404, 405, 501))
"""Statuses of a path that the engine does not have, as it is or as it was started."""


class LoadWatch:
    """Keeps the load of one endpoint, with one question open at a time.

    Args:
        endpoint: Gets the samples.
        timeout_s: For each answer.
    """

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        self._endpoint = endpoint
        self._questioner = Questioner(endpoint.questions, endpoint.question, timeout_s, ANSWER_BYTES)
        self._absent: set[str] = set()
        self._known: dict[str, tuple[str, EngineLoad]] = {}
        self._not_before_s = 0.0
        self._told: set[tuple[str, str]] = set()

    def recognised(self) -> None:
        """The engine was recognised anew: it may have now what it did not have."""
        self._absent.clear()
        self._known.clear()

    async def sample(self) -> None:
        """Asks for the load, unless it is too early; a failure leaves the last sample as it is."""
        asked_s = time.perf_counter()
        if asked_s < self._not_before_s:
            return
        load = UNKNOWN
        for source in load_sources(self._endpoint.adapter.name):
            if source.path not in self._absent and source.adds_to(load):
                load = load.completed_by(await self._ask(source))
        for figure in promised(self._endpoint.adapter.name):
            self._endpoint.missing.asked(figure, told=getattr(load, figure) is not None)
        if load != UNKNOWN:
            self._endpoint.load = LoadSample(load, asked_s)
        now_s = time.perf_counter()
        self._not_before_s = now_s + REST * (now_s - asked_s)

    async def _ask(self, source: LoadSource) -> EngineLoad:
        etag, known = self._known.get(source.path, ("", UNKNOWN))
        reply = await self._questioner.ask(source.path, etag)
        if reply is None:
            return self._untold(source, printable(self._questioner.failure, CAUSE_CHARS))
        if reply.status == 304 and etag:
            return known
        if reply.status in ABSENT:
            self._absent.add(source.path)
            return self._untold(source, f"status {reply.status}", logging.INFO)
        if reply.status != 200:
            return self._untold(source, f"status {reply.status}")
        if reply.too_long:
            return self._untold(source, f"the answer has more than {ANSWER_BYTES} bytes")
        try:
            load = source.read(reply.body)
        except AdapterError as error:
            return self._untold(source, str(error))
        if load == UNKNOWN:
            return self._untold(source, "the answer has no such figures", logging.INFO)
        if reply.etag:
            self._known[source.path] = reply.etag, load
        else:
            self._known.pop(source.path, None)
        return load

    def _untold(self, source: LoadSource, cause: str, level: int = logging.WARNING) -> EngineLoad:
        """Logs each cause once."""
        if (source.path, cause) not in self._told:
            self._told.add((source.path, cause))
            log.log(level, "endpoint %s does not tell its load at %s: %s", self._endpoint.id, source.path, cause)
        return UNKNOWN
