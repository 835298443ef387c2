"""Lets the other workers know what this one is at, twice a second."""

from __future__ import annotations

import asyncio

from ..metrics import Metrics

PERIOD_S = 0.5


class Publisher:
    """Publishes from ``start`` to ``stop``."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._metrics.publish()
        self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self.start)

    def stop(self) -> None:
        """Publishes for the last time."""
        if self._timer is not None:
            self._timer.cancel()
        self._metrics.publish()
