"""The promise of ``session``: one session, one endpoint, unless that carries too much; and nobody else has to move."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.routing.session import Session
from policies.types import Choice, PoolView, RouteQuery
from tests.fakes.policy_views import view

POLICY = Session()
SESSIONS = [b"s%d" % i for i in range(600)]


def choose(of: PoolView, session: bytes | None, tried: frozenset[str] = frozenset()) -> Choice:
    choice = POLICY.choose(of, RouteQuery(tried, session=session))
    assert choice is not None
    return choice


def homes(of: PoolView) -> dict[bytes, str]:
    return {session: choose(of, session).endpoint_id for session in SESSIONS}


def test_a_session_stays_whatever_the_turn_and_the_chance() -> None:
    first = homes(view(1, 2, 1))
    assert homes(view(2, 1, 2, sequence=77, seed=12345)) == first


def test_homes_are_the_same_in_every_process() -> None:
    assert [choose(view(0, 0, 0, 0), session).endpoint_id for session in (b"a", b"b", b"c", b"d", b"e", b"f")] == [
        "e1",
        "e0",
        "e0",
        "e0",
        "e3",
        "e2",
    ]


def test_sessions_spread_by_weight() -> None:
    counts = Counter(homes(view(0, 0, 0, weights=(1, 2, 3))).values())
    assert [counts[e] / 600 for e in ("e0", "e1", "e2")] == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=0.06)


def test_an_endpoint_that_goes_moves_its_own_sessions_only() -> None:
    before, after = homes(view(0, 0, 0, 0)), homes(view(0, 0, 0, 0, health=("healthy", "ejected")))
    moved = {session for session in SESSIONS if before[session] != after[session]}
    assert moved == {session for session in SESSIONS if before[session] == "e1"}
    assert len({after[session] for session in moved}) == 3, "to all others, not all to one"


def test_a_retry_goes_to_the_next_endpoint_and_always_to_the_same() -> None:
    of = view(0, 0, 0, 0)
    first = choose(of, b"s").endpoint_id
    second = choose(of, b"s", frozenset((first,)))
    assert second.endpoint_id != first
    assert choose(of, b"s", frozenset((first,))) == second


@settings(deadline=None, max_examples=60)
@given(counts=st.lists(st.integers(0, 40), min_size=1, max_size=6), session=st.binary(min_size=1, max_size=4))
def test_no_endpoint_is_chosen_that_carries_more_than_its_bound(counts: list[int], session: bytes) -> None:
    choice = choose(view(*counts), session)
    assert counts[int(choice.endpoint_id[1:])] <= 1.25 * sum(counts) / len(counts) + 1


def test_under_load_a_session_breaks_to_its_next_endpoint_and_says_so() -> None:
    calm = view(2, 2, 2)
    first = choose(calm, b"s")
    assert first.reason == "its session's endpoint"
    busy = view(*[9 if e.endpoint_id == first.endpoint_id else 2 for e in calm.endpoints])
    moved = choose(busy, b"s")
    assert moved.endpoint_id == choose(calm, b"s", frozenset((first.endpoint_id,))).endpoint_id
    assert moved.reason == f"its session's next endpoint: {first.endpoint_id} has 9 in flight, over its bound of 6.4"


def test_the_bound_goes_by_weight() -> None:
    heavy = next(s for s in SESSIONS if choose(view(0, 0, weights=(4, 1)), s).endpoint_id == "e0")
    assert choose(view(8, 2, weights=(4, 1)), heavy).endpoint_id == "e0"
    assert choose(view(8, 2), heavy).endpoint_id == "e1"


def test_without_a_session_the_fewest_in_flight() -> None:
    assert choose(view(3, 1, 2), None) == ("e1", "names no session; fewest in flight: 1")
