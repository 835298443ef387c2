"""Keeps prompts with the same beginning at one endpoint, as long as that does not carry much more than its share.

The endpoint that holds most of the prompt in its cache gets it; what nobody holds goes where such beginnings belong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..types import Choice, PoolView, RouteQuery, eligible
from .affinity import at_home, within_bound
from .least_in_flight import fewest


@dataclass(frozen=True, slots=True)
class Prefix:
    uses_prefixes: ClassVar[bool] = True

    def choose(self, view: PoolView, query: RouteQuery) -> Choice | None:
        able = eligible(view, query)
        if not able:
            return None
        held = query.cached_tokens
        if held:
            most = max([held.get(e.endpoint_id, 0) for e in able])
            free = within_bound(able)
            best = max([held.get(e.endpoint_id, 0) for e in free])
            if best:
                owners = [e for e in free if held.get(e.endpoint_id, 0) == best]
                owner, _ = fewest(owners, view.sequence)
                more = f"; what holds {most} is over its bound" if best < most else ""
                return Choice(owner, f"holds {best} of the prompt's {query.prompt_tokens} tokens{more}")
        if query.blocks:
            return at_home(able, query.blocks[0], "its beginning's")
        endpoint_id, reason = fewest(able, view.sequence)
        return Choice(endpoint_id, f"no beginning to go by; {reason}")
