"""What policies read and answer: frozen snapshots in, choices out.

Named tuples, because several are made for every request: a frozen dataclass of as many fields takes five times as long
to make.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

Health = Literal["healthy", "ejected", "draining"]
NOTHING: frozenset[str] = frozenset()


class EndpointSnapshot(NamedTuple):
    """One endpoint as routing sees it.

    Attributes:
        endpoint_id: Unique in the process.
        health: Only ``healthy`` ones take traffic.
        in_flight: Requests of ours that are open there now; exact.
        capabilities: What its engine can do, by name.
    """

    endpoint_id: str
    health: Health
    in_flight: int
    capabilities: frozenset[str] = NOTHING


class PoolView(NamedTuple):
    """A pool at one moment.

    Attributes:
        now_s: Monotonic time.
        sequence: Decisions made for this pool so far.
        endpoints: All of them, eligible or not, in the order of the configuration.
    """

    now_s: float
    sequence: int
    endpoints: tuple[EndpointSnapshot, ...]


class RouteQuery(NamedTuple):
    """What is known of the request.

    Attributes:
        tried: Endpoints that it has tried already.
        needed: What an engine must be able to do to serve it; nothing, mostly.
    """

    tried: frozenset[str] = NOTHING
    needed: frozenset[str] = NOTHING


class Choice(NamedTuple):
    """Where to, and why in words for the trace."""

    endpoint_id: str
    reason: str


class RoutingPolicy(Protocol):
    def choose(self, view: PoolView, query: RouteQuery) -> Choice | None:
        """Returns an eligible endpoint, or None if there is none. Same view and query, same choice."""
        ...


def eligible(view: PoolView, query: RouteQuery) -> list[EndpointSnapshot]:
    """The healthy endpoints that can do what the request needs and that it has not tried."""
    tried, needed = query
    able = [e for e in view.endpoints if needed <= e.capabilities] if needed else view.endpoints
    return [e for e in able if e.health == "healthy" and e.endpoint_id not in tried]
