"""Keeps what belongs together at one endpoint, as long as that does not carry much more than its share.

A key's home is found by weighted rendezvous hashing: each endpoint draws a number from the key, and the least wins. So
an endpoint that goes takes only its own keys along, and one that comes takes only those that it wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log

from ..types import Choice, EndpointSnapshot
from .hashing import MASK, SPAN, mixed, name64

OVERLOAD = 1.25
"""So many times its share of all open requests, and one more, may be open at an endpoint that affinity chooses."""

_LOG_SPAN = log(SPAN)


def at_home(able: Sequence[EndpointSnapshot], key: int, whose: str) -> Choice:
    """Returns the choice for a key among these, of which there must be one; ``whose`` it is stands in the reason."""
    first, most = home(able, key), most_open(able)
    bound = most * first.weight + 1
    if first.in_flight <= bound:
        return Choice(first.endpoint_id, f"{whose} endpoint")
    full = f"{first.endpoint_id} has {first.in_flight} in flight, over its bound of {bound:.1f}"
    return Choice(home(within_bound(able), key).endpoint_id, f"{whose} next endpoint: {full}")


def home(endpoints: Sequence[EndpointSnapshot], key: int) -> EndpointSnapshot:
    """Returns where the key belongs among these, of which there must be one; shares of all keys go by weight."""
    spread = mixed(key)
    best, least = endpoints[0], inf
    for endpoint in endpoints:
        # The product with an odd number of its own: as good as a hash of both, at a fifth of the cost.
        draw = (_LOG_SPAN - log((spread * name64(endpoint.endpoint_id) & MASK) + 1)) / endpoint.weight
        if draw < least:
            best, least = endpoint, draw
    return best


def within_bound(endpoints: Sequence[EndpointSnapshot]) -> list[EndpointSnapshot]:
    """Returns those that carry no more than their bound; never none, for not all are above the mean."""
    most = most_open(endpoints)
    return [e for e in endpoints if e.in_flight <= most * e.weight + 1]


def most_open(endpoints: Sequence[EndpointSnapshot]) -> float:
    """Returns how many requests may be open for a weight of 1, the one more aside."""
    return OVERLOAD * sum([e.in_flight for e in endpoints]) / sum([e.weight for e in endpoints])
