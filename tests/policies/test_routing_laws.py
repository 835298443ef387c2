"""What every routing policy of the registry keeps to, whatever it prefers."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings

from gateway.config.models import RoutingConfig
from policies.routing import ROUTING
from policies.types import EndpointSnapshot, PoolView, RouteQuery, eligible
from tests.fakes.policy_views import queries, views

ALL = sorted(ROUTING)


@pytest.mark.parametrize("name", ALL)
@settings(deadline=None)
@given(view=views(), query=queries())
def test_the_choice_is_eligible_or_there_is_none(name: str, view: PoolView, query: RouteQuery) -> None:
    choice = ROUTING[name]().choose(view, query)
    able = {endpoint.endpoint_id for endpoint in eligible(view, query)}
    if choice is None:
        assert not able
    else:
        assert choice.endpoint_id in able


@pytest.mark.parametrize("name", ALL)
@settings(deadline=None)
@given(view=views(), query=queries())
def test_the_same_view_gives_the_same_choice(name: str, view: PoolView, query: RouteQuery) -> None:
    again = PoolView(view.now_s, view.sequence, tuple(EndpointSnapshot(*endpoint) for endpoint in view.endpoints))
    policy = ROUTING[name]()
    first = policy.choose(view, query)
    assert policy.choose(again, RouteQuery(frozenset(query.tried), frozenset(query.needed))) == first
    assert ROUTING[name]().choose(again, query) == first, "a policy of its own decides alike: it keeps nothing"


@pytest.mark.parametrize("name", ALL)
@settings(deadline=None)
@given(view=views(), query=queries())
def test_a_choice_has_its_reason_in_words(name: str, view: PoolView, query: RouteQuery) -> None:
    choice = ROUTING[name]().choose(view, query)
    assert choice is None or choice.reason.strip()


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
    assert sorted(get_args(RoutingConfig.model_fields["policy"].annotation)) == ALL
