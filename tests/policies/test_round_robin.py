"""The promise of ``round_robin``: turns exactly by weight over time, whoever comes and goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.routing.round_robin import RoundRobin
from policies.types import Health, RouteQuery
from tests.fakes.policy_views import view

POLICY = RoundRobin()


def turns(
    sequences: Iterable[int], weights: tuple[float, ...], health: tuple[Health, ...] = (), in_flight: int = 0
) -> Counter[str]:
    got: Counter[str] = Counter()
    for sequence in sequences:
        of = view(*[in_flight] * len(weights), sequence=sequence, weights=weights, health=health)
        choice = POLICY.choose(of, RouteQuery())
        assert choice is not None
        got[choice.endpoint_id] += 1
    return got


@settings(deadline=None, max_examples=30)
@given(
    weights=st.lists(st.sampled_from([1.0, 2.0, 3.0, 0.5, 10.0]), min_size=1, max_size=6),
    begin=st.integers(0, 10**12),
    count=st.integers(1, 400),
)
def test_from_any_moment_on_each_gets_its_share_within_three_turns(
    weights: list[float], begin: int, count: int
) -> None:
    got = turns(range(begin, begin + count), tuple(weights))
    for i, weight in enumerate(weights):
        assert abs(got[f"e{i}"] - count * weight / sum(weights)) <= 3


def test_over_time_the_shares_are_the_weights() -> None:
    got = turns(range(10_000), (1.0, 2.0, 5.0))
    assert [got[f"e{i}"] / 10_000 for i in range(3)] == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=5e-4)


def test_nobody_waits_long_for_a_turn() -> None:
    for begin in range(200):
        assert set(turns(range(begin, begin + 5), (1.0, 1.0))) == {"e0", "e1"}


@pytest.mark.parametrize("stride", [2, 3, 4, 5, 8])
def test_requests_of_one_kind_among_others_are_spread_too(stride: int) -> None:
    """Where every second request is somebody else's, turns by ``sequence % 2`` would all fall on one endpoint."""
    got = turns(range(0, 400 * stride, stride), (1.0, 1.0))
    assert min(got["e0"], got["e1"]) >= 190


def test_an_ejected_endpoint_leaves_its_turns_to_all_others() -> None:
    got = turns(range(3000), (1.0, 1.0, 1.0, 1.0), health=("healthy", "ejected"))
    assert got["e1"] == 0
    assert [got[e] for e in ("e0", "e2", "e3")] == pytest.approx([1000] * 3, abs=3)


def test_what_is_open_does_not_matter() -> None:
    assert turns(range(100), (1.0, 1.0), in_flight=5) == turns(range(100), (1.0, 1.0))
