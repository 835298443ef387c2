"""Requests of one kind go to the endpoints of one label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..types import EndpointSnapshot, Header, RouteQuery


@dataclass(frozen=True, slots=True)
class Conditions:
    """A kind of request; all must be met. A condition that is None, or has no headers, is met by every request.

    Attributes:
        model: As the client named it.
        min_prompt_tokens: Least tokens of the prompt, estimated.
        max_prompt_tokens: Most, likewise.
    """

    headers: tuple[Header, ...] = ()
    model: str | None = None
    min_prompt_tokens: int | None = None
    max_prompt_tokens: int | None = None

    def met_by(self, query: RouteQuery) -> bool:
        return (
            (self.model is None or self.model == query.model)
            and (self.min_prompt_tokens is None or query.prompt_tokens >= self.min_prompt_tokens)
            and (self.max_prompt_tokens is None or query.prompt_tokens <= self.max_prompt_tokens)
            and all(header in query.headers for header in self.headers)
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """Where requests of one kind go.

    Attributes:
        endpoints: Ids of those with the label.
    """

    when: Conditions
    label: str
    endpoints: frozenset[str]


class Ruled(NamedTuple):
    """What the rules leave.

    Attributes:
        endpoints: Never none of some.
        held: Whether a rule was followed.
        reason: Empty if no rule is about the request.
    """

    endpoints: list[EndpointSnapshot]
    held: bool = False
    reason: str = ""


def follow(rules: tuple[Rule, ...], able: list[EndpointSnapshot], query: RouteQuery) -> Ruled:
    """Returns the endpoints of the first rule about the request; all, if none of those takes it now."""
    for number, rule in enumerate(rules, 1):
        if rule.when.met_by(query):
            left = [e for e in able if e.endpoint_id in rule.endpoints]
            if left:
                return Ruled(left, True, f"rule {number}, label {rule.label}")
            return Ruled(able, False, f"rule {number}, but no endpoint of label {rule.label} takes it now")
    return Ruled(able)
