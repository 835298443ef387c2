"""Timers of everything that is under way, on one tick: a timer of its own would cost a request several microseconds.

A wheel of buckets: a tick looks at what is due in it and at nothing else, so that quiet streams cost nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from math import inf
from typing import Protocol

log = logging.getLogger("weir.deadlines")

TICK_S = 0.05


class Watched(Protocol):
    """Something with a deadline.

    Attributes:
        due_s: Monotonic time at which ``on_due`` is to be called. May be moved later at any moment, and never
            earlier.
    """

    due_s: float

    def on_due(self, now_s: float) -> None:
        """The time has come; sets ``due_s`` anew, or is done."""
        ...


class Deadlines:
    """Calls what is due, at most two ticks late. Ticks only while something is watched.

    What is added waits in a list for the next tick, and most of it is over by then: only what lives longer is sorted
    into a bucket.
    """

    def __init__(self) -> None:
        self._new: list[Watched] = []
        self._buckets: dict[int, set[Watched]] = {}
        self._bucket_of: dict[Watched, int] = {}
        self._next = 0  # the first bucket that no tick has looked at
        self._timer: asyncio.TimerHandle | None = None

    def add(self, watched: Watched) -> None:
        self._new.append(watched)
        if self._timer is None:
            self._next = int(time.perf_counter() / TICK_S)
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def discard(self, watched: Watched) -> None:
        """Watches it no more."""
        watched.due_s = inf
        bucket = self._bucket_of.pop(watched, None)
        if bucket is not None:
            members = self._buckets[bucket]
            members.discard(watched)
            if not members:
                del self._buckets[bucket]

    def _tick(self) -> None:
        now_s = time.perf_counter()
        now = int(now_s / TICK_S)
        new, self._new = self._new, []
        for watched in new:
            if watched.due_s != inf:  # most have ended
                self._sort(watched)
        due = [watched for bucket in range(self._next, now + 1) for watched in self._buckets.get(bucket, ())]
        self._next = now + 1
        for watched in due:
            if watched.due_s <= now_s:
                try:
                    watched.on_due(now_s)
                except Exception:
                    log.exception("a timer failed; the others go on")
                    self.discard(watched)
            self._sort(watched)
        busy = self._bucket_of or self._new
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick) if busy else None

    def _sort(self, watched: Watched) -> None:
        """Puts it into the bucket that it is due in; nowhere if it has ended."""
        due_s = watched.due_s
        self.discard(watched)
        if due_s == inf:
            return
        watched.due_s = due_s
        bucket = max(int(due_s / TICK_S) + 1, self._next)
        self._bucket_of[watched] = bucket
        self._buckets.setdefault(bucket, set()).add(watched)
