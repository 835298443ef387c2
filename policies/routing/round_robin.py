"""Endpoints take turns, as often as their weights say, whatever they carry.

The n-th decision falls on the n-th multiple of the golden ratio, modulo 1, on the line of all weights. Such points
spread evenly over any part of the line, from any n on and for any stride: nothing has to be remembered, endpoints may
come and go, and of two kinds of requests that alternate neither sticks to one endpoint, as it would by ``n % 2``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..types import Choice, PoolView, RouteQuery, eligible
from .drawing import at_share
from .hashing import SPAN

_GOLDEN = 0x9E3779B97F4A7C15
"""The golden ratio's part behind the point, in 64 bits: exact where a float's precision would wear off."""


@dataclass(frozen=True, slots=True)
class RoundRobin:
    def choose(self, view: PoolView, query: RouteQuery) -> Choice | None:
        able = eligible(view, query)
        if not able:
            return None
        turn = at_share(able, view.sequence * _GOLDEN % SPAN / SPAN)
        return Choice(turn.endpoint_id, f"its turn, one of {len(able)} endpoints")
