"""A pool's configuration -> the policy that chooses for it, with everything that narrows its choice."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from policies.routing import ROUTING
from policies.routing.canary import Canary
from policies.routing.narrowed import narrowed
from policies.routing.rules import Conditions, Rule
from policies.routing.tiers import Tier, Tiers
from policies.types import RoutingPolicy

from .config import PoolConfig, RuleConditionsConfig


def routing_policy(pool: PoolConfig) -> RoutingPolicy:
    routing = pool.routing
    rules = tuple(Rule(_conditions(rule.when), rule.to, _labelled(pool, rule.to)) for rule in routing.rules)
    canary = routing.canary
    return narrowed(
        _chooser(pool),
        rules,
        Canary(canary.label, canary.share, _labelled(pool, canary.label)) if canary is not None else None,
        _tiers(pool),
    )


def _chooser(pool: PoolConfig) -> RoutingPolicy:
    """Returns the policy itself; one with parameters for what the pool promises gets them."""
    policy = ROUTING[pool.routing.policy]
    given = {"ttft_slo_s": pool.slo.ttft_s, "itl_slo_s": pool.slo.itl_s}
    taken = {field.name for field in fields(policy)} if is_dataclass(policy) else set[str]()
    return policy(**{name: value for name, value in given.items() if name in taken})


def _conditions(when: RuleConditionsConfig) -> Conditions:
    headers = tuple((name.encode("ascii"), value.encode("ascii")) for name, value in when.header.items())
    return Conditions(headers, when.model, when.min_prompt_tokens, when.max_prompt_tokens)


def _labelled(pool: PoolConfig, label: str) -> frozenset[str]:
    return frozenset(endpoint.id for endpoint in pool.endpoints if endpoint.label == label)


def _tiers(pool: PoolConfig) -> Tiers | None:
    numbers = sorted({endpoint.tier for endpoint in pool.endpoints})
    if len(numbers) == 1:
        return None
    tiers = (Tier(number, frozenset(e.id for e in pool.endpoints if e.tier == number)) for number in numbers)
    return Tiers(tuple(tiers), {e.id: e.overflow_at for e in pool.endpoints if e.overflow_at is not None})
