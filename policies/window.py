"""A count over the last ten seconds. The time is an argument: it reads no clock."""

from __future__ import annotations

WINDOW_S = 10


class Window:
    """A count over the last ten seconds, in buckets of one second."""

    __slots__ = ("_counts", "_place", "_second")

    def __init__(self) -> None:
        self._counts = [0] * WINDOW_S
        self._second = 0
        self._place = 0

    def add(self, now_s: float) -> None:
        if now_s - self._second >= 1.0:
            self._forget(int(now_s))
        self._counts[self._place] += 1

    def total(self, now_s: float) -> int:
        self._forget(int(now_s))
        return sum(self._counts)

    def _forget(self, second: int) -> None:
        for past in range(self._second + 1, min(second, self._second + WINDOW_S) + 1):
            self._counts[past % WINDOW_S] = 0
        self._second = max(second, self._second)
        self._place = self._second % WINDOW_S
