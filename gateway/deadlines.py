"""Timers of everything that is under way, by one tick: a timer of its own would cost a request several microseconds."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

TICK_S = 0.05


class Watched(Protocol):
    """Something with a deadline.

    Attributes:
        due_s: Monotonic time at which ``on_due`` is to be called. It may be set to another time at any moment.
    """

    due_s: float

    def on_due(self, now_s: float) -> None:
        """The time has come; sets ``due_s`` anew, or is done."""
        ...


class Deadlines:
    """Calls what is due, at most ``TICK_S`` late. Ticks only while something is watched."""

    def __init__(self) -> None:
        self._watched: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, watched: Watched) -> None:
        self._watched.add(watched)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def discard(self, watched: Watched) -> None:
        self._watched.discard(watched)

    def _tick(self) -> None:
        now_s = time.perf_counter()
        for watched in [each for each in self._watched if each.due_s <= now_s]:
            watched.on_due(now_s)
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick) if self._watched else None
