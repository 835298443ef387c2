"""How late the event loop is: what holds it up holds every stream up."""

from __future__ import annotations

import asyncio
from time import perf_counter

from .histogram import Distribution

PERIOD_S = 0.1


class LoopLag:
    """Observes the lateness of a timer, from ``start`` to ``stop``."""

    def __init__(self, lag: Distribution) -> None:
        self._lag = lag
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due_s = perf_counter() + PERIOD_S
        self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._came)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _came(self) -> None:
        self._lag.observe(max(perf_counter() - self._due_s, 0.0))
        self.start()
