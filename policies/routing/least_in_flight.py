"""Takes the endpoint with the fewest of our requests open for its weight; those that tie take turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from ..types import Choice, EndpointSnapshot, PoolView, RouteQuery, eligible


@dataclass(frozen=True, slots=True)
class LeastInFlight:
    def choose(self, view: PoolView, query: RouteQuery) -> Choice | None:
        able = eligible(view, query)
        return fewest(able, view.sequence) if able else None


def load(endpoint: EndpointSnapshot) -> float:
    """How many requests a weight of 1 would have open there with this one."""
    return (endpoint.in_flight + 1) / endpoint.weight


def fewest(endpoints: Sequence[EndpointSnapshot], sequence: int) -> Choice:
    """Returns the choice among these, of which there must be one."""
    least, tied = inf, list[EndpointSnapshot]()
    for endpoint in endpoints:
        its = load(endpoint)
        if its < least:
            least, tied = its, [endpoint]
        elif its == least:
            tied.append(endpoint)
    best = tied[sequence % len(tied)]
    weight = f" at weight {best.weight:g}" if best.weight != 1 else ""
    return Choice(best.endpoint_id, f"fewest in flight: {best.in_flight}{weight}")
