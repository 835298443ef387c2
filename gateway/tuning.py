"""When the garbage collector runs.

Requests leave no reference cycles behind, however they end (a test holds them to it), so that what they leave is freed
at once. An automatic collection would find nothing and hold all streams up for tens of milliseconds. It still runs, for
whatever else makes cycles, in a quiet moment, or when there is much to look at.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

PERIOD_S = 60.0
QUIET_OBJECTS = 50_000
BUSY_OBJECTS = 2_000_000


class Collections:
    """Collects by hand from now on. Runs as long as the loop does."""

    def __init__(self, in_flight: Callable[[], int]) -> None:
        self._in_flight = in_flight
        gc.collect()
        gc.freeze()  # what start-up made stays, and need not be looked at again
        gc.disable()
        self._wait()

    def _wait(self) -> None:
        asyncio.get_running_loop().call_later(PERIOD_S, self._check)

    def _check(self) -> None:
        new_objects = gc.get_count()[0]
        if new_objects > (BUSY_OBJECTS if self._in_flight() else QUIET_OBJECTS):
            gc.collect()
        self._wait()
