"""Routing policies: which endpoint. One file a policy, and the one list of them."""

from __future__ import annotations

from ..types import RoutingPolicy
from .latency import Latency
from .least_in_flight import LeastInFlight
from .peak_ewma import PeakEwma
from .power_of_two import PowerOfTwo
from .prefix import Prefix
from .random import Random
from .round_robin import RoundRobin
from .session import Session

ROUTING: dict[str, type[RoutingPolicy]] = {
    "latency": Latency,
    "least_in_flight": LeastInFlight,
    "peak_ewma": PeakEwma,
    "power_of_two": PowerOfTwo,
    "prefix": Prefix,
    "random": Random,
    "round_robin": RoundRobin,
    "session": Session,
}
