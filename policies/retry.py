"""Which failures are worth another endpoint, how long to wait before it, and how many a pool may make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Blame = Literal["client", "busy", "credential", "engine"]

WINDOW_S = 10
ALWAYS_PER_SECOND = 3
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 1.0


def blame(status: int) -> Blame:
    """Says whose fault an engine's error status is.

    ``client``: passed on, not retried, not counted. ``busy``: another endpoint may do it; not ejected. ``credential``:
    the engine refuses ours. ``engine``: another endpoint may do it, and it counts against this one.
    """
    if status in (401, 403):
        return "credential"
    if status in (429, 503):
        return "busy"
    # Whatever one client's request can bring about must not take an endpoint from all the others. 501 is a feature
    # that the engine was not started with.
    return "engine" if status >= 500 and status != 501 else "client"


def wait_s(attempt: int, jitter: float) -> float:
    """Seconds before attempt 2, 3, ...: doubles from 25 to 50 ms; ``jitter`` is 0 to 1."""
    return min(_FIRST_WAIT_S * 2.0 ** (attempt - 2), _LONGEST_WAIT_S) * (0.5 + 0.5 * jitter)


@dataclass(slots=True)
class RetryBudget:
    """Further attempts as a share of a pool's requests over ten seconds; a few a second are always allowed.

    The time is an argument: the budget reads no clock.
    """

    ratio: float
    _requests: _Window
    _retries: _Window

    @classmethod
    def of(cls, ratio: float) -> RetryBudget:
        return cls(ratio, _Window(), _Window())

    def request(self, now_s: float) -> None:
        """Counts a request's first attempt."""
        self._requests.add(now_s)

    def take(self, now_s: float) -> bool:
        """Returns whether a further attempt may be made, and counts it if so."""
        allowed = max(self.ratio * self._requests.total(now_s), ALWAYS_PER_SECOND * WINDOW_S)
        if self._retries.total(now_s) >= allowed:
            return False
        self._retries.add(now_s)
        return True


class _Window:
    """A count over the last ten seconds, in buckets of one second."""

    __slots__ = ("_counts", "_second")

    def __init__(self) -> None:
        self._counts = [0] * WINDOW_S
        self._second = 0

    def add(self, now_s: float) -> None:
        second = int(now_s)
        if second != self._second:
            self._forget(second)
        self._counts[second % WINDOW_S] += 1

    def total(self, now_s: float) -> int:
        self._forget(int(now_s))
        return sum(self._counts)

    def _forget(self, second: int) -> None:
        for past in range(self._second + 1, min(second, self._second + WINDOW_S) + 1):
            self._counts[past % WINDOW_S] = 0
        self._second = max(second, self._second)
