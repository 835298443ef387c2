"""The promise of ``random``: shares by weight, and nothing but the seed decides."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from policies.routing.random import Random
from policies.types import RouteQuery
from tests.fakes.policy_views import view

POLICY = Random()


def test_shares_go_by_weight_among_those_that_take_traffic() -> None:
    chance, got = random.Random(1), Counter[str]()
    for _ in range(6000):
        of = view(
            9, 0, 0, 0, weights=(1, 2, 7, 3), health=("healthy", "healthy", "ejected"), seed=chance.getrandbits(64)
        )
        choice = POLICY.choose(of, RouteQuery())
        assert choice is not None
        got[choice.endpoint_id] += 1
    assert got["e2"] == 0
    assert [got[e] / 6000 for e in ("e0", "e1", "e3")] == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=0.02)


def test_the_turn_and_what_is_open_decide_nothing() -> None:
    assert POLICY.choose(view(0, 9, sequence=3, seed=5), RouteQuery()) == POLICY.choose(
        view(4, 0, sequence=8, seed=5), RouteQuery()
    )


@pytest.mark.parametrize(("seed", "endpoint_id"), [(0, "e0"), (2**64 - 1, "e1")])
def test_the_ends_of_chance_fall_on_the_first_and_the_last(seed: int, endpoint_id: str) -> None:
    choice = POLICY.choose(view(0, 0, seed=seed), RouteQuery())
    assert choice is not None
    assert choice.endpoint_id == endpoint_id
