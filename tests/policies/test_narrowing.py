"""What rules, a canary and tiers leave to a pool's policy, and in which order."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.routing import ROUTING
from policies.routing.canary import Canary
from policies.routing.least_in_flight import LeastInFlight
from policies.routing.narrowed import narrowed
from policies.routing.peak_ewma import PeakEwma
from policies.routing.rules import Conditions, Rule
from policies.routing.tiers import Tier, Tiers
from policies.types import Answered, Choice, FirstOutput, Learner, PoolView, RouteQuery, RoutingPolicy, eligible
from tests.fakes.policy_views import queries, view, views, with_fields

LONG = Rule(Conditions(min_prompt_tokens=1000), "long", frozenset(("e0",)))
TEAM = Rule(Conditions(headers=((b"x-team", b"a"),)), "team", frozenset(("e1", "e2")))
CANARY = Canary("canary", 0.25, frozenset(("e0",)))
TIERS = Tiers((Tier(0, frozenset(("e0", "e1"))), Tier(3, frozenset(("e2",)))), {"e0": 4, "e1": 4})


def choose(policy: RoutingPolicy, of: PoolView, query: RouteQuery) -> Choice:
    choice = policy.choose(of, query)
    assert choice is not None
    return choice


# --- rules


@pytest.mark.parametrize(
    ("conditions", "met"),
    [
        (Conditions(), True),
        (Conditions(model="alias"), True),
        (Conditions(model="m"), False),
        (Conditions(headers=((b"x-team", b"a"),)), True),
        (Conditions(headers=((b"x-team", b"b"),)), False),
        (Conditions(headers=((b"x-team", b"a"), (b"x-tier", b"1"))), False),
        (Conditions(min_prompt_tokens=500, max_prompt_tokens=500), True),
        (Conditions(min_prompt_tokens=501), False),
        (Conditions(max_prompt_tokens=499), False),
        (Conditions(model="alias", max_prompt_tokens=499), False),
    ],
)
def test_every_condition_that_is_given_must_be_met(conditions: Conditions, met: bool) -> None:
    query = RouteQuery(prompt_tokens=500, headers=((b"x-team", b"a"),), model="alias")
    assert conditions.met_by(query) is met


def test_the_first_rule_that_is_met_narrows_and_the_policy_still_chooses() -> None:
    policy = narrowed(LeastInFlight(), (LONG, TEAM))
    both = RouteQuery(prompt_tokens=1000, headers=((b"x-team", b"a"),))
    assert choose(policy, view(5, 3, 1), both) == ("e0", "rule 1, label long; fewest in flight: 5")
    team = RouteQuery(prompt_tokens=10, headers=((b"x-team", b"a"),))
    assert choose(policy, view(0, 3, 1), team) == ("e2", "rule 2, label team; fewest in flight: 1")
    assert choose(policy, view(0, 3, 1), RouteQuery()) == ("e0", "fewest in flight: 0")


def test_a_rule_whose_endpoints_take_nothing_lets_all_others() -> None:
    policy = narrowed(LeastInFlight(), (LONG,))
    long, said = RouteQuery(prompt_tokens=1000), "rule 1, but no endpoint of label long takes it now"
    assert choose(policy, view(0, 3, 1, health=("ejected",)), long) == ("e2", f"{said}; fewest in flight: 1")
    assert choose(policy, view(0, 3, 1), long._replace(tried=frozenset(("e0",)))).endpoint_id == "e2"


# --- canary


def side(canary: Canary, session: bytes | None, seed: int = 0) -> bool:
    return canary.has(RouteQuery(session=session), view(0, 0, seed=seed))


def test_a_session_is_always_on_the_same_side() -> None:
    policy = narrowed(LeastInFlight(), canary=CANARY)
    for i in range(100):
        query = RouteQuery(session=b"s%d" % i)
        chosen = {
            choose(policy, view(n % 5, 1, 1, sequence=n, seed=n * 7**20), query).endpoint_id == "e0" for n in range(20)
        }
        assert len(chosen) == 1


@settings(deadline=None)
@given(st.binary(min_size=1), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_takes_no_session_away(session: bytes, share: float, other: float) -> None:
    less, more = (Canary("canary", part, frozenset()) for part in sorted((share, other)))
    assert side(less, session) <= side(more, session)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_the_share_of_sessions_is_the_share(share: float) -> None:
    canary = Canary("canary", share, frozenset())
    assert sum(side(canary, b"s%d" % i) for i in range(4000)) / 4000 == pytest.approx(share, abs=0.02)
    chance = random.Random(1)
    by_chance = sum(side(canary, None, chance.getrandbits(64)) for _ in range(4000)) / 4000
    assert by_chance == pytest.approx(share, abs=0.02)


def test_chance_on_each_side_is_not_the_chance_that_chose_the_side() -> None:
    policy = narrowed(ROUTING["random"](), canary=CANARY)
    chance, got = random.Random(1), Counter[str]()
    for _ in range(4000):
        got[choose(policy, view(0, 0, 0, seed=chance.getrandbits(64)), RouteQuery()).endpoint_id] += 1
    assert [got[e] / 4000 for e in ("e0", "e1", "e2")] == pytest.approx([0.25, 0.375, 0.375], abs=0.03)


def test_a_side_that_takes_nothing_leaves_its_requests_to_the_other() -> None:
    policy = narrowed(LeastInFlight(), canary=Canary("canary", 1.0, frozenset(("e0",))))
    query = RouteQuery(session=b"s")
    assert choose(policy, view(5, 0), query) == ("e0", "in the canary (1); fewest in flight: 5")
    away = "in the canary (1), but no endpoint of that side takes it now; fewest in flight: 0"
    assert choose(policy, view(5, 0, health=("ejected",)), query) == ("e1", away)
    none = narrowed(LeastInFlight(), canary=Canary("canary", 0.0, frozenset(("e0",))))
    assert choose(none, view(5, 0), query) == ("e1", "not in the canary (0); fewest in flight: 0")
    assert choose(none, view(5, 0, health=("healthy", "ejected")), query).endpoint_id == "e0"


# --- tiers


def tiered(of: PoolView, tried: tuple[str, ...] = ()) -> Choice:
    return choose(narrowed(LeastInFlight(), tiers=TIERS), of, RouteQuery(frozenset(tried)))


def test_the_first_tier_is_used_while_it_has_room() -> None:
    assert tiered(view(3, 2, 0)) == ("e1", "fewest in flight: 2")
    assert tiered(view(4, 3, 0)).endpoint_id == "e1"


def test_a_full_tier_overflows() -> None:
    assert tiered(view(4, 9, 0)) == ("e2", "tier 3, for tier 0 is full; fewest in flight: 0")


def test_a_tier_that_takes_nothing_is_passed_over() -> None:
    down = view(0, 0, 5, health=("ejected", "draining"))
    assert tiered(down) == ("e2", "tier 3, for tier 0 takes none; fewest in flight: 5")
    assert tiered(view(0, 0, 5), tried=("e0", "e1")).endpoint_id == "e2"


def test_a_queue_in_the_engine_fills_its_endpoint_while_its_word_is_fresh() -> None:
    told = with_fields(view(1, 1, 0), waiting=(2, 1, None), sampled_s=(95.0, 95.0, None))
    assert tiered(told._replace(now_s=100.0)).endpoint_id == "e2"
    assert tiered(told._replace(now_s=106.0)).endpoint_id in ("e0", "e1"), "it is older than ten seconds"
    idle = with_fields(told, waiting=(0, 1, None))
    assert tiered(idle._replace(now_s=100.0)).endpoint_id in ("e0", "e1")


def test_when_every_tier_is_full_all_share() -> None:
    full = with_fields(view(5, 5, 2), waiting=(None, None, 1), sampled_s=(None, None, 1.0))
    assert tiered(full) == ("e2", "every tier is full; fewest in flight: 2")
    assert tiered(with_fields(full, in_flight=(4, 5, 9))).endpoint_id == "e0"


# --- together


def test_a_rule_that_is_followed_comes_before_the_canary() -> None:
    everybody = Canary("canary", 1.0, frozenset(("e0",)))
    policy = narrowed(LeastInFlight(), (TEAM,), everybody)
    team = RouteQuery(headers=((b"x-team", b"a"),), session=b"s")
    assert choose(policy, view(0, 3, 1), team) == ("e2", "rule 1, label team; fewest in flight: 1")
    assert choose(policy, view(0, 3, 1), RouteQuery(session=b"s")).endpoint_id == "e0"
    out = view(0, 3, 1, health=("healthy", "ejected", "ejected"))
    assert "in the canary" in choose(policy, out, team).reason, "a rule that cannot be followed narrows nothing"


def test_tiers_are_those_of_the_side_that_is_left() -> None:
    policy = narrowed(LeastInFlight(), canary=Canary("canary", 0.0, frozenset(("e0",))), tiers=TIERS)
    chosen = choose(policy, view(0, 4, 0), RouteQuery(session=b"s"))
    assert chosen == ("e2", "not in the canary (0); tier 3, for tier 0 is full; fewest in flight: 0")


@pytest.mark.parametrize("name", sorted(ROUTING))
@settings(deadline=None, max_examples=50)
@given(view=views(), query=queries())
def test_narrowing_never_leaves_a_request_without_an_endpoint_that_could_take_it(
    name: str, view: PoolView, query: RouteQuery
) -> None:
    policy = ROUTING[name]()
    tiers = Tiers((Tier(0, frozenset(("e0", "e1"))), Tier(1, frozenset(f"e{i}" for i in range(2, 10)))), {"e0": 2})
    choice = narrowed(policy, (LONG, TEAM), CANARY, tiers).choose(view, query)
    assert (choice is None) == (policy.choose(view, query) is None)
    if choice is not None:
        assert choice.endpoint_id in {e.endpoint_id for e in eligible(view, query)}


def test_nothing_to_narrow_is_the_policy_itself() -> None:
    policy = LeastInFlight()
    assert narrowed(policy) is policy


def test_what_there_is_to_learn_reaches_the_policy_inside() -> None:
    inside = PeakEwma()
    policy = narrowed(inside, tiers=TIERS)
    assert isinstance(policy, Learner)
    sample = FirstOutput(1.0, 1.5, 10, 10, 0, 0, 0, 1)
    assert policy.first_output(None, sample) == inside.first_output(None, sample)
    whole = Answered(1.0, 2.0, 1.5, 10, 0, 5, 0.1)
    assert policy.answered("known", whole) == "known"
    assert not isinstance(narrowed(LeastInFlight(), tiers=TIERS), Learner)
