"""Which failures are worth another endpoint, how long to wait before it, and how many a pool may make."""

from __future__ import annotations

from typing import Literal

from .window import WINDOW_S, Window

Blame = Literal["client", "busy", "credential", "engine"]

ALWAYS_PER_SECOND = 3
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 1.0


def blame(status: int, *, own_path: bool = True, own_credential: bool = True) -> Blame:
    """Says whose fault a status is that is no success.

    Args:
        status: 300 to 599.
        own_path: The path is one of Weir's choice, not one that the client wished to be passed on.
        own_credential: The engine was shown the operator's credential or none, not the client's.

    ``client``: passed on, not retried, not counted. ``busy``: another endpoint may do it; not ejected. ``credential``:
    the engine refuses ours. ``engine``: another endpoint may do it, and it counts against this one.
    """
    if status in (401, 403):
        # A path may be forbidden to everybody; what is not known who asks is known of none
        return "credential" if own_credential and (own_path or status == 401) else "client"
    if status in (429, 503):
        return "busy"
    # Whatever one client's request can bring about must not take an endpoint from all the others. 501 is a feature
    # that the engine was not started with. Of the paths that it serves an engine redirects none.
    if status < 400:
        return "engine" if own_path else "client"
    return "engine" if status >= 500 and status != 501 else "client"


def wait_s(attempt: int, jitter: float) -> float:
    """Seconds before attempt 2, 3, ...: doubles from 25 to 50 ms; ``jitter`` is 0 to 1."""
    return min(_FIRST_WAIT_S * 2.0 ** (attempt - 2), _LONGEST_WAIT_S) * (0.5 + 0.5 * jitter)


class RetryBudget:
    """Further attempts as a share of a pool's requests over ten seconds; a few a second are always allowed.

    The time is an argument: the budget reads no clock.

    Attributes:
        ratio: The share.
        request: Counts a request's first attempt.
    """

    __slots__ = ("_requests", "_retries", "ratio", "request")

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio
        self._requests = Window()
        self._retries = Window()
        self.request = self._requests.add

    def take(self, now_s: float) -> bool:
        """Returns whether a further attempt may be made, and counts it if so."""
        allowed = max(self.ratio * self._requests.total(now_s), ALWAYS_PER_SECOND * WINDOW_S)
        if self._retries.total(now_s) >= allowed:
            return False
        self._retries.add(now_s)
        return True
