"""Takes the endpoint with the fewest of our requests open; those that tie take turns."""

from __future__ import annotations

from dataclasses import dataclass

from ..types import Choice, EndpointSnapshot, PoolView, RouteQuery, eligible


@dataclass(frozen=True, slots=True)
class LeastInFlight:
    def choose(self, view: PoolView, query: RouteQuery) -> Choice | None:
        tied: list[EndpointSnapshot] = []
        for endpoint in eligible(view, query):
            if not tied or endpoint.in_flight < tied[0].in_flight:
                tied = [endpoint]
            elif endpoint.in_flight == tied[0].in_flight:
                tied.append(endpoint)
        if not tied:
            return None
        best = tied[view.sequence % len(tied)]
        return Choice(best.endpoint_id, f"fewest in flight: {best.in_flight}")
