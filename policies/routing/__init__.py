"""Routing policies: which endpoint. One file a policy, and the one list of them."""

from __future__ import annotations

from ..types import RoutingPolicy
from .least_in_flight import LeastInFlight

ROUTING: dict[str, type[RoutingPolicy]] = {"least_in_flight": LeastInFlight}
