"""A policy that chooses among what rules, a canary and tiers leave to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..types import Answered, Choice, FirstOutput, Learner, PoolView, RouteQuery, RoutingPolicy, eligible
from .canary import Canary
from .rules import Rule, follow
from .tiers import Tiers


@dataclass(frozen=True, slots=True)
class Narrowed:
    """In this order: a request that a rule is followed for takes no part in the canary."""

    policy: RoutingPolicy
    rules: tuple[Rule, ...]
    canary: Canary | None
    tiers: Tiers | None

    def choose(self, view: PoolView, query: RouteQuery) -> Choice | None:
        able = eligible(view, query)
        if not able:
            return None
        left, held, reason = follow(self.rules, able, query)
        reasons = [reason]
        if self.canary is not None and not held:
            left, reason = self.canary.side(left, view, query)
            reasons.append(reason)
        if self.tiers is not None:
            left, reason = self.tiers.lowest(left, view.now_s)
            reasons.append(reason)
        choice = self.policy.choose(PoolView(view.now_s, view.sequence, tuple(left), view.seed), query)
        if choice is None:
            return None
        return Choice(choice.endpoint_id, "; ".join([part for part in (*reasons, choice.reason) if part]))


@dataclass(frozen=True, slots=True)
class NarrowedLearner(Narrowed):
    """The same around a policy that learns: what there is to learn goes to that one."""

    learner: Learner

    def first_output(self, known: Any, sample: FirstOutput) -> Any:
        return self.learner.first_output(known, sample)

    def answered(self, known: Any, sample: Answered) -> Any:
        return self.learner.answered(known, sample)


def narrowed(
    policy: RoutingPolicy, rules: tuple[Rule, ...] = (), canary: Canary | None = None, tiers: Tiers | None = None
) -> RoutingPolicy:
    """Returns the policy, narrowed if there is something to narrow it; a learner if it is one."""
    if not (rules or canary or tiers):
        return policy
    if isinstance(policy, Learner):
        return NarrowedLearner(policy, rules, canary, tiers, policy)
    return Narrowed(policy, rules, canary, tiers)
