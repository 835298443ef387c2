"""Draws by weight."""

from __future__ import annotations

from collections.abc import Sequence

from ..types import EndpointSnapshot

_HALF = 1 << 32


def at_share(endpoints: Sequence[EndpointSnapshot], share: float) -> EndpointSnapshot:
    """Returns the endpoint that a share (0 to 1) of all weights falls on, laid end to end; there must be one."""
    left = share * sum([e.weight for e in endpoints])
    for endpoint in endpoints:
        left -= endpoint.weight
        if left < 0:
            return endpoint
    return endpoints[-1]


def two(endpoints: Sequence[EndpointSnapshot], seed: int) -> tuple[EndpointSnapshot, EndpointSnapshot]:
    """Returns two different endpoints, each drawn by weight; of one endpoint, that one twice."""
    first = at_share(endpoints, seed % _HALF / _HALF)
    others = [e for e in endpoints if e is not first]
    return first, at_share(others, (seed >> 32) % _HALF / _HALF) if others else first
