"""Draws two endpoints and takes the one with fewer of our requests open for its weight.

Several gateways that see only their own requests do not all run to the same endpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..types import Choice, PoolView, RouteQuery, eligible
from .drawing import two
from .least_in_flight import load


@dataclass(frozen=True, slots=True)
class PowerOfTwo:
    def choose(self, view: PoolView, query: RouteQuery) -> Choice | None:
        able = eligible(view, query)
        if not able:
            return None
        if len(able) == 1:
            return Choice(able[0].endpoint_id, "the only one")
        best, other = two(able, view.seed)
        if load(other) < load(best):
            best, other = other, best
        counts = f"{best.in_flight}, {other.endpoint_id} has {other.in_flight}"
        return Choice(best.endpoint_id, f"fewer in flight of two drawn: {counts}")
