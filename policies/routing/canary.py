"""A share of the sessions goes to the endpoints of one label, always the same ones.

Every session has a place between 0 and 1, and the canary has those below its share: a larger share adds sessions to it
and moves no other.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..types import EndpointSnapshot, PoolView, RouteQuery
from .hashing import SPAN, hash64, mixed, name64


@dataclass(frozen=True, slots=True)
class Canary:
    """Which endpoints, and the share (0 to 1) of the sessions that they get.

    Attributes:
        endpoints: Ids of those with the label.
    """

    label: str
    share: float
    endpoints: frozenset[str]

    def has(self, query: RouteQuery, view: PoolView) -> bool:
        """Whether the request is one of the canary's; one without a session is so by chance."""
        key = view.seed if query.session is None else hash64(query.session)
        return mixed(key ^ name64(self.label)) < self.share * SPAN

    def side(
        self, able: list[EndpointSnapshot], view: PoolView, query: RouteQuery
    ) -> tuple[list[EndpointSnapshot], str]:
        """Returns the endpoints of the request's side, of the other if none of those takes it; and why in words."""
        within = self.has(query, view)
        said = f"in the canary ({self.share:.3g})" if within else f"not in the canary ({self.share:.3g})"
        left = [e for e in able if (e.endpoint_id in self.endpoints) is within]
        return (left, said) if left else (able, f"{said}, but no endpoint of that side takes it now")
