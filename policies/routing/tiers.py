"""Endpoints that are used only when those before them are out or full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..types import EndpointSnapshot


@dataclass(frozen=True, slots=True)
class Tier:
    """Its number in the configuration, and the ids of its endpoints."""

    number: int
    endpoints: frozenset[str]


@dataclass(frozen=True, slots=True)
class Tiers:
    """All tiers of a pool.

    Attributes:
        tiers: The first to be used first.
        overflow_at: Requests of ours in flight with which an endpoint is full, by its id; for those that have it.
    """

    tiers: tuple[Tier, ...]
    overflow_at: Mapping[str, int]

    def lowest(self, able: list[EndpointSnapshot], now_s: float) -> tuple[list[EndpointSnapshot], str]:
        """Returns the endpoints of the first tier with room, of all if none has; and why, if not of the first."""
        passed: list[str] = []
        for tier in self.tiers:
            left = [e for e in able if e.endpoint_id in tier.endpoints]
            if any(not self._full(e, now_s) for e in left):
                return left, f"tier {tier.number}, for {' and '.join(passed)}" if passed else ""
            passed.append(f"tier {tier.number} is full" if left else f"tier {tier.number} takes none")
        return able, "every tier is full"

    def _full(self, endpoint: EndpointSnapshot, now_s: float) -> bool:
        most = self.overflow_at.get(endpoint.endpoint_id)
        if most is not None and endpoint.in_flight >= most:
            return True
        return endpoint.has_queue(now_s)
