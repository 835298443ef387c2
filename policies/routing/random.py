"""Chance alone, by weight."""

from __future__ import annotations

from dataclasses import dataclass

from ..types import Choice, PoolView, RouteQuery, eligible
from .drawing import at_share
from .hashing import SPAN


@dataclass(frozen=True, slots=True)
class Random:
    def choose(self, view: PoolView, query: RouteQuery) -> Choice | None:
        able = eligible(view, query)
        if not able:
            return None
        drawn = at_share(able, view.seed % SPAN / SPAN)
        return Choice(drawn.endpoint_id, f"drawn at random, one of {len(able)} endpoints")
