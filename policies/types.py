"""What policies read and answer: frozen snapshots in, choices out.

Named tuples, because several are made for every request: a frozen dataclass of as many fields takes five times as long
to make.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

Health = Literal["healthy", "ejected", "draining"]


class EndpointSnapshot(NamedTuple):
    """One endpoint as routing sees it.

    Attributes:
        endpoint_id: Unique in the process.
        health: Only ``healthy`` ones take traffic.
        in_flight: Requests of ours that are open there now; exact.
    """

    endpoint_id: str
    health: Health
    in_flight: int


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
    """What is known of the request: the endpoints that it has tried already."""

    tried: frozenset[str] = frozenset()


class Choice(NamedTuple):
    """Where to, and why in words for the trace."""

    endpoint_id: str
    reason: str


class RoutingPolicy(Protocol):
    def choose(self, view: PoolView, query: RouteQuery) -> Choice | None:
        """Returns an eligible endpoint, or None if there is none. Same view and query, same choice."""
        ...


def eligible(view: PoolView, query: RouteQuery) -> list[EndpointSnapshot]:
    """The healthy endpoints that the request has not tried."""
    return [e for e in view.endpoints if e.health == "healthy" and e.endpoint_id not in query.tried]
