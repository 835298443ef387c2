"""The promise of ``least_in_flight``: the fewest open requests for the weight, and turns among those that tie."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings

from policies.routing.least_in_flight import LeastInFlight
from policies.types import PoolView, RouteQuery, eligible
from tests.fakes.policy_views import queries, view, views

POLICY = LeastInFlight()
FRESH = RouteQuery()


def chosen(of: PoolView, query: RouteQuery = FRESH) -> str | None:
    choice = POLICY.choose(of, query)
    return choice.endpoint_id if choice else None


@settings(deadline=None)
@given(view=views(), query=queries())
def test_nobody_eligible_has_fewer_open_for_its_weight(view: PoolView, query: RouteQuery) -> None:
    choice = POLICY.choose(view, query)
    if choice is not None:
        loads = {e.endpoint_id: (e.in_flight + 1) / e.weight for e in eligible(view, query)}
        assert loads[choice.endpoint_id] == min(loads.values())


@pytest.mark.parametrize("endpoints", [2, 3, 5])
def test_ties_take_turns(endpoints: int) -> None:
    turns = Counter(chosen(view(*[4] * endpoints, sequence=n)) for n in range(endpoints * 10))
    assert set(turns.values()) == {10}
    assert len(turns) == endpoints


def test_only_those_that_tie_take_turns() -> None:
    assert {chosen(view(2, 1, 3, 1, sequence=n)) for n in range(8)} == {"e1", "e3"}


def test_an_idle_endpoint_that_takes_no_traffic_is_passed_over() -> None:
    assert chosen(view(0, 0, 9, health=("ejected", "draining"))) == "e2"


def test_an_endpoint_tried_already_is_passed_over() -> None:
    assert chosen(view(0, 5, 7), RouteQuery(frozenset({"e0"}))) == "e1"


def test_an_idle_endpoint_that_cannot_do_it_is_passed_over() -> None:
    of = view(0, 5, 3)
    able = [frozenset(("tools",)), frozenset(("tools", "n")), frozenset(("n",))]
    endpoints = tuple(e._replace(capabilities=can) for e, can in zip(of.endpoints, able, strict=True))
    of = of._replace(endpoints=endpoints)
    assert chosen(of, RouteQuery(needed=frozenset(("n",)))) == "e2"
    assert chosen(of, RouteQuery(needed=frozenset(("n", "tools")))) == "e1"
    assert chosen(of, RouteQuery(needed=frozenset(("images",)))) is None


def test_when_all_have_been_tried_there_is_none() -> None:
    assert chosen(view(0, 0), RouteQuery(frozenset({"e0", "e1"}))) is None


def test_a_pool_without_endpoints_has_none() -> None:
    assert chosen(view()) is None


def test_requests_spread_evenly_however_many_are_open() -> None:
    counts = [0, 0, 0]
    for n in range(31):
        picked = chosen(view(*counts, sequence=n))
        assert picked is not None
        counts[int(picked[1:])] += 1
    assert max(counts) - min(counts) <= 1


def test_over_time_open_requests_are_as_the_weights() -> None:
    counts = [0, 0, 0]
    for n in range(60):
        picked = chosen(view(*counts, sequence=n, weights=(1, 2, 3)))
        assert picked is not None
        counts[int(picked[1:])] += 1
    assert counts == [10, 20, 30]


def test_the_reason_tells_the_count_and_a_weight_that_matters() -> None:
    assert POLICY.choose(view(2, 3), FRESH) == ("e0", "fewest in flight: 2")
    assert POLICY.choose(view(2, 3, weights=(1, 3)), FRESH) == ("e1", "fewest in flight: 3 at weight 3")
