"""Draws two endpoints and takes the one where latency times load is less (after Finagle's peak EWMA).

Latency is the time to first token as it was learnt of each endpoint: a slower answer counts at once, faster ones wear
it down. What was learnt fades, into what the others are like: neither silence nor failures make an endpoint look fast,
and one that was slow gets another try. For the same reason an endpoint that little is known of counts as carrying no
less than they do: one that fails at once has nothing open, and would look idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import NamedTuple

from ..types import Answered, Choice, EndpointSnapshot, FirstOutput, PoolView, RouteQuery, eligible
from .drawing import two
from .least_in_flight import load


class Peak(NamedTuple):
    """What is known of one endpoint.

    Attributes:
        ttft_s: Its time to first token.
        at_s: When its last first token came, monotonic.
    """

    ttft_s: float
    at_s: float


class _Typical(NamedTuple):
    """What the endpoints that may be chosen are like: the mean of those that something is known of, the newest most.

    Attributes:
        load: Requests in flight, this one included, by weight.
    """

    ttft_s: float
    load: float


@dataclass(frozen=True, slots=True)
class PeakEwma:
    """Two choices by learnt latency.

    Attributes:
        fade_s: After so long without an answer a third is left of what is known.
    """

    fade_s: float = 10.0

    def choose(self, view: PoolView, query: RouteQuery) -> Choice | None:
        able = eligible(view, query)
        if not able:
            return None
        if len(able) == 1:
            return Choice(able[0].endpoint_id, "the only one")
        typical = self._typical(able, view.now_s)
        best, other = two(able, view.seed)
        cost, its = self._cost(best, typical, view.now_s), self._cost(other, typical, view.now_s)
        if its < cost:
            best, other, cost, its = other, best, its, cost
        return Choice(
            best.endpoint_id,
            f"less latency times load of two drawn: {cost:.3g} s with {best.in_flight} in flight, "
            f"{other.endpoint_id} {its:.3g} s with {other.in_flight}",
        )

    def first_output(self, known: Peak | None, sample: FirstOutput) -> Peak:
        ttft_s = sample.at_s - sample.sent_s
        if known is not None and ttft_s < known.ttft_s:
            ttft_s += self._left(known, sample.at_s) * (known.ttft_s - ttft_s)
        return Peak(ttft_s, sample.at_s)

    def answered(self, known: Peak | None, sample: Answered) -> Peak | None:
        return known

    def _left(self, known: Peak, now_s: float) -> float:
        """How much of what is known still counts, 0 to 1."""
        age_s = now_s - known.at_s
        return exp(-age_s / self.fade_s) if age_s > 0 else 1.0

    def _typical(self, able: Sequence[EndpointSnapshot], now_s: float) -> _Typical:
        counts = ttft_s = loads = 0.0
        for endpoint in able:
            if (known := endpoint.learnt) is not None:
                left = self._left(known, now_s)
                counts += left
                ttft_s += left * known.ttft_s
                loads += left * (endpoint.in_flight + 1) / endpoint.weight
        if not counts:
            return _Typical(1.0, sum([load(e) for e in able]) / len(able))
        return _Typical(ttft_s / counts, loads / counts)

    def _cost(self, endpoint: EndpointSnapshot, typical: _Typical, now_s: float) -> float:
        """Seconds to the first token if each request in flight took as long, for a weight of 1."""
        known, its = endpoint.learnt, load(endpoint)
        left = self._left(known, now_s) if known is not None else 0.0
        fresh = left * known.ttft_s * its if known is not None else 0.0
        return fresh + (1 - left) * typical.ttft_s * max(its, typical.load)
