"""Keeps the requests of a session at one endpoint, as long as that does not carry much more than its share."""

from __future__ import annotations

from dataclasses import dataclass

from ..types import Choice, PoolView, RouteQuery, eligible
from .affinity import at_home
from .hashing import hash64
from .least_in_flight import fewest


@dataclass(frozen=True, slots=True)
class Session:
    def choose(self, view: PoolView, query: RouteQuery) -> Choice | None:
        able = eligible(view, query)
        if not able:
            return None
        if query.session is None:
            endpoint_id, reason = fewest(able, view.sequence)
            return Choice(endpoint_id, f"names no session; {reason}")
        return at_home(able, hash64(query.session), "its session's")
