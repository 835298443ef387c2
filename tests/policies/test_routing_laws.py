"""What every routing policy of the registry keeps to, whatever it prefers."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings

from gateway.config import RoutingConfig
from policies.routing import ROUTING
from policies.types import Answered, EndpointSnapshot, Learner, PoolView, RouteQuery, eligible
from tests.fakes.policy_runs import Machine, run
from tests.fakes.policy_views import Lessons, lessons, queries, taught, views

ALL = sorted(ROUTING)
LEARNERS = [name for name in ALL if isinstance(ROUTING[name](), Learner)]


@pytest.mark.parametrize("name", ALL)
@settings(deadline=None)
@given(view=views(), query=queries(), lessons=lessons())
def test_the_choice_is_eligible_or_there_is_none(
    name: str, view: PoolView, query: RouteQuery, lessons: Lessons
) -> None:
    policy = ROUTING[name]()
    choice = policy.choose(taught(policy, view, lessons), query)
    able = {endpoint.endpoint_id for endpoint in eligible(view, query)}
    if choice is None:
        assert not able
    else:
        assert choice.endpoint_id in able
        assert choice.reason.strip(), "every choice has its reason in words"


@pytest.mark.parametrize("name", ALL)
@settings(deadline=None)
@given(view=views(), query=queries(), lessons=lessons())
def test_the_same_view_gives_the_same_choice(name: str, view: PoolView, query: RouteQuery, lessons: Lessons) -> None:
    policy, other = ROUTING[name](), ROUTING[name]()
    view = taught(policy, view, lessons)
    again = view._replace(endpoints=tuple(EndpointSnapshot(*endpoint) for endpoint in view.endpoints))
    first = policy.choose(view, query)
    assert policy.choose(again, RouteQuery(*query)) == first
    assert other.choose(again, query) == first, "a policy of its own decides alike: it keeps nothing"


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("count", [2, 5])
def test_every_endpoint_gets_requests(name: str, count: int) -> None:
    got = run(ROUTING[name](), {f"e{i}": Machine() for i in range(count)})
    assert sum(got.values()) == 400
    assert min(got[f"e{i}"] for i in range(count)) >= 10, got


@pytest.mark.parametrize("name", ALL)
def test_an_endpoint_of_less_weight_gets_requests_too(name: str) -> None:
    machines = {"large": Machine(weight=4.0), "small": Machine(weight=1.0)}
    got = run(ROUTING[name](), machines)
    assert got["small"] >= 10, got


@pytest.mark.parametrize("name", LEARNERS)
@settings(deadline=None)
@given(view=views(), lessons=lessons())
def test_what_is_learnt_of_one_endpoint_changes_with_its_answers_only(
    name: str, view: PoolView, lessons: Lessons
) -> None:
    policy = ROUTING[name]()
    assert isinstance(policy, Learner)
    once, again = taught(policy, view, lessons), taught(policy, view, lessons)
    assert once == again, "a step is pure"
    nothing = Answered(1.0, 2.0, None, None, None, 0, None)
    for endpoint in once.endpoints:
        assert policy.answered(endpoint.learnt, nothing) == policy.answered(endpoint.learnt, nothing)


@settings(deadline=None)
@given(view=views(), query=queries())
def test_eligible_endpoints_are_open_untried_and_able(view: PoolView, query: RouteQuery) -> None:
    able = eligible(view, query)
    assert all(_is_open(e) and e.endpoint_id not in query.tried for e in able)
    assert all(query.needed <= e.capabilities for e in able)
    left_out = [e for e in view.endpoints if e not in able]
    assert all(not _is_open(e) or e.endpoint_id in query.tried or query.needed - e.capabilities for e in left_out)


def _is_open(endpoint: EndpointSnapshot) -> bool:
    """It is well, or on trial, and the trial has not begun."""
    return endpoint.health == "healthy" or (endpoint.health, endpoint.in_flight) == ("half_open", 0)


@settings(deadline=None)
@given(view=views(), query=queries())
def test_a_request_that_needs_nothing_may_go_anywhere(view: PoolView, query: RouteQuery) -> None:
    anywhere = RouteQuery(query.tried)
    bare = view._replace(endpoints=tuple(e._replace(capabilities=frozenset()) for e in view.endpoints))
    assert [e.endpoint_id for e in eligible(view, anywhere)] == [e.endpoint_id for e in eligible(bare, anywhere)]


def test_the_configuration_takes_the_policies_there_are() -> None:
    assert set(get_args(RoutingConfig.model_fields["policy"].annotation)) == {*ALL, "latency"}
