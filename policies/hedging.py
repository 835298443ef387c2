"""When a second attempt begins beside a first one that has said nothing: after how long, how often, and when never."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from .quantile import LogHistogram
from .types import EndpointSnapshot, PoolView
from .window import Window

SAMPLES_NEEDED = 50
# Starts that were saved up, at most: a burst of slow answers may use them at once.
MOST_CREDIT = 10.0
# If so many times more requests than the quantile says come late, it is no tail: the whole pool is slow.
_NO_TAIL_TIMES = 4.0
_FEW = 20
# So many times the pool's average is what chance alone makes of it; but one or two are few anywhere.
_ROOM = 2.0

Withheld = Literal["failing", "saturated", "busy", "budget"]


class HedgeRules(NamedTuple):
    """What the configuration says.

    Attributes:
        share: Second attempts as a share of the requests; more than 0.
        quantile: A request is late when its first output takes longer than this share of them.
        least_s: And longer than this.
    """

    share: float
    quantile: float
    least_s: float


def late_after_s(waits: LogHistogram | None, rules: HedgeRules) -> float | None:
    """Returns when a request is late; None while too little is known of such requests.

    Where the slow ones are about as many as the quantile leaves, the quantile itself is theirs as often as not. So it
    is twice what twice as many exceed, at most.
    """
    if waits is None or waits.samples < SAMPLES_NEEDED:
        return None
    beyond = 1.0 - rules.quantile
    return max(rules.least_s, min(waits.quantile_s(rules.quantile), 2.0 * waits.quantile_s(1.0 - 2.0 * beyond)))


def has_room(second: EndpointSnapshot, view: PoolView) -> bool:
    """Whether an endpoint has room for a second attempt.

    It is not compared with the first one's endpoint: a policy that sees that one hang sends the others all the traffic,
    and so the better it is, the busier they look. It has at most twice the pool's average without an output, and at
    most twice the average open; a slot is free and none waits, as far as that is known now, and its engine has not
    asked for patience.
    """
    healthy = [e for e in view.endpoints if e.health == "healthy"] or [second]
    return (
        second.pending <= _ROOM * max(sum([e.pending for e in healthy]) / len(healthy), 1.0)
        and second.in_flight <= _ROOM * max(sum([e.in_flight for e in healthy]) / len(healthy), 1.0)
        and (second.slots is None or second.in_flight < second.slots)
        and not second.has_queue(view.now_s)
        and (second.busy_until_s is None or second.busy_until_s <= view.now_s)
    )


@dataclass(slots=True)
class HedgeBudget:
    """How many second attempts a pool may begin; reads no clock.

    Each request earns ``share`` of one, and ``MOST_CREDIT`` can be saved up: of n requests in a row at most
    ``share * n + MOST_CREDIT`` are hedged, and ``share * n`` since the start.
    """

    rules: HedgeRules
    _credit: float = 0.0
    _requests: Window = field(default_factory=Window)
    _late: Window = field(default_factory=Window)
    _failed: Window = field(default_factory=Window)

    def request(self, now_s: float) -> None:
        """Counts a request."""
        self._credit = min(self._credit + self.rules.share, MOST_CREDIT)
        self._requests.add(now_s)

    def failed(self, now_s: float) -> None:
        """Counts an attempt that failed."""
        self._failed.add(now_s)

    def take(self, now_s: float, *, room: bool) -> Withheld | None:
        """A request is late: counts a second attempt, or returns why it gets none.

        Args:
            now_s: Monotonic.
            room: Another endpoint can do it, and ``has_room``.
        """
        self._late.add(now_s)
        requests = max(self._requests.total(now_s), _FEW)
        if self._failed.total(now_s) * 2 >= requests:
            return "failing"
        if self._late.total(now_s) > _NO_TAIL_TIMES * (1.0 - self.rules.quantile) * requests:
            return "saturated"
        if not room:
            return "busy"
        if self._credit < 1.0:
            return "budget"
        self._credit -= 1.0
        return None
